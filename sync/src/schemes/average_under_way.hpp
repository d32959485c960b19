#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <rondo/sync/k_step.hpp>
#include <rondo/sync/scheme_base.hpp>

namespace rondo::sync {

/// The global average that a round has ended in, on its way while the next round computes.
class AverageUnderWay {
 public:
  /// `replica` is lent.
  AverageUnderWay(const Replica& replica, bool sends_bf16)
      : replica_(replica), mean_(replica), left_from_(replica.parameters.size(), 0.0F) {
    if (sends_bf16) mean_.prepare_bf16();
  }

  [[nodiscard]] bool is_posted() const noexcept { return posted_; }

  /// `round` ends with the replica's parameters. `unsent` as in PackedMean::post().
  void post(transport::Communicator& group, std::span<const float> start, float weight,
            const Round& round, std::span<float> unsent);

  /// The mean, which may be on its way.
  [[nodiscard]] const PackedMean& mean() const noexcept { return mean_; }

  /// A step of the next round has been made at this rate.
  void count_step(double learning_rate) noexcept { rates_ += learning_rate; }

  /// Waits for the mean, which stays here until take().
  [[nodiscard]] PackedMean& arrived();

  /// The mean is used up. Returns the round that it was of, and the rates of the steps since then.
  [[nodiscard]] std::pair<Round, double> take() noexcept;

  /// The steps that have led from the round's end to `parameters`, made again from `common`.
  void move_to(std::span<float> parameters, std::span<const float> common) const;

  void write(ByteWriter& writer);
  /// Reads it, and changes nothing. Returns what takes it over.
  [[nodiscard]] std::function<void()> read(ByteReader& reader);

 private:
  const Replica& replica_;
  PackedMean mean_;
  std::vector<float> left_from_;  // this rank's parameters when the round ended
  Round round_;
  double rates_ = 0.0;
  bool posted_ = false;
};

}  // namespace rondo::sync
