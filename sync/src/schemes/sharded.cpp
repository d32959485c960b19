// Synchronous SGD with a divided optimizer. The buckets are those of synchronous; each is cut into
// a share for every rank of its slice. Gradients are reduced into the shares while backward goes
// on, finish() updates this rank's, and parameters are gathered until the next forward pass needs
// them.

#include <rondo/sync/sharded.hpp>

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <ranges>
#include <utility>
#include <vector>

#include <rondo/sync/scheme_base.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/request.hpp>
#include <rondo/transport/world.hpp>

#include "base/reductions.hpp"
#include "flat/flat.hpp"

namespace rondo::sync {
namespace {

/// A bucket, cut into shares in the order of the ranks. Whole lines, the last share what is left.
struct SharedBucket {
  explicit SharedBucket(const Bucket& given) : bucket(given) {
    const auto ranks = static_cast<std::size_t>(bucket.slice->size());
    const std::size_t share = share_of(bucket.size, ranks);
    std::size_t rest = bucket.size;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t size = std::min(share, rest);
      if (static_cast<int>(rank) == bucket.slice->rank()) {
        own = {bucket.offset + bucket.size - rest, size};
      }
      counts.push_back(size);
      rest -= size;
    }
  }

  [[nodiscard]] bool is_shared() const noexcept { return counts.size() > 1 && bucket.size > 0; }

  Bucket bucket;
  std::vector<std::size_t> counts;              ///< by rank of the slice
  ElementRange own;                             ///< this rank's share, in the flat arrays
  std::span<transport::Bfloat16> rounded = {};  ///< the bucket's gradients if sent as bf16
  std::size_t missing = 0;                      ///< layers that are not final yet
  transport::Request gradients = {};
  transport::Request parameters = {};
};

std::vector<SharedBucket> plan_shares(std::span<const Layer> layers, const BucketLimits& limits) {
  std::vector<SharedBucket> shares;
  for (const Bucket& bucket : plan_buckets(layers, limits)) shares.emplace_back(bucket);
  return shares;
}

/// The replica, where each rank counts its shares: what ModelSums needs for the gradient's norm.
Replica counting_shares(const Replica& replica, std::span<const SharedBucket> shares) {
  Replica counting = replica;
  const auto shared = std::ranges::find_if(shares, &SharedBucket::is_shared);
  if (shared == shares.end()) return counting;
  counting.slices = {.over = shared->bucket.slice};
  for (const SharedBucket& share : shares) {
    counting.slices.counted.push_back({share.own.offset, share.own.size});
  }
  std::ranges::reverse(counting.slices.counted);  // buckets go from the output side
  return counting;
}

class ShardedScheme final : public SchemeBase {
 public:
  ShardedScheme(Replica given, std::shared_ptr<Optimizer> given_optimizer,
                const SynchronousOptions& options)
      : SchemeBase(sharded_scheme, std::move(given), std::move(given_optimizer), {.version = 2}),
        rounded_(&replica().world->arena()),
        shares_(plan_shares(replica().layers, {options.bucket_bytes, options.last_bucket_bytes})),
        share_of_(replica().layers.size(), 0),
        state_(optimizer().state()),
        clip_norm_(options.clip_norm),
        counting_(counting_shares(replica(), shares_)),
        sums_(counting_, 1),
        copies_(replica(), Copies::Kind::summed_apart),
        gathered_(replica().layers.size(), false) {
    check(options);
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      const Bucket& bucket = shares_[i].bucket;
      std::ranges::fill(
          std::span(share_of_).subspan(bucket.first_layer, bucket.last_layer - bucket.first_layer),
          i);
    }
    if (options.gradient_type == transport::ElementType::bf16) make_room_for_bf16();
  }

  void make_ready(std::size_t layer) override { wait_for_parameters(layer); }

 private:
  void begin_iteration() override {
    posted_ = 0;
    for (SharedBucket& share : shares_) {
      share.missing = share.bucket.last_layer - share.bucket.first_layer;
    }
  }

  // In the order of the plan, as BucketReduction.
  void layer_final(std::size_t layer) override {
    --shares_[share_of_[layer]].missing;
    for (; posted_ < shares_.size() && shares_[posted_].missing == 0; ++posted_) {
      post_gradients(shares_[posted_]);
    }
  }

  void end_iteration() override {
    const double mean = 1.0 / static_cast<double>(step().global_samples);
    if (clip_norm_ > 0.0) {
      for (SharedBucket& share : shares_) wait_for_gradients(share);
    }
    const double clip = sums_.clip_factor(replica().gradients, mean, clip_norm_);
    const Update update{static_cast<float>(mean * clip), step().learning_rate, step().updates()};
    bool exchanged = false;
    for (SharedBucket& share : shares_) {
      wait_for_gradients(share);
      const auto [offset, size] = share.own;
      tiled_update(*replica().world, optimizer(), offset,
                   replica().parameters.subspan(offset, size),
                   replica().gradients.subspan(offset, size), update);
      exchanged = exchanged || share.is_shared();
    }
    // The next forward pass needs the input side first.
    for (SharedBucket& share : shares_ | std::views::reverse) post_parameters(share);
    if (exchanged) ++counted().global_reductions;
  }

  void evaluate(std::span<float> parameters, std::span<float> statistics) override {
    apply_pending();
    SchemeBase::evaluate(parameters, statistics);
  }

  void apply_pending() override {
    for (std::size_t layer = 0; layer < gathered_.size(); ++layer) wait_for_parameters(layer);
  }

  // This rank's shares of each array of the optimizer's state.
  [[nodiscard]] bool saves_optimizer() const noexcept override { return false; }

  void write_state(ByteWriter& writer) const override {
    writer.put(replica().world->rank());
    writer.put(replica().world->size());
    writer.put_array(std::span<const char>(optimizer().name()));
    for_each_part([&](std::span<const float> part) { writer.put_array(part); });
  }

  // Shares of other ranks are as long, and those of another optimizer may be.
  void expect_own(ByteReader& reader) const {
    const int rank = reader.get<int>();
    const int size = reader.get<int>();
    const transport::World& world = *replica().world;
    if (rank != world.rank() || size != world.size()) {
      reader.fail("of rank " + std::to_string(rank) + " of " + std::to_string(size) +
                  ", but this is rank " + std::to_string(world.rank()) + " of " +
                  std::to_string(world.size()));
    }
    const std::span<const std::byte> bytes = reader.get_bytes();
    const std::string name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (name == optimizer().name()) return;
    reader.fail("it is of the optimizer " + name + ", and this one is " +
                std::string(optimizer().name()));
  }

  [[nodiscard]] std::function<void()> read_state(ByteReader& reader) override {
    expect_own(reader);
    std::vector<float> values;
    for_each_part([&](std::span<const float> part) {
      std::vector<float> read(part.size());
      reader.get_array(std::span(read));
      values.insert(values.end(), read.begin(), read.end());
    });
    return [this, values = std::move(values)] {
      apply_pending();  // parameters of the run that ends here
      auto next = values.begin();
      for_each_part([&](std::span<float> part) {
        std::copy_n(next, part.size(), part.begin());
        next += static_cast<std::ptrdiff_t>(part.size());
      });
    };
  }

  template <typename Visit>
  void for_each_part(Visit visit) const {
    const std::size_t size = replica().parameters.size();
    for (std::size_t first = 0; first < state_.size(); first += size) {
      for (const SharedBucket& share : shares_) {
        visit(state_.subspan(first + share.own.offset, share.own.size));
      }
    }
  }

  // Layer by layer: kernels may communicate between two of them, and the ranks of a replica may cut
  // buckets in different ways.
  void wait_for_parameters(std::size_t layer) {
    shares_.at(share_of_.at(layer)).parameters.wait();
    if (!std::exchange(gathered_[layer], false)) return;
    const auto [offset, size] =
        std::pair(replica().layers[layer].offset, replica().layers[layer].size);
    copies_.make_equal(replica().parameters.subspan(offset, size), offset);
  }

  void post_gradients(SharedBucket& share) {
    for (std::size_t layer = share.bucket.last_layer; layer-- > share.bucket.first_layer;) {
      wait_for_parameters(layer);  // where nobody has asked for it
    }
    if (!share.is_shared()) return;
    const auto [offset, size] = std::pair(share.bucket.offset, share.bucket.size);
    const std::span<float> all = replica().gradients.subspan(offset, size);
    const std::size_t own = share.own.offset - offset;
    if (share.rounded.empty()) {
      post_gradients(share, all, all.subspan(own, share.own.size));
    } else {
      flat::round(share.rounded, all);
      post_gradients(share, share.rounded, share.rounded.subspan(own, share.own.size));
    }
  }

  template <typename T>
  void post_gradients(SharedBucket& share, std::span<T> all, std::span<T> own) {
    share.gradients =
        share.bucket.slice->reduce_scatter<T>(all, own, transport::ReduceOp::sum, share.counts);
    ++counted().collectives;
    counted().global_bytes += all.size_bytes() / 2;
  }

  void wait_for_gradients(SharedBucket& share) {
    if (share.gradients.empty()) return;
    share.gradients.wait();
    share.gradients = {};
    if (share.rounded.empty()) return;
    const auto [offset, size] = share.own;
    flat::widen(replica().gradients.subspan(offset, size),
                share.rounded.subspan(offset - share.bucket.offset, size));
  }

  void post_parameters(SharedBucket& share) {
    if (!share.is_shared()) return;
    const std::span<float> all =
        replica().parameters.subspan(share.bucket.offset, share.bucket.size);
    share.parameters = share.bucket.slice->allgather<float>(
        replica().parameters.subspan(share.own.offset, share.own.size), all, share.counts);
    for (std::size_t layer = share.bucket.first_layer; layer < share.bucket.last_layer; ++layer) {
      gathered_[layer] = true;
    }
    ++counted().collectives;
    counted().global_bytes += all.size_bytes() / 2;
  }

  void make_room_for_bf16() {
    std::size_t elements = 0;
    for (const SharedBucket& share : shares_) elements += share.is_shared() ? share.bucket.size : 0;
    rounded_.resize(elements);
    std::span rest(rounded_);
    for (SharedBucket& share : shares_) {
      if (!share.is_shared()) continue;
      share.rounded = rest.first(share.bucket.size);
      rest = rest.subspan(share.bucket.size);
    }
  }

  void check(const SynchronousOptions& options) const {
    using transport::ElementType;
    if (options.gradient_type != ElementType::f32 && options.gradient_type != ElementType::bf16) {
      refuse("gradients are sent as f32 or bf16, and as no other type");
    }
    if (!(clip_norm_ >= 0.0)) refuse("clip_norm must be 0 (no clipping) or positive");
    if (clip_norm_ > 0.0) expect_whole_layers("clip_norm", replica().layers);
    if (!optimizer().is_elementwise()) {
      refuse(
          "the optimizer needs whole layers, and a rank updates parts of them; take sgd, adam or "
          "adamw, or the scheme synchronous");
    }
  }

  std::pmr::vector<transport::Bfloat16> rounded_;  // of all buckets, in the arena
  // In the order of posting. Declared behind `rounded_`, and so destroyed before it: the requests
  // may wait, and use it.
  std::vector<SharedBucket> shares_;
  std::vector<std::size_t> share_of_;  // by layer
  std::size_t posted_ = 0;             // buckets
  std::span<float> state_;             // the optimizer's
  double clip_norm_;
  Replica counting_;
  ModelSums sums_;
  Copies copies_;
  std::vector<char> gathered_;  // by layer: its parameters have been, or are being, gathered
};

}  // namespace

std::unique_ptr<UpdateScheme> make_sharded(Replica replica, std::shared_ptr<Optimizer> optimizer,
                                           const SynchronousOptions& options) {
  return std::make_unique<ShardedScheme>(std::move(replica), std::move(optimizer), options);
}

}  // namespace rondo::sync
