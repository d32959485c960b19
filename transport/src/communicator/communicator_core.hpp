#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rondo/transport/block.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/request.hpp>

#include "collective/algorithms.hpp"
#include "communicator/header_stage.hpp"
#include "communicator/operation_record.hpp"
#include "communicator/slot_stage.hpp"
#include "message/channel.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {

class LinkFailure;

/// How this rank reaches the members, who are known by World rank and port.
[[nodiscard]] std::vector<Channel::Route> routes_of(const WorldCore& world, const Group& group);

/// One rank's side of a communicator: its queue of operations, its control block, its peers'.
///
/// Operations run in the order posted. The list holds, from old to new: those that drain (this
/// rank's part is done, peers' is not), the one that runs, those that are published, those that
/// are queued. current_ and unpublished_ are the first of the last three and of the last. Messages
/// (send, recv, ...) are outside of that order, in parts_.
///
/// How its members agree on an operation is a matter of its stage: of SlotStage inside a node, of
/// HeaderStage between nodes.
///
/// The sources: post.cpp checks arguments and posts; queue.cpp runs what is posted; wait.cpp waits;
/// failure.cpp gives up; split.cpp has how communicators are made, recording.cpp the flight
/// recorder and the texts.
class CommunicatorCore final : public std::enable_shared_from_this<CommunicatorCore>,
                               public ProgressSource {
 public:
  /// `block` is this rank's control block; the first operation gets the sequence `first`; `context`
  /// is its name for other ranks and in flight records.
  CommunicatorCore(std::shared_ptr<WorldCore> world, Group group, std::uint64_t block,
                   std::uint64_t first, std::uint32_t context);
  CommunicatorCore(const CommunicatorCore&) = delete;
  CommunicatorCore& operator=(const CommunicatorCore&) = delete;
  ~CommunicatorCore();

  /// The communicator of all ranks; once, right after the construction of the World.
  [[nodiscard]] static std::shared_ptr<CommunicatorCore> of_world(WorldCore& world);

  // A prepared operation is checked, and posted next or kept for a Plan.
  [[nodiscard]] OperationRecord& prepare_allreduce(ConstBlock in, Block out, ReduceOp op);
  [[nodiscard]] OperationRecord& prepare_coalesced(std::span<const Block> arrays, ReduceOp op);
  [[nodiscard]] OperationRecord& prepare_reduce(ConstBlock in, Block out, int root, ReduceOp op);
  [[nodiscard]] OperationRecord& prepare_reduce_scatter(ConstBlock in, Block out, ReduceOp op,
                                                        std::span<const std::size_t> counts);
  [[nodiscard]] OperationRecord& prepare_broadcast(Block data, int root);
  [[nodiscard]] OperationRecord& prepare_allgather(ConstBlock in, Block out,
                                                   std::span<const std::size_t> counts);
  [[nodiscard]] OperationRecord& prepare_alltoall(ConstBlock in, Block out);
  [[nodiscard]] OperationRecord& prepare_gather(ConstBlock in, Block out, int root,
                                                std::span<const std::size_t> counts);
  [[nodiscard]] OperationRecord& prepare_scatter(ConstBlock in, Block out, int root,
                                                 std::span<const std::size_t> counts);
  [[nodiscard]] OperationRecord& prepare_alltoallv(ConstBlock in,
                                                   std::span<const std::size_t> in_counts,
                                                   Block out,
                                                   std::span<const std::size_t> out_counts);
  [[nodiscard]] OperationRecord& prepare_scan(ConstBlock in, Block out, ReduceOp op,
                                              bool exclusive);
  [[nodiscard]] OperationRecord& prepare_barrier();
  [[nodiscard]] OperationRecord& prepare_sendrecv(std::span<const Neighbour> neighbours);
  Request post(OperationRecord& record);
  Request post_parts(OperationRecord& record);
  /// Posts the operation of a Plan.
  Request post_like(const OperationRecord& prototype);
  /// The Plan of `prototype` has ended.
  void drop(OperationRecord& prototype) noexcept;

  Request send(ConstBlock data, int peer, int tag);
  Request recv(Block data, int peer, int tag);
  Request put_signal(int peer, std::uint64_t value, int tag);
  Request wait_signal(int peer, std::uint64_t& value, int tag);
  [[nodiscard]] std::vector<Block> share(Block mine);
  /// Null without a color.
  [[nodiscard]] std::shared_ptr<CommunicatorCore> split(std::optional<int> color, int key);

  /// Makes it one whose members are on several nodes; once, before the first operation. The first
  /// operation on this node gets the sequence `first_on_node`. See HeaderStage.
  void span_nodes(std::uint64_t first_on_node);
  [[nodiscard]] bool spans_nodes() const noexcept { return headers_ != nullptr; }
  /// Operations posted from now on go into the flight recorder; once, before the first operation.
  void begin_recording();

  bool progress() override;
  /// How often any has moved.
  [[nodiscard]] std::uint64_t moves() const noexcept { return moves_; }

  /// When a wait ends without its operation.
  struct WaitLimit {
    std::optional<std::chrono::nanoseconds> limit = {};  // without one, at the World's deadline
    const std::function<bool()>* has_moved = nullptr;    // which begins anew if this says so
  };
  /// Waits for `record`; throws what makes it fail. False when a limit of its own has passed.
  [[nodiscard]] bool wait(OperationRecord& record, const WaitLimit& limit);
  /// Which of `requests` has ended first; it is empty then. Nothing when all were empty, or `limit`
  /// has passed. Throws what makes one of them fail.
  [[nodiscard]] static std::optional<std::size_t> wait_any(
      std::span<Request> requests, std::optional<std::chrono::nanoseconds> limit);
  /// If this rank has aborted the job, nothing succeeds any more but what is complete.
  void fail_if_own_abort();
  /// Does not wait, but checks for what would end a wait, unless it has just done so.
  void check_peers(OperationRecord& record);
  /// Gives up a receive that is pending, and lets go of it; false if it is anything else.
  bool cancel(OperationRecord& record) noexcept;
  /// The Request lets go of `record`, waiting for it first.
  void release(OperationRecord& record) noexcept;

  /// Fails everything pending, and everything posted from now on, and tells the peers of the node.
  /// When it returns, no peer touches the buffers of what was pending; see release_arena().
  void poison(const Error& error);
  /// As poison(), and tells ranks of other nodes what only this one may have seen.
  void fail(const Error& error);
  void handle_divergence(const StatusMessage& status) override;
  [[nodiscard]] const std::optional<Error>& failure() const noexcept { return failure_; }
  /// Why a peer of this node, which `record` needs, has given up the communicator.
  [[nodiscard]] std::optional<Error> failure_of_peers(const OperationRecord& record) const;
  /// Has a message failed, and is this rank waiting for the side channel to tell why?
  [[nodiscard]] bool has_deferred_failure() const noexcept { return deferred_failure_.has_value(); }
  /// The deferred failure, with what is known of its reason by now.
  [[nodiscard]] Error deferred_failure() const;
  [[nodiscard]] std::optional<int> cause_of_loss(int rank) const;
  [[nodiscard]] std::optional<int> cause_of_mismatch(int rank) const;
  /// The error when `record` waits for `rank`, which has ended: it names the first cause that is
  /// known.
  [[nodiscard]] Error loss_of(int rank, const OperationRecord& record) const;
  /// The error when `lost` is lost, and nobody tells what became of the ranks that `record` waits
  /// for.
  [[nodiscard]] Error unobserved_after(int lost, const OperationRecord& record) const;

  /// Does the oldest incomplete operation up to `record` wait for that member?
  [[nodiscard]] bool waits_for(const OperationRecord& record, std::size_t member) const;
  /// Must that member live for the operation to complete? Between nodes others may stand between.
  [[nodiscard]] bool needs(const OperationRecord& record, std::size_t member) const;
  /// Did that member, which left in order, take part in all that `record` waits for? Then what it
  /// sent is on its way. Also true as long as nothing is known.
  [[nodiscard]] bool took_part(const OperationRecord& record, std::size_t member) const;
  /// The operation that this one waits for: itself, or an older one.
  [[nodiscard]] const OperationRecord& front_of(const OperationRecord& record) const;
  /// The World ranks that it waits for; all others, where it is not known for which.
  [[nodiscard]] std::vector<int> missing(const OperationRecord& record) const;
  /// Throws Errc::mismatch when peers that have posted differ, whether or not others are missing.
  void check_all_fingerprints();

  [[nodiscard]] std::string describe(const OperationRecord& record) const;
  [[nodiscard]] std::string describe(shm::Fingerprint fingerprint, std::uint64_t sequence) const;
  [[nodiscard]] const Group& group() const noexcept { return group_; }
  [[nodiscard]] Group& group() noexcept { return group_; }
  [[nodiscard]] WorldCore& world() const noexcept { return *world_; }

 private:
  friend class SlotStage;
  friend class NodeQueue;
  friend class HeaderStage;

  /// Calls `function` with the stage that this communicator has.
  template <typename Function>
  decltype(auto) at_stage(Function function) {
    return headers_ ? function(*headers_) : function(slots_);
  }
  template <typename Function>
  decltype(auto) at_stage(Function function) const {
    return headers_ ? function(std::as_const(*headers_)) : function(slots_);
  }

  // The pool, and what fills its records (post.cpp).
  [[nodiscard]] OperationRecord& take_record();
  [[nodiscard]] OperationRecord& take_record(const ConstBlock& in, const Block& out,
                                             const shm::Fingerprint& fingerprint);
  void recycle(OperationRecord& record) noexcept;
  [[nodiscard]] OperationRecord& begin_parts(PointToPointCall call);
  [[nodiscard]] PointToPoint& start_parts(OperationRecord& record);
  template <typename Describe>
  Request post_one(PointToPointCall call, int peer, int tag, Describe describe);
  /// Every rank's `mine`, in rank order; waits.
  void allgather_bytes(std::span<const std::byte> mine, std::span<std::byte> all);

  // The queue.
  bool publish_queued();
  bool step_current();
  [[nodiscard]] Progress step(OperationRecord& record);
  bool step_parts();
  bool drain();
  void drain_all();
  [[nodiscard]] bool finish(OperationRecord& record) const;
  void unlist_complete();
  void ring_sleepers(Group& group) const;
  void compare(const OperationRecord& record, int peer, const shm::Fingerprint& theirs,
               std::uint64_t sequence) const;

  // Failures.
  [[nodiscard]] Request fail_at_once(OperationRecord& record) noexcept;
  void give_up(OperationRecord& record);
  [[nodiscard]] Error failure_of(const Member& member) const;
  void defer_failure(const LinkFailure& failure, const OperationRecord* record);
  void defer_failure(const Error& error);
  void check_deferred_failure();

  void record_ordered(OperationRecord& record) noexcept;
  void record_parts(OperationRecord& record) noexcept;
  [[nodiscard]] std::string describe_parts(const OperationRecord& record) const;

  std::shared_ptr<WorldCore> world_;
  Group group_;
  std::uint64_t block_;
  std::uint64_t first_;  // sequence of the first operation
  std::uint64_t next_sequence_;
  SlotStage slots_;
  std::unique_ptr<HeaderStage> headers_;  // in the place of slots_ where it spans nodes

  std::deque<OperationRecord> pool_;
  std::vector<OperationRecord*> free_;
  OperationRecord* oldest_ = nullptr;
  OperationRecord* newest_ = nullptr;
  OperationRecord* current_ = nullptr;      // first whose own part is not done
  OperationRecord* unpublished_ = nullptr;  // first that peers cannot see
  std::vector<OperationRecord*> parts_;     // point-to-point operations under way
  std::size_t next_part_ = 0;               // that the next pass looks at first

  std::uint64_t moves_ = 0;

  std::optional<Error> failure_;
  std::uint64_t given_up_ = 0;  // the first sequence that the failure ended
  // test() looks at the peers of each operation once a round, and a round takes 2 ms.
  std::chrono::steady_clock::time_point round_began_at_{};
  std::uint64_t round_of_checks_ = 0;
  // Why a message failed. For a while the side channel may tell more; then this is the failure.
  std::optional<Error> deferred_failure_;
  std::chrono::steady_clock::time_point deferred_at_{};

  std::uint32_t context_;
  recorder::Log* log_ = nullptr;  // of the flight recorder; null: not recorded
  Channel channel_;
};

}  // namespace rondo::transport
