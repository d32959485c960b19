#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>

namespace rondo::transport {
class World;
}  // namespace rondo::transport

namespace rondo::train {

// The turns of a cyclic run as a file, one JSON object a line, from which [update] replay takes
// them again:
//
//     {"worker":2,"kind":"push","minibatches":3}

/// "push", "skip" or "park".
[[nodiscard]] std::string_view name_of(sync::Turn::Kind kind) noexcept;

/// Adds `turns` to the end of `file`, but for pushes of flush(): these are no turns. Throws
/// DataError when that fails.
void append_token_trace(const std::filesystem::path& file, const std::vector<sync::Push>& turns);

/// Notes in `file` that turns are missing here, so that it is not replayed. Throws DataError.
void append_token_gap(const std::filesystem::path& file);

/// Throws ConfigError that names the file and the line where it is no token trace of `workers`
/// workers.
[[nodiscard]] std::vector<sync::Turn> read_token_trace(const std::filesystem::path& file,
                                                       int workers);

/// The decisions that this rank's scheme has told, until they are written down.
struct Traces {
  std::vector<sync::LazyWindow> windows = {};
  std::vector<sync::Round> rounds = {};
  std::vector<sync::Push> pushes = {};
};

/// Every rank's pushes on rank 0, in the order of the store's versions, and of ranks where those
/// are equal; on other ranks nothing. Collective.
[[nodiscard]] std::vector<sync::Push> gather_pushes(transport::World& world,
                                                    const std::vector<sync::Push>& mine);

}  // namespace rondo::train
