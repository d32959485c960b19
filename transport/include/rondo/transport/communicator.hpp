#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <rondo/transport/block.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/export.hpp>
#include <rondo/transport/request.hpp>

namespace rondo::transport {

class CommunicatorCore;

/// A fixed group of ranks that exchange data without blocking the caller.
///
/// Every operation is posted and returns a Request at once. Any number may be outstanding.
///
/// - **Matching.** All ranks post the same collectives in the same order. A mismatch is an error
///   on every rank, and its text shows both sides.
/// - **Order.** The collectives of one communicator run in the order posted; those of different
///   communicators are independent, and ranks may wait for them in any order.
/// - **Buffers** are lent until their Request completes. Meanwhile an input may be read, and
///   nothing else. Buffers inside the World's SharedArena are reduced in place, in one pass over
///   shared memory; ordinary memory works too, by way of staging buffers.
/// - **Progress** is made inside World::progress(), Request::test() and Request::wait(), for all
///   communicators of the World.
/// - **Threads.** A World and its Communicators belong to one thread at a time; only
///   World::abort() may be called from others. With Threads::multiple each thread may use a
///   Communicator of its own at any time, and several threads the messages of one.
/// - **Errors.** A wrong argument throws std::invalid_argument here. A failure in flight is
///   reported by the Request, and by every later one.
/// - **Lifetime.** A Communicator may outlive its World object; the ranks stay connected until
///   the last of both is gone. Destroying one is local and does not wait for peers.
class RONDO_TRANSPORT_API Communicator {
 public:
  Communicator(Communicator&&) noexcept = default;
  Communicator& operator=(Communicator&&) noexcept = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  /// This process within the group: 0 <= rank() < size().
  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// The World's ranks of all members, in the order of their ranks here. Errors name these.
  [[nodiscard]] std::vector<int> members() const;

  /// The ranks that pass the same `color`, ordered by `key`, then by rank. Collective over this
  /// communicator; waits for all of its ranks. `color` must not be negative. Only one thread of a
  /// rank at a time may make communicators, whatever WorldOptions::threads says: make them before
  /// the threads begin. Throws std::logic_error when another is in a split() or dup(), and
  /// Error(out_of_memory) when a rank has too many alive: some 15,000 on one host, half as many on
  /// several, and 1,800 where each has reduced ordinary memory.
  [[nodiscard]] Communicator split(int color, int key = 0);
  /// The same for ranks that may stay out: without a color a rank takes part in the call and is in
  /// no group (MPI_UNDEFINED). Ranks may mix the two forms.
  [[nodiscard]] std::optional<Communicator> split(std::optional<int> color, int key = 0);
  /// The same ranks in the same order, and an order of operations of its own. Collective, as
  /// split().
  [[nodiscard]] Communicator dup();

  /// Replaces `data` by its element-wise reduction over all ranks. All ranks pass the same
  /// number of elements and receive the same bits. `data` must be dense (stride == row).
  ///
  /// Moves 2 (P-1)/P of the bytes across ranks when every rank's `data` lies in an arena.
  template <Element T>
  [[nodiscard]] Request allreduce(std::span<T> data, ReduceOp op = ReduceOp::sum) {
    return allreduce(as_const_block(Strided<const T>(data)), as_block(Strided<T>(data)), op);
  }

  /// As above, from `in` into `out`, which are as long, and apart or the same.
  template <Element T>
  [[nodiscard]] Request allreduce(std::span<const std::type_identity_t<T>> in, std::span<T> out,
                                  ReduceOp op = ReduceOp::sum) {
    return allreduce(as_const_block(Strided<const T>(in)), as_block(Strided<T>(out)), op);
  }

  /// Several arrays as one allreduce: many short ones cost little more than one. All ranks pass
  /// arrays of the same lengths in the same order. They are copied before the operation begins
  /// and, unless it fails, before it is complete; `arrays` itself may go after the call. Long
  /// arrays are reduced faster one by one, without the copies.
  template <Element T>
  [[nodiscard]] Request allreduce_coalesced(std::span<const std::span<T>> arrays,
                                            ReduceOp op = ReduceOp::sum) {
    std::vector<Block> blocks;
    for (const std::span<T> array : arrays) blocks.push_back(as_block(Strided<T>(array)));
    return allreduce_coalesced(std::span<const Block>(blocks), op);
  }

  /// The element-wise reduction of all ranks' `in` into `out` of `root`, which may be its `in`.
  /// Elsewhere `out` is not touched and may be empty.
  template <Element T>
  [[nodiscard]] Request reduce(std::span<const std::type_identity_t<T>> in, std::span<T> out,
                               int root, ReduceOp op = ReduceOp::sum) {
    return reduce(as_const_block(Strided<const T>(in)), as_block(Strided<T>(out)), root, op);
  }

  /// Reduces all ranks' `in` element by element and cuts the result into one share per rank, in
  /// rank order: `out` receives this rank's. Shares are equal, or rank r's has counts[r] elements;
  /// every rank passes the same `counts`, some of which may be 0. `out` may be this rank's own
  /// share of `in`; then nothing is copied.
  ///
  /// Loads P-1 shares from peers.
  template <Element T>
  [[nodiscard]] Request reduce_scatter(std::span<const std::type_identity_t<T>> in,
                                       std::span<T> out, ReduceOp op = ReduceOp::sum,
                                       std::span<const std::size_t> counts = {}) {
    return reduce_scatter(as_const_block(Strided<const T>(in)), as_block(Strided<T>(out)), op,
                          counts);
  }

  /// Row by row: row i of `out` is this rank's share of the reduction of every rank's row i, cut
  /// by `counts`; without counts all shares are equal. The counterpart of the strided allgather.
  template <Element T>
  [[nodiscard]] Request reduce_scatter(Strided<const T> in, Strided<T> out,
                                       ReduceOp op = ReduceOp::sum,
                                       std::span<const std::size_t> counts = {}) {
    return reduce_scatter(as_const_block(in), as_block(out), op, counts);
  }

  /// Replaces `data` on every rank by that of `root`.
  template <Element T>
  [[nodiscard]] Request broadcast(std::span<T> data, int root) {
    return broadcast(as_block(Strided<T>(data)), root);
  }

  /// Concatenates `in` of all ranks, in rank order, into `out`. All ranks pass as many elements.
  /// `in` may be this rank's own part of `out`; then it is not copied.
  template <Element T>
  [[nodiscard]] Request allgather(std::span<const std::type_identity_t<T>> in, std::span<T> out) {
    return allgather(as_const_block(Strided<const T>(in)), as_block(Strided<T>(out)), {});
  }

  /// As above, where rank r passes counts[r] elements; every rank passes the same `counts`.
  template <Element T>
  [[nodiscard]] Request allgather(std::span<const std::type_identity_t<T>> in, std::span<T> out,
                                  std::span<const std::size_t> counts) {
    return allgather(as_const_block(Strided<const T>(in)), as_block(Strided<T>(out)), counts);
  }

  /// Row by row: row i of `out` is row i of every rank's `in`, in rank order. `counts[r]` is the
  /// length of rank r's rows; without counts all are equal. So the channel slices of an NHWC
  /// tensor are put together.
  template <Element T>
  [[nodiscard]] Request allgather(Strided<const T> in, Strided<T> out,
                                  std::span<const std::size_t> counts = {}) {
    return allgather(as_const_block(in), as_block(out), counts);
  }

  /// Cuts `in` into one part per rank, all equal: part r goes to rank r. `out` receives a part of
  /// every rank, in rank order. It is as long as `in` and must not overlap it.
  template <Element T>
  [[nodiscard]] Request alltoall(std::span<const std::type_identity_t<T>> in, std::span<T> out) {
    return alltoall(as_const_block(Strided<const T>(in)), as_block(Strided<T>(out)));
  }

  /// The same with parts of any length: in_counts[r] elements of `in` go to rank r, and
  /// out_counts[r] elements come from it, in rank order. Both have one entry for each rank.
  /// in_counts[r] on this rank must equal out_counts of this rank on r. If they differ, rank r
  /// fails with Errc::mismatch; if exactly one of them is 0, the rank that waits fails at its
  /// deadline. Nobody waits where a short part is sent that rank r does not expect: an empty part
  /// is no message, so this may stay unnoticed, and a later operation may take the part for its
  /// own.
  template <Element T>
  [[nodiscard]] Request alltoallv(std::span<const std::type_identity_t<T>> in,
                                  std::span<const std::size_t> in_counts, std::span<T> out,
                                  std::span<const std::size_t> out_counts) {
    return alltoallv(as_const_block(Strided<const T>(in)), in_counts, as_block(Strided<T>(out)),
                     out_counts);
  }

  /// Concatenates `in` of all ranks, in rank order, into `out` of `root`. Elsewhere `out` is not
  /// touched and may be empty. All pass as many elements, or rank r counts[r]; every rank passes
  /// the same `counts`. The root's `in` may be its own part of `out`.
  template <Element T>
  [[nodiscard]] Request gather(std::span<const std::type_identity_t<T>> in, std::span<T> out,
                               int root, std::span<const std::size_t> counts = {}) {
    return gather(as_const_block(Strided<const T>(in)), as_block(Strided<T>(out)), root, counts);
  }

  /// Cuts `in` of `root` into one part per rank: `out` receives this rank's. Elsewhere `in` is not
  /// read and may be empty. Counts as in gather(). The root's `out` may be its own part of `in`.
  template <Element T>
  [[nodiscard]] Request scatter(std::span<const std::type_identity_t<T>> in, std::span<T> out,
                                int root, std::span<const std::size_t> counts = {}) {
    return scatter(as_const_block(Strided<const T>(in)), as_block(Strided<T>(out)), root, counts);
  }

  /// The running reduction: `out` is that of `in` of the ranks 0 to this one, in rank order. All
  /// ranks pass as many elements; `out` is as long as `in`, and apart from it or the same. Every op
  /// but avg. Sends at most n bytes in each of log2 P rounds, so it is meant for short arrays.
  template <Element T>
  [[nodiscard]] Request scan(std::span<const std::type_identity_t<T>> in, std::span<T> out,
                             ReduceOp op = ReduceOp::sum) {
    return scan(as_const_block(Strided<const T>(in)), as_block(Strided<T>(out)), op);
  }

  /// The same without this rank's own `in`: of the ranks before it. Rank 0's `out` is not written.
  template <Element T>
  [[nodiscard]] Request exscan(std::span<const std::type_identity_t<T>> in, std::span<T> out,
                               ReduceOp op = ReduceOp::sum) {
    return exscan(as_const_block(Strided<const T>(in)), as_block(Strided<T>(out)), op);
  }

  /// Completes when every rank has posted it.
  [[nodiscard]] Request barrier();

  // Plans: the same operations, with arguments that are given once and started many times. Making
  // one is local; starting one is as posting the operation. `counts` and `neighbours` are read when
  // the plan is made, and may be freed then.

  template <Element T>
  [[nodiscard]] Plan plan_allreduce(std::span<T> data, ReduceOp op = ReduceOp::sum) {
    return plan_allreduce(as_const_block(Strided<const T>(data)), as_block(Strided<T>(data)), op);
  }
  template <Element T>
  [[nodiscard]] Plan plan_broadcast(std::span<T> data, int root) {
    return plan_broadcast(as_block(Strided<T>(data)), root);
  }
  template <Element T>
  [[nodiscard]] Plan plan_allgather(Strided<const T> in, Strided<T> out,
                                    std::span<const std::size_t> counts = {}) {
    return plan_allgather(as_const_block(in), as_block(out), counts);
  }
  template <Element T>
  [[nodiscard]] Plan plan_reduce_scatter(Strided<const T> in, Strided<T> out,
                                         ReduceOp op = ReduceOp::sum,
                                         std::span<const std::size_t> counts = {}) {
    return plan_reduce_scatter(as_const_block(in), as_block(out), op, counts);
  }
  [[nodiscard]] Plan plan_sendrecv(std::span<const Neighbour> neighbours);

  // Point-to-point operations run outside the order of the collectives. Messages of one sender,
  // receiver and tag match in the order posted. Tags are 0 <= tag < max_tag.
  static constexpr int max_tag = 1 << 30;

  /// Sends `data` to `peer`; complete when `data` may be written again, which may be before the
  /// peer has received it.
  template <Element T>
  [[nodiscard]] Request send(std::span<const T> data, int peer, int tag = 0) {
    return send(as_const_block(Strided<const T>(data)), peer, tag);
  }
  template <Element T>
  [[nodiscard]] Request send(std::span<T> data, int peer, int tag = 0) {
    return send(std::span<const T>(data), peer, tag);
  }

  /// Receives from `peer` what it sends with this tag: at most data.size() elements; the rest of
  /// `data` keeps its values. A longer message is an error.
  template <Element T>
  [[nodiscard]] Request recv(std::span<T> data, int peer, int tag = 0) {
    return recv(as_block(Strided<T>(data)), peer, tag);
  }

  /// Sends a block to each neighbour and receives one from it, all at once: halo exchange.
  /// `neighbours` itself may go after the call. Strided blocks are copied when the call is made
  /// and when the operation completes.
  [[nodiscard]] Request sendrecv(std::span<const Neighbour> neighbours);

  /// Sends a number to `peer`: a token. Once its wait_signal() has completed, the peer sees what
  /// this rank stored before into memory that both can reach.
  [[nodiscard]] Request put_signal(int peer, std::uint64_t value, int tag = 0);

  /// Completes when `peer` has put a signal, and stores its number into `value`, which is lent.
  /// Signals of one peer and tag arrive in order and do not overwrite each other.
  [[nodiscard]] Request wait_signal(int peer, std::uint64_t& value, int tag = 0);

  /// The same array of every rank: entry r is that of rank r where this rank can reach it, else
  /// empty. Collective; `mine` lies in this rank's arena. The caller decides who writes when;
  /// signals and barriers order the writes.
  template <Element T>
  [[nodiscard]] std::vector<std::span<T>> share(std::span<T> mine) {
    std::vector<std::span<T>> all;
    for (const Block& block : share(as_block(Strided<T>(mine)))) {
      all.emplace_back(reinterpret_cast<T*>(block.data), block.bytes() / sizeof(T));
    }
    return all;
  }

 private:
  friend class World;
  explicit Communicator(std::shared_ptr<CommunicatorCore> core) noexcept;
  Request allreduce(ConstBlock in, Block out, ReduceOp op);
  Request allreduce_coalesced(std::span<const Block> arrays, ReduceOp op);
  Request reduce(ConstBlock in, Block out, int root, ReduceOp op);
  Request reduce_scatter(ConstBlock in, Block out, ReduceOp op,
                         std::span<const std::size_t> counts);
  Request broadcast(Block data, int root);
  Request allgather(ConstBlock in, Block out, std::span<const std::size_t> counts);
  Request alltoall(ConstBlock in, Block out);
  Request alltoallv(ConstBlock in, std::span<const std::size_t> in_counts, Block out,
                    std::span<const std::size_t> out_counts);
  Request gather(ConstBlock in, Block out, int root, std::span<const std::size_t> counts);
  Request scatter(ConstBlock in, Block out, int root, std::span<const std::size_t> counts);
  Request scan(ConstBlock in, Block out, ReduceOp op);
  Request exscan(ConstBlock in, Block out, ReduceOp op);
  Plan plan_allreduce(ConstBlock in, Block out, ReduceOp op);
  Plan plan_reduce_scatter(ConstBlock in, Block out, ReduceOp op,
                           std::span<const std::size_t> counts);
  Plan plan_broadcast(Block data, int root);
  Plan plan_allgather(ConstBlock in, Block out, std::span<const std::size_t> counts);
  Request send(ConstBlock data, int peer, int tag);
  Request recv(Block data, int peer, int tag);
  std::vector<Block> share(Block mine);

  std::shared_ptr<CommunicatorCore> core_;
};

}  // namespace rondo::transport
