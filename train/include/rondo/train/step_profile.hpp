#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/export.hpp>

namespace rondo::train {

/// The work of one rank in some steps of its training, with its times: given to train() in
/// TrainerOptions::profile.
///
///     StepProfile profile(11, 20);
///     options.profile = &profile;
///     train(world, experiment, options);
///     // profile.spans() now tells of steps 11 to 20
///
/// Parts of a step are
///
///     step                 all of it; the others lie within
///     load                 waiting for the loader, which prepares batches in a thread of its own
///     make_ready           waiting for the last update of a layer's parameters
///     pack, forward        of a layer: weights into the kernel's layout; the forward kernel
///     loss                 the loss, and its gradient
///     backward_parameters  of a layer: the gradients of its parameters, or all that it computes
///     backward_input       of a layer: the gradient of its input
///     add                  of a layer: gradients of a value with two readers
///     exchange             the update scheme and the transport between two layers
///     sums                 waiting for sums over the ranks of a replica
///     finish               waiting for what is under way, and the update
///
/// - **Cost.** Outside of its steps a comparison for each part; in its steps two readings of the
///   clock and an entry in a list.
/// - **Threads.** It belongs to the training thread.
class RONDO_TRAIN_API StepProfile {
 public:
  struct Span {
    const char* part = "";
    std::string layer = {};     ///< empty: of none
    std::int64_t step = 0;      ///< 1-based, within the run
    std::int64_t begin_ns = 0;  ///< since 1970
    std::int64_t end_ns = 0;
  };

  /// Steps are counted from 1. With micro-batches or ranks that do not step together (cyclic), a
  /// step is what the rank does between two updates of its own.
  StepProfile(std::int64_t first_step, std::int64_t last_step) noexcept
      : first_step_(first_step), last_step_(last_step) {}

  /// In the order in which they ended.
  [[nodiscard]] const std::vector<Span>& spans() const noexcept { return spans_; }

  /// The steps that were recorded so far.
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

  /// The first and the last step that the run came to, recorded or not; 0 before the first.
  [[nodiscard]] std::int64_t first_run() const noexcept { return first_run_; }
  [[nodiscard]] std::int64_t last_run() const noexcept { return last_run_; }

  /// Times a part of a step from here to the end of the scope. Without a profile, or outside of its
  /// steps, nothing happens.
  class RONDO_TRAIN_API Part {
   public:
    /// The characters of `layer` must outlive the object, and those of `part` the profile.
    Part(StepProfile* profile, const char* part, std::string_view layer = {})
        : profile_(profile != nullptr && profile->recording_ ? profile : nullptr),
          part_(part),
          layer_(layer) {
      if (profile_ != nullptr) begin_ns_ = now();
    }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    ~Part() {
      if (profile_ != nullptr) profile_->add(part_, layer_, begin_ns_);
    }

   private:
    StepProfile* profile_;
    const char* part_;
    std::string_view layer_;
    std::int64_t begin_ns_ = 0;
  };

  /// One whole step; `step` is 1-based.
  class RONDO_TRAIN_API Step {
   public:
    Step(StepProfile* profile, std::int64_t step);
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    ~Step();

   private:
    StepProfile* profile_;
    std::int64_t begin_ns_ = 0;
  };

 private:
  static std::int64_t now() noexcept;
  void add(const char* part, std::string_view layer, std::int64_t begin_ns);

  std::int64_t first_step_;
  std::int64_t last_step_;
  std::int64_t steps_ = 0;
  std::int64_t first_run_ = 0;
  std::int64_t last_run_ = 0;
  std::int64_t step_ = 0;
  bool recording_ = false;
  std::vector<Span> spans_ = {};
};

}  // namespace rondo::train
