#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <stop_token>
#include <thread>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/request.hpp>

#include "checkpoint/manifest.hpp"

namespace rondo::train {

// A rank's state, copied, part by part.
using RankState = std::array<std::vector<std::byte>, part_count>;

// Writes the checkpoints of a run while its ranks train on. Every rank has one, and writes with a
// thread of its own the parts that no lower rank has alike.
class CheckpointWriter {
 public:
  struct Options {
    std::filesystem::path run_folder = {};
    std::vector<std::filesystem::path> logs = {};  // whose lengths the manifests say
    std::int64_t keep = 1;
    bool best = false;  // keeps the one with the highest accuracy besides
  };

  // Collective over `all`, which is lent.
  CheckpointWriter(transport::Communicator& all, Options options);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();

  // Begins a checkpoint, when the one before is complete. `about` says all but files and parts; on
  // ranks other than 0 only its step counts. Collective.
  void start(Manifest about, RankState state);

  // To be called now and then: completes the checkpoint when all ranks have written their parts.
  // If some rank could not, all give it up, and that one throws DataError.
  void progress();

  // Waits until the checkpoint is complete; on ranks other than 0, until all parts are written.
  // Throws as progress(). Collective.
  void finish();
  // Waits until rank 0 has given the last one its name, or could not; no rank waits for one that
  // has thrown. Throws as progress(). Collective.
  void finish_together();

  // Gives up the one that is not complete: this rank's thread ends soon, without writing the rest,
  // and what this rank has written is removed, so that a disk that is full has room again; rank 0
  // removes all that is there. Nothing where there is none.
  void abandon() noexcept;

 private:
  enum class Stage : std::uint8_t { idle, writing, waiting, completing };

  void share_parts(const RankState& state);
  [[nodiscard]] bool writes(std::size_t part) const;
  void write_parts(const RankState& state) const;
  void remove_written() const noexcept;
  template <typename Work>
  void run(Work work);
  void join();
  void begin_barrier();
  void complete();
  [[nodiscard]] bool has_failed_anywhere();
  void give_up_together();
  void wait_for_writers(transport::Request& request) const;

  transport::Communicator all_;   // of its own, for a barrier after writing
  transport::Communicator ends_;  // for what all ranks do at the end of a run
  Options options_;
  Stage stage_ = Stage::idle;
  Manifest manifest_;  // of the checkpoint under way
  transport::Request barrier_;
  std::atomic<bool> done_ = false;  // has the thread?
  std::exception_ptr error_;        // what it ended by
  std::stop_source stop_;           // asks it to end
  std::thread thread_;
};

}  // namespace rondo::train
