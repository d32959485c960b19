// What host programs see of failures: the error that a call throws, and the flight record that
// tells afterwards what the rank was doing.

#include <rondo/transport/error.hpp>

#include <utility>

#include <rondo/transport/flight_record.hpp>

#include "recorder/dump.hpp"
#include "recorder/json.hpp"
#include "recorder/memory.hpp"

namespace rondo::transport {
namespace {

class Category final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "rondo.transport"; }

  [[nodiscard]] std::string message(int code) const override {
    switch (static_cast<Errc>(code)) {
      case Errc::peer_lost:
        return "peer lost";
      case Errc::mismatch:
        return "ranks posted different operations";
      case Errc::deadline_exceeded:
        return "deadline exceeded";
      case Errc::aborted:
        return "aborted";
      case Errc::rendezvous_failed:
        return "rendezvous failed";
      case Errc::out_of_memory:
        return "out of shared memory";
      case Errc::link_unavailable:
        return "link unavailable";
    }
    return "unknown error";
  }
};

}  // namespace

const std::error_category& error_category() noexcept {
  static const Category category;
  return category;
}

std::error_code make_error_code(Errc code) noexcept {
  return {static_cast<int>(code), error_category()};
}

Error::Error(Errc code, const std::string& what, ErrorDetail detail)
    : std::system_error(make_error_code(code), what), detail_(std::move(detail)) {}

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
  const recorder::Header* header = memory_->header();
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
