#include "optimizer/sgd.hpp"

#include <string_view>

#include "flat/parts.hpp"
#include "optimizer/check_update.hpp"

namespace rondo::sync {
namespace {

constexpr std::string_view sgd_state_name = "sgd";
constexpr std::uint32_t sgd_state_version = 1;

}  // namespace

Sgd::Sgd(std::size_t size, const SgdOptions& options, transport::Team* team)
    : options_(options),
      decay_ranges_(sgd_state_name, options.undecayed, size),
      team_(team),
      kernel_(sgd_variants().back().kernel),
      state_(sgd_state_name, sgd_state_version, size, 1) {}

void Sgd::update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
                 const Update& update) {
  check_update(sgd_state_name, offset, parameters, gradients, size());
  const SgdFactors decayed{update.gradient_scale, options_.momentum,
                           options_.weight_decay * update.decay_scale,
                           static_cast<float>(update.learning_rate)};
  SgdFactors undecayed = decayed;
  undecayed.decay = 0.0F;
  float* const velocity = state_.array(0).data() + offset;
  flat::for_each_part(team_, parameters.size(), [&](std::size_t part, std::size_t size) {
    decay_ranges_.for_each_piece(
        offset + part, size, [&](std::size_t in_part, std::size_t count, bool decays) {
          const std::size_t first = part + in_part;
          kernel_(parameters.data() + first, velocity + first, gradients.data() + first, count,
                  decays ? decayed : undecayed);
        });
  });
}

std::unique_ptr<Optimizer> make_sgd(std::size_t size, const SgdOptions& options,
                                    transport::Team* team) {
  return std::make_unique<Sgd>(size, options, team);
}

}  // namespace rondo::sync
