#include "optimizer/sgd.hpp"

#include <stdexcept>
#include <string>
#include <string_view>

#include <rondo/transport/team.hpp>

namespace rondo::sync {
namespace {

constexpr std::string_view state_name = "sgd";
constexpr std::uint32_t state_version = 1;

/// Below this, waking a team costs more than it saves.
constexpr std::size_t team_worthwhile = 64 * 1024;

/// One update as the threads of a team see it.
struct Shared {
  SgdKernel kernel;
  std::span<float> parameters;
  float* velocity;
  const float* gradients;
  SgdFactors factors;
  std::size_t parts;
};

void update_part(void* context, int index) {
  const auto& shared = *static_cast<const Shared*>(context);
  const auto part = static_cast<std::size_t>(index);
  const std::size_t size = shared.parameters.size();
  const std::size_t first = size * part / shared.parts;
  const std::size_t last = size * (part + 1) / shared.parts;
  shared.kernel(shared.parameters.data() + first, shared.velocity + first, shared.gradients + first,
                last - first, shared.factors);
}

}  // namespace

Sgd::Sgd(std::size_t size, const SgdOptions& options, transport::Team* team)
    : options_(options),
      team_(team),
      kernel_(sgd_variants().back().kernel),
      state_(state_name, state_version, size) {}

void Sgd::update(std::size_t offset, std::span<float> parameters, std::span<const float> gradients,
                 const Update& update) {
  const std::span<float> velocity = state_.values();
  if (parameters.size() != gradients.size() || offset > velocity.size() ||
      parameters.size() > velocity.size() - offset) {
    throw std::invalid_argument("sgd: update of " + std::to_string(parameters.size()) +
                                " parameters by " + std::to_string(gradients.size()) +
                                " gradients at " + std::to_string(offset) +
                                " does not fit an array of " + std::to_string(velocity.size()));
  }
  const SgdFactors factors{update.gradient_scale, options_.momentum, options_.weight_decay,
                           static_cast<float>(update.learning_rate)};
  Shared shared{kernel_, parameters, velocity.data() + offset, gradients.data(), factors, 1};
  if (team_ == nullptr || parameters.size() < team_worthwhile) {
    update_part(&shared, 0);
    return;
  }
  shared.parts = static_cast<std::size_t>(team_->size());
  team_->run(update_part, &shared);
}

std::vector<std::byte> Sgd::save() const { return state_.save(); }

void Sgd::restore(std::span<const std::byte> state) { state_.restore(state); }

std::unique_ptr<Optimizer> make_sgd(std::size_t size, const SgdOptions& options,
                                    transport::Team* team) {
  return std::make_unique<Sgd>(size, options, team);
}

}  // namespace rondo::sync
