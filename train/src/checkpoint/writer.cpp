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
//
// A rank that cannot write never enters the barrier. While a run trains, its error ends the run on
// all ranks. At the end of a run the ranks vote first, on another communicator: then all give the
// checkpoint up, and may go on.

#include "checkpoint/writer.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <rondo/transport/blocked_signals.hpp>
#include <rondo/transport/error.hpp>

#include "checkpoint/storage.hpp"
#include "weights/checksum.hpp"

namespace rondo::train {
namespace {

// The digest of one part of one rank. It has no pointers, because it is sent as bytes.
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

std::size_t rank_of(const transport::Communicator& all) {
  return static_cast<std::size_t>(all.rank());
}

}  // namespace

CheckpointWriter::CheckpointWriter(transport::Communicator& all, Options options)
    : all_(all.split(0, all.rank())),
      ends_(all.split(0, all.rank())),
      options_(std::move(options)) {
  if (all_.rank() == 0) remove_unfinished(options_.run_folder);
}

// A run that fails does not wait for others.
CheckpointWriter::~CheckpointWriter() { abandon(); }

void CheckpointWriter::abandon() noexcept {
  stop_.request_stop();
  if (thread_.joinable()) thread_.join();
  const bool has_its_name = stage_ == Stage::completing && error_ == nullptr;
  // Behind the barrier rank 0 may be giving it its name; if it does not, it removes all that is
  // there.
  const bool may_get_its_name = stage_ == Stage::waiting && all_.rank() != 0;
  if (stage_ != Stage::idle && !has_its_name && !may_get_its_name) remove_written();
  stage_ = Stage::idle;
}

// Other ranks may still write, or begin to: whoever is the last to remove its files finds the
// folder empty, and removes it, too.
void CheckpointWriter::remove_written() const noexcept {
  const std::filesystem::path folder = unfinished_folder(options_.run_folder, manifest_.step);
  std::error_code ignored;
  for (std::size_t part = 0; part < part_count; ++part) {
    if (writes(part)) std::filesystem::remove(folder / file_name(part, rank_of(all_)), ignored);
  }
  std::filesystem::remove(folder, ignored);
  if (all_.rank() == 0) remove_unfinished(options_.run_folder);
}

// One file at a time runs on the thread; what it throws is kept for the training thread.
template <typename Work>
void CheckpointWriter::run(Work work) {
  done_ = false;
  error_ = nullptr;
  stop_ = {};
  const transport::BlockedSignals blocked;
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

// Does this rank, and not a lower one that has the same?
bool CheckpointWriter::writes(std::size_t part) const {
  const std::size_t rank = rank_of(all_);
  return manifest_.files[manifest_.parts[rank][part]].name == file_name(part, rank);
}

// Not to its end where the checkpoint is given up.
void CheckpointWriter::write_parts(const RankState& state) const {
  make_unfinished_folder(options_.run_folder, manifest_.step);
  const std::filesystem::path folder = unfinished_folder(options_.run_folder, manifest_.step);
  for (std::size_t part = 0; part < part_count; ++part) {
    if (!writes(part)) continue;
    write_durably(folder / file_name(part, rank_of(all_)), state[part], stop_.get_token());
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

// Does the same as progress(), but waits.
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
  if (thread_.joinable() && stage_ == Stage::writing) thread_.join();
  if (has_failed_anywhere()) return give_up_together();
  std::exception_ptr failure;
  try {
    finish();
  } catch (const transport::Error&) {
    throw;
  } catch (...) {  // rank 0 could not give it its name, for which the others wait
    failure = std::current_exception();
  }
  transport::Request named = ends_.barrier();
  wait_for_writers(named);
  if (failure != nullptr) std::rethrow_exception(failure);
}

bool CheckpointWriter::has_failed_anywhere() {
  std::array<std::int32_t, 1> failed = {stage_ == Stage::writing && error_ != nullptr ? 1 : 0};
  transport::Request vote =
      ends_.allreduce(std::span<std::int32_t>(failed), transport::ReduceOp::max);
  wait_for_writers(vote);
  return failed.front() != 0;
}

// Some ranks may have entered the barrier before. All do, so that nobody keeps it, and no rank
// completes the checkpoint.
void CheckpointWriter::give_up_together() {
  if (stage_ == Stage::writing) barrier_ = all_.barrier();
  barrier_.wait();
  remove_written();
  stage_ = Stage::idle;
  join();
}

// Writing may take longer than any message may, but not without a change of the files, which all
// ranks see. They are looked at only when a deadline has passed: many ranks have many files, and
// nearly always nobody waits so long. So it takes two deadlines to notice that nothing changes.
void CheckpointWriter::wait_for_writers(transport::Request& request) const {
  std::optional<std::string> last;
  request.wait([&] {
    std::string now = state_of_checkpoints(options_.run_folder);
    const bool has_moved = now != last;
    last = std::move(now);
    return has_moved;
  });
}

}  // namespace rondo::train
