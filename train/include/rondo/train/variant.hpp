#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <rondo/train/export.hpp>

namespace rondo::train {

/// The settings of a variant of a file, such as one of several schemes that are compared: defaults
/// of those keys of the file that the scheme, optimizer, schedule or policy of the variant does not
/// read, then `settings`. Throws ConfigError, also where a key of the file has no effect in the
/// file.
[[nodiscard]] RONDO_TRAIN_API std::vector<std::string> settings_of_variant(
    const std::filesystem::path& file, const std::vector<std::string>& settings);

}  // namespace rondo::train
