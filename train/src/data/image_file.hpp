#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace rondo::train {

// All bytes of an image file. Throws DataError.
[[nodiscard]] std::vector<std::uint8_t> read_file(const std::filesystem::path& file);

}  // namespace rondo::train
