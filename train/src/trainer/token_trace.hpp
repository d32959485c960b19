#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include <rondo/sync/cyclic.hpp>

namespace rondo::train {

// The turns of a cyclic run as a file, one JSON object a line, from which [update] replay takes
// them again:
//
//     {"worker":2,"kind":"push","minibatches":3}

/// "push", "skip" or "park".
[[nodiscard]] std::string_view name_of(sync::Turn::Kind kind) noexcept;

/// Adds `turns` to the end of `file`. Throws DataError when that fails.
void append_token_trace(const std::filesystem::path& file, const std::vector<sync::Push>& turns);

/// Throws ConfigError that names the file and the line where it is no token trace of `workers`
/// workers.
[[nodiscard]] std::vector<sync::Turn> read_token_trace(const std::filesystem::path& file,
                                                       int workers);

}  // namespace rondo::train
