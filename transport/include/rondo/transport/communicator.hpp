#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include <rondo/transport/block.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/export.hpp>
#include <rondo/transport/reduce_op.hpp>
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
///   World::abort() may be called from others.
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

  /// The ranks that pass the same `color`, ordered by `key`, then by rank. Collective over this
  /// communicator; waits for all of its ranks. `color` must not be negative.
  [[nodiscard]] Communicator split(int color, int key = 0);

  /// Replaces `data` by its element-wise reduction over all ranks. All ranks pass the same
  /// number of elements and receive the same bits. `data` must be dense (stride == row).
  ///
  /// Moves 2 (P-1)/P of the bytes across ranks when every rank's `data` lies in an arena.
  template <Element T>
  [[nodiscard]] Request allreduce(std::span<T> data, ReduceOp op = ReduceOp::sum) {
    return allreduce(as_block(Strided<T>(data)), op);
  }

  /// Replaces `data` on every rank by that of `root`.
  template <Element T>
  [[nodiscard]] Request broadcast(std::span<T> data, int root) {
    return broadcast(as_block(Strided<T>(data)), root);
  }

  /// Concatenates `in` of all ranks, in rank order, into `out`. All ranks pass as many elements.
  template <Element T>
  [[nodiscard]] Request allgather(std::span<const std::type_identity_t<T>> in, std::span<T> out) {
    return allgather(as_const_block(Strided<const T>(in)), as_block(Strided<T>(out)), {});
  }

  /// As above, where rank r gives counts[r] elements; every rank passes the same `counts`.
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

  /// Completes when every rank has posted it.
  [[nodiscard]] Request barrier();

 private:
  friend class World;
  friend class WorldCore;
  explicit Communicator(std::shared_ptr<CommunicatorCore> core) noexcept;
  Request allreduce(Block data, ReduceOp op);
  Request broadcast(Block data, int root);
  Request allgather(ConstBlock in, Block out, std::span<const std::size_t> counts);

  std::shared_ptr<CommunicatorCore> core_;
};

}  // namespace rondo::transport
