// Synchronous SGD: every bucket of gradients is reduced while backward goes on, and updated as soon
// as its sum is there. Nothing is pending between iterations, so that the base's evaluation and
// state are all there is.

#include <rondo/sync/synchronous.hpp>

#include <utility>

#include <rondo/sync/scheme_base.hpp>

#include "base/reductions.hpp"

namespace rondo::sync {
namespace {

class SynchronousScheme final : public SchemeBase {
 public:
  SynchronousScheme(Replica given, std::shared_ptr<Optimizer> optimizer,
                    const SynchronousOptions& options)
      : SchemeBase(synchronous_scheme, std::move(given), std::move(optimizer), {.version = 3}),
        buckets_(replica(), 0, {options.bucket_bytes, options.last_bucket_bytes},
                 options.gradient_type),
        clip_norm_(options.clip_norm),
        sums_(replica(), 1) {
    check_clipping();
  }

 private:
  void begin_iteration() override { buckets_.begin(); }

  void layer_final(std::size_t layer) override { buckets_.layer_final(layer, counted()); }

  void end_iteration() override {
    const auto scale = static_cast<float>(gradient_scale());
    buckets_.update(optimizer(), {scale, step().learning_rate, step().updates()});
    if (buckets_.reduces()) ++counted().global_reductions;
  }

  /// The scale of the sums that the buckets reduce; waits for all only if the norm must be known.
  double gradient_scale() {
    const double mean = 1.0 / static_cast<double>(step().global_samples);
    if (clip_norm_ > 0.0) buckets_.wait();
    return mean * sums_.clip_factor(replica().gradients, mean, clip_norm_);
  }

  /// Can every rank tell the norm of the whole gradient?
  void check_clipping() const {
    if (!(clip_norm_ >= 0.0)) refuse("clip_norm must be 0 (no clipping) or positive");
    if (clip_norm_ == 0.0 || replica().slices.over != nullptr) return;
    expect_whole_layers("clip_norm", replica().layers);
  }

  BucketReduction buckets_;
  double clip_norm_;
  ModelSums sums_;
};

}  // namespace

std::unique_ptr<UpdateScheme> make_synchronous(Replica replica,
                                               std::shared_ptr<Optimizer> optimizer,
                                               const SynchronousOptions& options) {
  return std::make_unique<SynchronousScheme>(std::move(replica), std::move(optimizer), options);
}

}  // namespace rondo::sync
