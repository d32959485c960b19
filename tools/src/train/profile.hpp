#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/model_benchmark.hpp>
#include <rondo/train/step_profile.hpp>

namespace rondo::transport {
class Team;
class World;
}  // namespace rondo::transport

namespace rondo::tools {

/// Steps of a run, counted from 1.
struct StepRange {
  std::int64_t first = 11;  ///< the first steps allocate and warm up
  std::int64_t last = 20;
};

/// Reads "FIRST:LAST". Throws UsageError.
[[nodiscard]] StepRange parse_steps(std::string_view text);

/// A row of the table: what one pass of one layer takes. Microseconds, mean over the steps.
struct ProfileRow {
  std::string layer = {};  ///< empty: of no layer
  std::string pass = {};
  double calls = 0.0;  ///< in a step
  std::optional<double> step = {};
  std::optional<double> warm = {};  ///< the kernel alone, as often as in the step
  std::optional<double> cold = {};
};

/// The rows of a profile; the last ones are the sums. `warm` and `cold` are empty where kernels
/// were not measured alone.
[[nodiscard]] std::vector<ProfileRow> profile_rows(const train::StepProfile& profile,
                                                   const std::vector<train::KernelTime>& warm,
                                                   const std::vector<train::KernelTime>& cold);

/// How a run that is profiled ended.
enum class RunEnd { complete, stopped };

/// `rondo train --profile`: the profile of this rank, from before training until the files are
/// written.
class RunProfile {
 public:
  RunProfile(transport::World& world, StepRange range, std::filesystem::path folder);

  [[nodiscard]] train::StepProfile& steps() noexcept { return steps_; }

  /// After every step, on every rank: keeps the collectives of the steps when the last was
  /// profiled.
  void on_step();

  /// Writes profile-rank-R.json on every rank, and on rank 0 profile.json, unless no step was
  /// recorded; returns what rank 0 shows. `experiment` is as it ran, with `team`. No kernels are
  /// measured alone for a run that was stopped. Collective.
  std::string write(const train::Experiment& experiment, int threads, transport::Team* team,
                    RunEnd end);

 private:
  void take_record();

  transport::World& world_;
  StepRange range_;
  std::filesystem::path folder_;
  train::StepProfile steps_;
  std::string record_ = {};  // a flight record as JSON
};

}  // namespace rondo::tools
