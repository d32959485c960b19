#pragma once

#include <filesystem>
#include <string_view>

#include "recorder/memory.hpp"

namespace rondo::transport::recorder {

/// Writes `memory` as JSON to `path`: aside, synced, and renamed, so that whoever finds the file
/// finds all of it. Makes the folder. False when no rank has begun to record. Throws
/// std::system_error that names the file.
bool dump(const Memory& memory, std::string_view reason, const std::filesystem::path& path);

/// "flight-rank7.json" in `folder`.
[[nodiscard]] std::filesystem::path dump_path(const std::filesystem::path& folder, int rank);

}  // namespace rondo::transport::recorder
