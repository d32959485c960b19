// Reductions of gradients during backward: when buckets are posted, and how updates and reductions
// overlap.
//
// Gradients may be sent as bf16. They are sums over samples and are divided by the number of
// samples only after the reduction, in fp32: bf16 has the exponents of fp32, so that what is lost
// by rounding does not depend on the scale, and a division before it would only round once more.
//
// And sums over the elements of a model that several ranks may hold together. All ranks must get
// the same bits, because they decide by them: what to clip, and how long a lazy window is.

#include "base/reductions.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "flat/flat.hpp"

namespace rondo::sync {
namespace {

constexpr std::size_t tile = 256 * 1024;  // elements: 1 MiB

/// As the cutting of buckets wants them: a group is the number of the first layer that is reduced
/// over the same slice.
std::vector<LayerGradients> gradients_of(std::span<const Layer> layers) {
  std::vector<LayerGradients> gradients;
  for (const Layer& layer : layers) {
    const auto first = std::ranges::find(layers, layer.groups.slice,
                                         [](const Layer& each) { return each.groups.slice; });
    gradients.push_back(
        {.elements = layer.size, .group = static_cast<int>(first - layers.begin())});
  }
  return gradients;
}

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const Layer> layers, const BucketLimits& limits) {
  std::vector<Bucket> buckets;
  for (const auto [first, last] : plan_buckets(gradients_of(layers), limits)) {
    buckets.push_back({first, last, layers[first].offset, 0, layers[first].groups.slice});
    for (const Layer& layer : layers.subspan(first, last - first)) {
      buckets.back().size += layer.size;
    }
  }
  return buckets;
}

void SliceAllreduce::add(transport::Communicator& slice, std::size_t offset, std::size_t size) {
  parts_.push_back({&slice, offset, size});
}

void SliceAllreduce::append(transport::Communicator& slice, std::size_t size) {
  if (parts_.empty()) {
    add(slice, 0, size);
  } else if (Part& last = parts_.back(); last.slice == &slice) {
    last.size += size;
  } else {
    add(slice, last.offset + last.size, size);
  }
}

// Each part that is reduced gets room of its own, one behind the other.
void SliceAllreduce::send_as(transport::ElementType type, std::pmr::memory_resource* memory) {
  if (type == transport::ElementType::f32) return;
  if (type != transport::ElementType::bf16) {
    throw std::invalid_argument("gradients are sent as f32 or bf16, and as no other type");
  }
  std::size_t elements = 0;
  for (const Part& part : parts_) elements += part.is_reduced() ? part.size : 0;
  std::span rest(sent_.emplace(elements, transport::Bfloat16(), memory));
  for (Part& part : parts_) {
    if (!part.is_reduced()) continue;
    part.sent = rest.first(part.size);
    rest = rest.subspan(part.size);
  }
}

void SliceAllreduce::post_part(std::size_t part, std::span<float> values,
                               SchemeCounters* counters) {
  Part& posted = parts_[part];
  if (!posted.is_reduced()) return;
  const std::span<float> own = values.subspan(posted.offset, posted.size);
  if (posted.sent.empty()) {
    posted.request = posted.slice->allreduce(own);
  } else {
    flat::round(posted.sent, own);
    posted.request = posted.slice->allreduce(posted.sent);
    posted.sum_goes_to = own;
  }
  if (counters == nullptr) return;
  ++counters->collectives;
  counters->global_bytes += posted.sent.empty() ? own.size_bytes() : posted.sent.size_bytes();
}

void SliceAllreduce::post(std::span<float> values, SchemeCounters* counters) {
  for (std::size_t part = 0; part < parts_.size(); ++part) post_part(part, values, counters);
}

void SliceAllreduce::wait_for(std::size_t part) {
  Part& waited = parts_[part];
  waited.request.wait();
  if (waited.sum_goes_to.empty()) return;
  flat::widen(std::exchange(waited.sum_goes_to, {}), waited.sent);
}

void SliceAllreduce::wait() {
  for (std::size_t part = 0; part < parts_.size(); ++part) wait_for(part);
}

bool SliceAllreduce::reduces() const noexcept {
  return std::ranges::any_of(parts_, &Part::is_reduced);
}

BucketReduction::BucketReduction(const Replica& replica, std::size_t first_layer,
                                 const BucketLimits& limits, transport::ElementType type)
    : replica_(replica),
      first_layer_(first_layer),
      buckets_(plan_buckets(std::span(replica.layers).subspan(first_layer), limits)),
      bucket_of_(replica.layers.size() - first_layer, 0),
      missing_(buckets_.size(), 0),
      copies_(replica, Copies::Kind::summed_apart) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    std::ranges::fill(
        std::span(bucket_of_).subspan(bucket.first_layer, bucket.last_layer - bucket.first_layer),
        i);
    reduction_.add(*bucket.slice, bucket.offset, bucket.size);
  }
  reduction_.send_as(type, &replica.world->arena());
}

void BucketReduction::begin() {
  posted_ = 0;
  std::ranges::transform(buckets_, missing_.begin(), [](const Bucket& bucket) {
    return bucket.last_layer - bucket.first_layer;
  });
}

// In the order of the plan, and not in the order of completion: ranks whose layers become final
// in different orders still post the same collectives in the same order.
void BucketReduction::layer_final(std::size_t layer, SchemeCounters& counters) {
  --missing_[bucket_of_[layer - first_layer_]];
  for (; posted_ < buckets_.size() && missing_[posted_] == 0; ++posted_) {
    reduction_.post_part(posted_, replica_.gradients, &counters);
  }
}

void BucketReduction::update(Optimizer& optimizer, const Update& update) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    reduction_.wait_for(i);
    const auto [offset, size] = std::pair(buckets_[i].offset, buckets_[i].size);
    const std::span<float> gradients = replica_.gradients.subspan(offset, size);
    copies_.make_equal(gradients, offset);
    tiled_update(*replica_.world, optimizer, offset, replica_.parameters.subspan(offset, size),
                 gradients, update);
  }
}

// Tiles are long enough that looking for progress costs nothing, and short enough that a reduction
// does not stand still while a large layer is updated. An optimizer that needs whole layers gets
// them.
void tiled_update(transport::World& world, Optimizer& optimizer, std::size_t offset,
                  std::span<float> parameters, std::span<const float> gradients,
                  const Update& update) {
  const std::size_t most = optimizer.is_elementwise() ? tile : parameters.size();
  for (std::size_t done = 0; done < parameters.size(); done += most) {
    const std::size_t size = std::min(most, parameters.size() - done);
    optimizer.update(offset + done, parameters.subspan(done, size), gradients.subspan(done, size),
                     update);
    world.progress();
  }
}

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
