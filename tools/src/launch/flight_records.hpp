#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include <rondo/transport/flight_record.hpp>

namespace rondo::tools {

/// The flight recorders of a job's ranks, held by their launcher, who can read them when the ranks
/// are stuck or gone.
class FlightRecords {
 public:
  /// `folder`: where they are written when the job fails; empty: nowhere.
  FlightRecords(int ranks, std::filesystem::path folder);

  /// What the rank inherits.
  [[nodiscard]] int descriptor(int rank) const;

  /// Writes flight-rankN.json for all ranks that have recorded anything, and one line about it to
  /// stderr, when the job's exit status or its records tell that ranks were killed or lost each
  /// other. What else a job can fail by, no record explains.
  void write_after_failure(int status) const;

  /// The same when somebody asks for it; without a folder to the current one.
  void write_on_request() const;

 private:
  void write(const std::filesystem::path& folder, std::string_view reason) const;

  std::vector<transport::FlightRecord> records_ = {};
  std::filesystem::path folder_;
};

}  // namespace rondo::tools
