// Records when the parts of a step begin and end. Times are read from the steady clock and shown as
// those of the system's clock: both were read together once, so that the traces of several ranks
// fit together, and no adjustment of the clock bends a trace.

#include <rondo/train/step_profile.hpp>

#include <chrono>

namespace rondo::train {
namespace {

std::int64_t nanoseconds(auto duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

// The system clock's time minus that of the steady clock.
std::int64_t offset() {
  static const std::int64_t difference =
      nanoseconds(std::chrono::system_clock::now().time_since_epoch()) -
      nanoseconds(std::chrono::steady_clock::now().time_since_epoch());
  return difference;
}

}  // namespace

std::int64_t StepProfile::now() noexcept {
  return offset() + nanoseconds(std::chrono::steady_clock::now().time_since_epoch());
}

void StepProfile::add(const char* part, std::string_view layer, std::int64_t begin_ns) {
  spans_.push_back({.part = part,
                    .layer = std::string(layer),
                    .step = step_,
                    .begin_ns = begin_ns,
                    .end_ns = now()});
}

// A step within another one is a part of it: only the outer one begins and ends the recording.
StepProfile::Step::Step(StepProfile* profile, std::int64_t step) : profile_(nullptr) {
  if (profile == nullptr || profile->recording_) return;
  if (profile->first_run_ == 0) profile->first_run_ = step;
  profile->last_run_ = step;
  if (step < profile->first_step_ || step > profile->last_step_) return;
  profile_ = profile;
  profile_->step_ = step;
  profile_->recording_ = true;
  begin_ns_ = now();
}

StepProfile::Step::~Step() {
  if (profile_ == nullptr) return;
  profile_->add("step", {}, begin_ns_);
  profile_->recording_ = false;
  ++profile_->steps_;
}

}  // namespace rondo::train
