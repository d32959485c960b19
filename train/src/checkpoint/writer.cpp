// Writing a checkpoint beside the training.
//
// start() compares the ranks' parts by their checksums: of equal parts, the lowest rank writes one
// file for all. So parameters that every rank holds alike are stored once, and those of replicas
// that step by themselves each, and no scheme has to tell which is which.
//
// A thread on each rank writes its files. Whoever has written enters a barrier of a communicator
// that is used for nothing else; training advances it. When it is complete, a thread of rank 0
// writes the manifest and gives the checkpoint its name. Only the training thread talks to other
// ranks.

#include "checkpoint/writer.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/storage.hpp"
#include "data/signals_blocked.hpp"

namespace rondo::train {
namespace {

// Of one part of one rank. Has no pointers: it is sent as bytes.
struct Digest {
  std::array<char, 32> checksum = {};
  std::uint64_t bytes = 0;

  [[nodiscard]] bool operator==(const Digest&) const = default;
};
using Digests = std::array<Digest, part_count>;

Digests digests_of(const RankState& state) {
  Digests digests;
  for (std::size_t part = 0; part < part_count; ++part) {
    std::ranges::copy(checksum_of(state[part]), digests[part].checksum.begin());
    digests[part].bytes = state[part].size();
  }
  return digests;
}

// As bytes, because the transport moves elements and not structs.
std::vector<Digests> gather(transport::Communicator& all, const Digests& mine) {
  std::vector<std::uint8_t> own(sizeof(Digests));
  std::memcpy(own.data(), &mine, own.size());
  std::vector<std::uint8_t> bytes(own.size() * static_cast<std::size_t>(all.size()));
  all.allgather(std::span<const std::uint8_t>(own), std::span(bytes)).wait();
  std::vector<Digests> digests(static_cast<std::size_t>(all.size()));
  std::memcpy(digests.data(), bytes.data(), bytes.size());
  return digests;
}

std::string file_name(std::size_t part, std::size_t rank) {
  return fmt::format("{}-{}.bin", part_names[part], rank);
}

}  // namespace

CheckpointWriter::CheckpointWriter(transport::Communicator& all, Options options)
    : all_(all.split(0, all.rank())), options_(std::move(options)) {
  if (all_.rank() == 0) remove_unfinished(options_.run_folder);
}

// A run that fails does not wait for others.
CheckpointWriter::~CheckpointWriter() { abandon(); }

// What ranks other than 0 still write is removed as far as it is there by now; the rest by the next
// run in the folder.
void CheckpointWriter::abandon() noexcept {
  stop_.request_stop();
  if (thread_.joinable()) thread_.join();
  const bool has_its_name = stage_ == Stage::completing && error_ == nullptr;
  if (stage_ != Stage::idle && !has_its_name && all_.rank() == 0) {
    remove_unfinished(options_.run_folder);
  }
  stage_ = Stage::idle;
}

// One file at a time runs on the thread; what it throws is kept for the training thread.
template <typename Work>
void CheckpointWriter::run(Work work) {
  done_ = false;
  error_ = nullptr;
  stop_ = {};
  const SignalsBlocked blocked;
  thread_ = std::thread([this, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
    done_ = true;
  });
}

void CheckpointWriter::join() {
  if (thread_.joinable()) thread_.join();
  if (error_ == nullptr) return;
  abandon();
  std::rethrow_exception(std::exchange(error_, nullptr));
}

void CheckpointWriter::start(Manifest about, RankState state) {
  // One checkpoint at a time. If the disk is slower than the interval between two, training waits
  // here.
  finish();
  manifest_ = std::move(about);
  share_parts(state);
  stage_ = Stage::writing;
  // The thread owns a copy of the state: training goes on and changes the parameters meanwhile.
  run([this, state = std::move(state)] { write_parts(state); });
}

// All ranks list the same files, and write those that bear their number.
void CheckpointWriter::share_parts(const RankState& state) {
  const std::vector<Digests> ranks = gather(all_, digests_of(state));
  manifest_.files.clear();
  manifest_.parts.assign(ranks.size(), {});
  for (std::size_t part = 0; part < part_count; ++part) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const Digest& digest = ranks[rank][part];
      std::size_t first = 0;
      // Every rank does the same search over the same digests, so no message is needed to agree.
      while (ranks[first][part] != digest) ++first;
      if (first < rank) {
        manifest_.parts[rank][part] = manifest_.parts[first][part];
        continue;
      }
      manifest_.parts[rank][part] = manifest_.files.size();
      manifest_.files.push_back(
          {.name = file_name(part, rank),
           .bytes = digest.bytes,
           .checksum = std::string(digest.checksum.begin(), digest.checksum.end())});
    }
  }
}

// Not to its end where the checkpoint is given up.
void CheckpointWriter::write_parts(const RankState& state) const {
  const auto rank = static_cast<std::size_t>(all_.rank());
  make_unfinished_folder(options_.run_folder, manifest_.step);
  const std::filesystem::path folder = unfinished_folder(options_.run_folder, manifest_.step);
  for (std::size_t part = 0; part < part_count; ++part) {
    const std::string& name = manifest_.files[manifest_.parts[rank][part]].name;
    if (name == file_name(part, rank)) {
      write_durably(folder / name, state[part], stop_.get_token());
    }
  }
}

// Called by the training thread now and then. It never waits.
void CheckpointWriter::progress() {
  if (stage_ == Stage::writing && done_) begin_barrier();
  if (stage_ == Stage::waiting && barrier_.test()) complete();
  if (stage_ == Stage::completing && done_) {
    join();
    stage_ = Stage::idle;
  }
}

void CheckpointWriter::begin_barrier() {
  join();
  // When the barrier is complete, every rank has synced its files.
  barrier_ = all_.barrier();
  stage_ = Stage::waiting;
}

void CheckpointWriter::complete() {
  if (all_.rank() != 0) {
    stage_ = Stage::idle;
    return;
  }
  // Old checkpoints go only after the new one has its name, so that there is always a whole one.
  run([this] {
    sync_logs(options_.logs);
    complete_checkpoint(options_.run_folder, manifest_);
    prune_checkpoints(options_.run_folder, options_.keep, options_.best);
  });
  stage_ = Stage::completing;
}

// What progress() does, but it waits: before the next checkpoint, and at the end of a run.
void CheckpointWriter::finish() {
  if (stage_ == Stage::writing) begin_barrier();
  if (stage_ == Stage::waiting) {
    wait_for_writers(barrier_);
    complete();
  }
  if (stage_ == Stage::completing) join();
  stage_ = Stage::idle;
}

void CheckpointWriter::finish_together() {
  finish();
  transport::Request named = all_.barrier();
  wait_for_writers(named);
}

// Writing may take longer than any message may, but not without a change of the files, which all
// ranks see. They are looked at only when a deadline has passed: many ranks have many files, and
// nearly always nobody waits so long. So it takes two deadlines to notice that nothing changes.
void CheckpointWriter::wait_for_writers(transport::Request& barrier) const {
  std::optional<std::string> last;
  barrier.wait([&] {
    std::string now = state_of_checkpoints(options_.run_folder);
    const bool has_moved = now != last;
    last = std::move(now);
    return has_moved;
  });
}

}  // namespace rondo::train
