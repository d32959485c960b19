#pragma once

#include <string>
#include <string_view>

#include "recorder/memory.hpp"

namespace rondo::transport::recorder {

/// What is in `memory` as a JSON object (see rondo/transport/flight_record.hpp); empty when no
/// rank has begun to record. `reason` says why it is wanted.
[[nodiscard]] std::string to_json(const Memory& memory, std::string_view reason);

/// `text` between quotation marks, with what JSON does not take escaped or replaced.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace rondo::transport::recorder
