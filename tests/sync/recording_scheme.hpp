#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync::test {

/// A scheme that does nothing but write its calls to a list: "NAME.call argument".
///
/// Its state is the number of iterations it has finished. It claims a global reduction for each
/// of them, a pace of as many samples, and fills evaluation copies with that number.
class RecordingScheme final : public UpdateScheme {
 public:
  /// `calls` is lent.
  RecordingScheme(std::string name, std::vector<std::string>& calls)
      : name_(std::move(name)), calls_(calls) {}

  void begin(const Step& step) override { record("begin " + std::to_string(step.index)); }
  void make_ready(std::size_t layer) override { record("make_ready " + std::to_string(layer)); }
  void gradients_final(std::size_t layer) override { record("final " + std::to_string(layer)); }
  void finish() override {
    ++finished_;
    record("finish");
  }
  void copy_for_evaluation(std::span<float> parameters, std::span<float> /*statistics*/) override {
    for (float& value : parameters) value = static_cast<float>(finished_);
    record("copy");
  }
  void flush() override { record("flush"); }
  [[nodiscard]] std::vector<std::span<const float>> replicated() const override {
    return {parameters_};
  }
  [[nodiscard]] std::vector<std::byte> save() const override {
    return {static_cast<std::byte>(finished_)};
  }
  void restore(std::span<const std::byte> state) override {
    finished_ = static_cast<std::uint8_t>(state.front());
    record("restore " + std::to_string(finished_));
  }
  [[nodiscard]] SchemeCounters counters() const noexcept override {
    return {.global_reductions = finished_, .collectives = 2U * std::uint64_t{finished_}};
  }
  [[nodiscard]] const SchemeDescription& description() const noexcept override {
    static constexpr SchemeDescription recording{.name = "recording"};
    return recording;
  }
  [[nodiscard]] std::optional<Pace> pace() const noexcept override {
    return Pace{.samples = finished_};
  }

 private:
  void record(const std::string& call) { calls_.push_back(name_ + "." + call); }

  std::string name_;
  std::vector<std::string>& calls_;
  std::vector<float> parameters_ = {1.0F};
  std::uint8_t finished_ = 0;
};

}  // namespace rondo::sync::test
