#include "launch/flight_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <system_error>
#include <utility>

#include "exit_status.hpp"

namespace rondo::tools {

FlightRecords::FlightRecords(int ranks, std::filesystem::path folder) : folder_(std::move(folder)) {
  for (int rank = 0; rank < ranks; ++rank) {
    records_.push_back(transport::FlightRecord::create());
  }
}

int FlightRecords::descriptor(int rank) const {
  return records_[static_cast<std::size_t>(rank)].descriptor();
}

void FlightRecords::write_after_failure(int status) const {
  if (folder_.empty() || status == exit_done) return;
  const bool explains =
      status >= signal_base ||
      std::ranges::any_of(records_, [](const auto& record) { return record.tells_of_failure(); });
  if (explains) write(folder_, "the job failed");
}

void FlightRecords::write_on_request() const {
  write(folder_.empty() ? "." : folder_, "asked for by SIGUSR2");
}

void FlightRecords::write(const std::filesystem::path& folder, std::string_view reason) const {
  int written = 0;
  try {
    for (std::size_t r = 0; r < records_.size(); ++r) {
      const auto path = transport::FlightRecord::path_in(folder, static_cast<int>(r));
      if (records_[r].write(path, reason)) ++written;
    }
  } catch (const std::system_error& error) {
    fmt::print(stderr, "rondo: {}\n", error.what());
    return;
  }
  if (written == 0) return;
  fmt::print(stderr, "rondo: the flight records of {} of {} ranks are in {}\n", written,
             records_.size(), (folder / "flight-rank*.json").string());
}

}  // namespace rondo::tools
