#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rondo::tools {

/// One epoch of a run, of its "epoch" event.
struct EpochRecord {
  double accuracy = 0.0;  ///< percent; NaN when it could not be told
  double seconds = 0.0;   ///< of training, evaluation excluded
  double global_reductions = 0.0;
  double local_reductions = 0.0;
  double bytes_sent = 0.0;
  std::optional<double> global_bytes = {};  ///< absent in runs of older versions; also below
  std::optional<double> local_bytes = {};
};

/// What a run left behind in metrics.jsonl.
struct RunRecord {
  struct Start {
    std::string config = {};  ///< as a TOML file
    std::int64_t ranks = 0;
    std::int64_t threads = 0;
    std::int64_t nodes = 0;
    std::string route = {};  ///< what joins nodes, and which delays were injected
  };
  std::optional<Start> start = {};
  std::vector<EpochRecord> epochs = {};
  std::string end_reason = {};  ///< empty: the run did not get as far as its end

  /// Did it do all that its configuration asks for?
  [[nodiscard]] bool completed() const;
};

/// Reads a metrics.jsonl. Lines that are damaged or unknown are passed over; a file that is not
/// there gives an empty record.
[[nodiscard]] RunRecord read_run_record(const std::filesystem::path& metrics);

}  // namespace rondo::tools
