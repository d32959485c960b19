// When a World writes flight records to files: this rank's own when something has failed, and those
// of ranks of its node that cannot do it themselves.

#include <exception>
#include <mutex>
#include <string>

#include "base/best_effort.hpp"
#include "recorder/recorder.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {
namespace {

// The record of a failure must not become one: where it cannot be written, it is not.
void try_to_dump(const recorder::Memory& memory, std::string_view reason,
                 const std::filesystem::path& path) noexcept {
  try {
    static_cast<void>(recorder::dump(memory, reason, path));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): see above
  }
}

bool worth_dumping(const Error& error) {
  return error.code() == Errc::deadline_exceeded || error.code() == Errc::peer_lost ||
         error.code() == Errc::mismatch || error.code() == Errc::aborted;
}

}  // namespace

void WorldCore::dump_flight_record(const std::filesystem::path& path) const {
  recorder::dump(*peer(my_.rank).recorder, "asked for", path);
}

void WorldCore::set_dump_folder(const std::string& folder) {
  const std::scoped_lock lock(dump_folder_mutex_);
  options_.dump_folder = folder;
}

std::filesystem::path WorldCore::dump_folder() const {
  const std::scoped_lock lock(dump_folder_mutex_);
  return options_.dump_folder;
}

// Not every failure is worth a file: what a rank caused by itself is in its own error already.
void WorldCore::note_failure(const Error& error) noexcept {
  if (!worth_dumping(error)) return;
  recorder_.note_failure(static_cast<Errc>(error.code().value()), error.what());
  if_memory_allows([&] {
    dump_own(error.code().message());
    dump_for_others(error);
  });
}

// Once, also when abort() calls it from another thread.
void WorldCore::dump_own(std::string_view reason) {
  const std::filesystem::path folder = dump_folder();
  if (folder.empty() || dumped_.exchange(true)) return;
  try_to_dump(*peer(my_.rank).recorder, reason, recorder::dump_path(folder, my_.rank));
}

// A rank that has ended cannot do it itself. Nor, perhaps, can the one that everybody waits for: if
// it does after all, its own record replaces this one.
void WorldCore::dump_for_others(const Error& error) {
  const std::filesystem::path folder = dump_folder();
  if (folder.empty()) return;
  for (std::size_t r = 0; r < my_.peers.size(); ++r) {
    const auto rank = static_cast<int>(r);
    const Peer& other = my_.peers[r];
    if (rank == my_.rank || !other.recorder || dumped_for_[r]) continue;
    const bool late = rank == error.detail().rank && error.code() == Errc::deadline_exceeded;
    if (!late && !has_ended(rank)) continue;
    dumped_for_[r] = true;
    try_to_dump(*other.recorder,
                (late ? "it did not take part in time, says rank " : "it is gone, says rank ") +
                    std::to_string(my_.rank),
                recorder::dump_path(folder, rank));
  }
}

}  // namespace rondo::transport
