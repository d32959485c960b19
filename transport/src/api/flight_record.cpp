#include <rondo/transport/flight_record.hpp>

#include <utility>

#include "recorder/dump.hpp"
#include "recorder/recorder.hpp"

namespace rondo::transport {

FlightRecord::FlightRecord(std::unique_ptr<recorder::Memory> memory) noexcept
    : memory_(std::move(memory)) {}
FlightRecord::FlightRecord(FlightRecord&&) noexcept = default;
FlightRecord& FlightRecord::operator=(FlightRecord&&) noexcept = default;
FlightRecord::~FlightRecord() = default;

FlightRecord FlightRecord::create() {
  return FlightRecord(std::make_unique<recorder::Memory>(recorder::Memory::create()));
}

int FlightRecord::descriptor() const noexcept { return memory_->descriptor(); }

bool FlightRecord::tells_of_failure() const {
  const recorder::RecordHeader* header = memory_->header();
  return header != nullptr && header->failure.load(std::memory_order_acquire) != 0;
}

std::string FlightRecord::json(std::string_view reason) const {
  return recorder::to_json(*memory_, reason);
}

bool FlightRecord::write(const std::filesystem::path& path, std::string_view reason) const {
  return recorder::dump(*memory_, reason, path);
}

std::filesystem::path FlightRecord::path_in(const std::filesystem::path& folder, int rank) {
  return recorder::dump_path(folder, rank);
}

}  // namespace rondo::transport
