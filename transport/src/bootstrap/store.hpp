#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/auth.hpp"
#include "bootstrap/environment.hpp"
#include "bootstrap/side_channel.hpp"
#include "bootstrap/sockets.hpp"
#include "verdict/wait_graph.hpp"

// The TCP store of rank 0, and the ranks' side channels over it.

namespace rondo::transport::bootstrap {

/// The identity of a rank or of the store, and the secret that proves it.
struct Credentials {
  RankIdentity self = {};
  std::string secret = {};
  std::chrono::milliseconds bootstrap_deadline{60'000};
};

/// Counts what has come to a store.
struct StoreStatistics {
  std::atomic<std::uint64_t> connections = 0;  ///< accepted
  std::atomic<std::uint64_t> unverified = 0;   ///< dropped before they proved anything
  std::atomic<std::uint64_t> refused = 0;      ///< knew the secret, but were no rank of this job
  std::atomic<std::uint64_t> too_early = 0;    ///< came for the job's next World already
  std::atomic<std::uint64_t> whole = 0;        ///< answers with all parts that were sent
};

/// Whether others listen at the same socket when the store no longer does.
enum class Listener : std::uint8_t {
  own,  ///< nobody: also a process forked meanwhile, which has a copy of it, no longer listens
  inherited,  ///< the next World of this process, or whoever it came from
};

/// The store, in rank 0's process: gathers the blobs of allgather() and passes status messages on.
///
/// - **Unverified connections.** Nothing but a handshake is received from a connection that has not
///   proved to know the secret, 1 KiB at a time. It has 5 s for that. At most 128 more of them are
///   open than the job has ranks, so that all ranks may come at once; the oldest is closed for a
///   new one, so that silent ones keep no rank out. None can delay a member: nothing here waits.
/// - **Without a secret** only processes of the same user on this host may prove anything.
/// - **Members** that end their connection without having told that they left are lost; the others
///   are told at once. A second process that says to be the same rank, or one that is out of range,
///   is refused with the reason. One with another size or version fails the bootstrap of all, with
///   the same text. A rank that has left may be back for the job's next World before this process
///   is: it is told to come again.
/// - **Cost** per allgather: P blobs in; all blobs out to each of the N leaders of nodes, and a few
///   bytes to the other ranks. 4,096 ranks on 64 nodes with 300 bytes each are 80 MB. All that are
///   sent the same share one copy, so the memory that it takes does not grow with the connections.
class StoreServer final : public ServiceTask {
 public:
  /// `listener` does not block. `own` is the store's end of rank 0's own connection.
  StoreServer(Credentials credentials, shm::Descriptor listener, shm::Descriptor own,
              Listener kind = Listener::inherited);
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  ~StoreServer() override;

  [[nodiscard]] const StoreStatistics& statistics() const noexcept { return statistics_; }

  /// An address of this host at which a rank has come: not loopback, if there is another. From any
  /// thread.
  [[nodiscard]] std::string reached_at() const;

  void list(std::vector<pollfd>& entries) override;
  void on_failure(std::string_view why) noexcept override;
  [[nodiscard]] Clock::time_point due() const override;
  void attend(std::span<const pollfd> entries, Clock::time_point now) override;
  void finish() override;
  [[nodiscard]] bool finished() const override;

 private:
  /// A connection that has not proved to know the secret.
  struct Unverified {
    Connection connection;
    StoreHandshake handshake;
    Clock::time_point until;  ///< time_point::min() once the connection was accepted or refused
  };
  struct Member {
    Connection connection;
    std::string host;
  };
  /// The known facts about a rank that has come, whether it is still a member or not.
  struct History {
    bool came = false;
    bool left = false;
    std::uint64_t process = 0;
  };

  void accept_some(Clock::time_point now);
  void drop_oldest_unverified();
  bool make_room(int error, Clock::time_point now);
  void drop_decided(Clock::time_point now);
  void verify(Unverified& candidate);
  [[nodiscard]] bool is_same_user_without_secret(Unverified& candidate);
  void admit(Unverified& candidate, const RankIdentity& who);
  void answer_known_rank(Unverified& candidate, const RankIdentity& who);
  void refuse(Unverified& candidate, const std::string& why);
  void serve(std::size_t rank, Clock::time_point now);
  void take_blob(std::size_t rank, const Frame& frame, Clock::time_point now);
  void take_parts(std::size_t rank, const Frame& frame, Clock::time_point now);
  void answer(Frame::Type asked);
  void answer_with_parts(const Blobs& all);
  void answer_with_rosters(const Blobs& keys);
  void take_status(std::size_t rank, const Frame& frame);
  void answer_who_is_at_fault(std::size_t rank, const std::vector<int>& missing);
  void note_address(int socket);
  void report_lost_members(Clock::time_point now);
  void send_to_others(std::size_t rank, const Frame& frame);
  void send_to_all(const SharedFrame& frame);
  void fail(const std::string& why);
  void stop_listening() noexcept;

  Credentials credentials_;
  Listener kind_;
  shm::Descriptor listener_;
  std::vector<std::unique_ptr<Unverified>> unverified_;  ///< the oldest first
  std::vector<std::unique_ptr<Member>> members_;         ///< by rank; empty before and after
  std::vector<History> history_;                         ///< by rank
  std::vector<std::size_t> leaders_;                     ///< by rank; itself until nodes are known
  AllgatherRounds rounds_;
  WaitGraph waits_;
  std::string failure_;
  Clock::time_point accept_again_at_ = {};  ///< when descriptors ran out
  bool finishing_ = false;
  StoreStatistics statistics_;

  mutable std::mutex mutex_;  // guards what follows
  std::string reached_at_;
  bool reached_from_afar_ = false;
};

struct StoreConnection;

/// A rank's side channel over the store.
///
/// It owns the process' service thread, and on rank 0 the store, which exchanges frames with it
/// through a socket pair as with any other rank.
///
/// - **Lost ranks.** A process that ends is told by the store at once. When the store's process
///   ends, or the line to its host is cut, all that this rank can see is that rank 0 is lost.
///   A stopped process (SIGSTOP) is not lost. (Unless so much is told to it meanwhile, some 64 KiB,
///   that its socket is full for 3.5 s.)
/// - **Rank 0 leaves** in order: everybody is told, and after that learns nothing more.
/// - **End.** The destructor tells that this rank left, and waits half a second at most (rank 0:
///   one) for that to be on its way. Not to be called by the handler of watch().
class StoreClient final : public SideChannel {
 public:
  /// Rank 0: serves the store on `listener`.
  [[nodiscard]] static std::unique_ptr<StoreClient> serve(const Credentials& credentials,
                                                          shm::Descriptor listener,
                                                          Listener kind = Listener::inherited);

  /// Another rank: connects to the store at `endpoint`, and proves to be a member.
  ///
  /// Tries all addresses of the name again and again, with growing pauses of random length so that
  /// a thousand ranks do not come in step, until the bootstrap deadline. A refusal is final.
  /// Throws Error(bootstrap_failed) that says why it was refused or could not get there.
  [[nodiscard]] static std::unique_ptr<StoreClient> join(const Credentials& credentials,
                                                         const Endpoint& endpoint);

  ~StoreClient() override;
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  /// From now on one of the ranks with the same `key` exchanges the parts of an allgather with the
  /// store, and passes them on to the others over local sockets: so ranks with the same key must be
  /// processes of one machine. Collective, and once at most; waits and fails as allgather().
  void gather_by_node(std::string_view key);

  [[nodiscard]] std::vector<std::string> allgather(std::string_view mine) override;
  void watch(std::function<void(const StatusMessage&)> handler) override;
  void tell(const StatusMessage& message) noexcept override;
  [[nodiscard]] std::string failure() const override;

  /// The store in this process; nullptr but on rank 0.
  [[nodiscard]] const StoreServer* server() const noexcept { return server_.get(); }

  /// This host's address on the way to rank 0, proved by having connected; on rank 0 one at which
  /// other ranks have reached it: not loopback, if there is another. Empty on rank 0 before the
  /// first allgather(), and when it is alone.
  [[nodiscard]] std::string local_address() const;

 private:
  class Line;

  [[nodiscard]] shm::Descriptor connect_to_leader_of(const Roster& roster) const;

  StoreClient(const Credentials& credentials, StoreConnection store,
              std::unique_ptr<StoreServer> server);

  RankIdentity self_;
  std::chrono::milliseconds deadline_;
  std::string local_address_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<Line> line_;
  ServiceThread service_;  ///< the last: its thread uses the others
};

}  // namespace rondo::transport::bootstrap
