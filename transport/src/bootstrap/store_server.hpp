#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/connection.hpp"
#include "bootstrap/gathering.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/messages.hpp"
#include "bootstrap/service_thread.hpp"

namespace rondo::transport::rendezvous {

/// Who a rank or the store is, and what proves it.
struct Credentials {
  Introduction self = {};
  std::string secret = {};
  std::chrono::milliseconds rendezvous_deadline{60'000};
};

/// What has come to a store.
struct StoreStatistics {
  std::atomic<std::uint64_t> connections = 0;  ///< accepted
  std::atomic<std::uint64_t> strangers = 0;    ///< dropped before they proved anything
  std::atomic<std::uint64_t> refused = 0;      ///< knew the secret, but had no place here
  std::atomic<std::uint64_t> too_early = 0;    ///< came for the job's next World already
};

/// The store, in rank 0's process: gathers the blobs of allgather() and passes news on.
///
/// - **Strangers.** Nothing but a handshake is taken from a connection that has not proved to know
///   the secret, 1 KiB at a time. It has 5 s for that. At most 128 more of them are open than the
///   job has ranks, so that all ranks may come at once; the oldest gives way to a new one, so that
///   silent ones shut nobody out. None can delay a member: nothing here waits.
/// - **Without a secret** only processes of the same user on this host may prove anything.
/// - **Members** that end their connection without having told that they left are lost; the others
///   are told at once. A second process that says to be the same rank, or one that is out of range,
///   is refused with the reason. One with another size or version fails the rendezvous of all, with
///   the same text. A rank that has left may be back for the job's next World before this process
///   is: it is told to come again.
/// - **Cost** per allgather: P blobs in, P times all blobs out. Rank 0 is the bottleneck; 1,000
/// ranks
///   with 1 KiB each are 1 GB, so a rank's blob should be short.
class StoreServer final : public ServiceTask {
 public:
  /// `listener` does not block. `own` is the store's end of rank 0's own connection.
  StoreServer(Credentials credentials, shm::Descriptor listener, shm::Descriptor own);

  [[nodiscard]] const StoreStatistics& statistics() const noexcept { return statistics_; }

  /// An address of this host at which a rank has come, rather not loopback; from any thread.
  [[nodiscard]] std::string reached_at() const;

  void list(std::vector<pollfd>& entries) override;
  void on_failure(std::string_view why) noexcept override;
  [[nodiscard]] Clock::time_point due() const override;
  void attend(std::span<const pollfd> entries, Clock::time_point now) override;
  void finish() override;
  [[nodiscard]] bool finished() const override;

 private:
  struct Stranger {
    Connection connection;
    Challenger challenger;
    Clock::time_point until;
  };
  struct Member {
    Connection connection;
    std::string host;
  };
  /// What is known of a rank that has come, whether it is still a member or not.
  struct Past {
    bool came = false;
    bool left = false;
    std::uint64_t process = 0;
  };

  void accept_some(Clock::time_point now);
  bool make_room(int error, Clock::time_point now);
  void drop_strangers(Clock::time_point now);
  void greet(Stranger& stranger);
  [[nodiscard]] bool is_trusted(Stranger& stranger);
  void admit(Stranger& stranger, const Introduction& who);
  void admit_again(Stranger& stranger, const Introduction& who);
  void refuse(Stranger& stranger, const std::string& why);
  [[nodiscard]] std::size_t most_strangers() const noexcept;
  void serve(std::size_t rank, Clock::time_point now);
  void take_blob(std::size_t rank, const Frame& frame, Clock::time_point now);
  void take_news(std::size_t rank, const Frame& frame);
  void note_address(int socket);
  void bury_the_lost(Clock::time_point now);
  void send_to_others(std::size_t rank, const Frame& frame);
  void fail(const std::string& why);

  Credentials credentials_;
  shm::Descriptor listener_;
  std::vector<std::unique_ptr<Stranger>> strangers_;  ///< the oldest first
  std::vector<std::unique_ptr<Member>> members_;      ///< by rank; empty before and after
  std::vector<Past> past_;                            ///< by rank
  Gathering gathering_;
  std::string failure_;
  Clock::time_point deaf_until_ = {};  ///< when descriptors ran out
  bool finishing_ = false;
  StoreStatistics statistics_;

  mutable std::mutex mutex_;  // guards what follows
  std::string reached_at_;
  bool reached_from_afar_ = false;
};

}  // namespace rondo::transport::rendezvous
