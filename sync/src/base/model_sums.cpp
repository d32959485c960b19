// Sums over the elements of a model that several ranks may hold together. All ranks must get the
// same bits, because they decide by them: what to clip, and how long a lazy window is.

#include "base/model_sums.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "flat/flat.hpp"

namespace rondo::sync {

double clip_factor(double squared_norm, double scale, double max_norm) noexcept {
  const double norm = scale * std::sqrt(squared_norm);
  return max_norm > 0.0 && norm > max_norm ? max_norm / norm : 1.0;
}

ModelSums::ModelSums(const Replica& replica, std::size_t most)
    : slices_(replica.slices),
      most_(most),
      own_(&replica.world->arena()),
      all_(&replica.world->arena()) {
  if (!is_shared()) return;
  own_.resize(most, 0.0);
  all_.resize(most * static_cast<std::size_t>(slices_.over->size()), 0.0);
}

double ModelSums::own_dot(std::span<const float> a, std::span<const float> b,
                          std::size_t offset) const {
  if (!is_shared()) return flat::dot(a, b);
  double sum = 0.0;
  for (const Slices::Part& part : slices_.counted) {
    const std::size_t first = std::max(part.offset, offset);
    const std::size_t end = std::min(part.offset + part.size, offset + a.size());
    if (first >= end) continue;
    sum +=
        flat::dot(a.subspan(first - offset, end - first), b.subspan(first - offset, end - first));
  }
  return sum;
}

// Not an allreduce: its order, and so the bits, may depend on the nodes that a replica lies on.
void ModelSums::add_up(std::span<double> sums) {
  if (!is_shared()) return;
  if (sums.size() > most_) throw std::logic_error("more sums than were announced");
  const auto ranks = static_cast<std::size_t>(slices_.over->size());
  const std::span<double> all = std::span(all_).first(sums.size() * ranks);
  std::ranges::copy(sums, own_.begin());
  slices_.over->allgather(std::span<const double>(own_).first(sums.size()), all).wait();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = 0.0;
    for (std::size_t rank = 0; rank < ranks; ++rank) sums[i] += all[rank * sums.size() + i];
  }
}

double ModelSums::squared_norm(std::span<const float> values) {
  double sum = own_dot(values, values, 0);
  add_up({&sum, 1});
  return sum;
}

double ModelSums::clip_factor(std::span<const float> gradients, double scale, double max_norm) {
  if (max_norm == 0.0) return 1.0;
  return sync::clip_factor(squared_norm(gradients), scale, max_norm);
}

}  // namespace rondo::sync
