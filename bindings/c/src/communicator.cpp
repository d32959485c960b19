// rondo.h: communicators, collectives, messages, requests and plans.
//
// A function finds the C++ type of its elements, makes spans of its buffers, and posts. Whatever
// can fail by itself (a null handle, the memory of a rondo_request) comes before: what has been
// posted must not fail any more.

#include <rondo/rondo.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "handles.hpp"

namespace rondo::c {
namespace {

using transport::Communicator;
using transport::Neighbour;
using transport::Plan;
using transport::ReduceOp;
using transport::Request;
using transport::Strided;

ReduceOp op_of(rondo_op op) {
  if (op < RONDO_SUM || op > RONDO_BIT_XOR) {
    refuse("op " + std::to_string(op) + " is none of RONDO_SUM (0) to RONDO_BIT_XOR (7)");
  }
  return static_cast<ReduceOp>(op);
}

Communicator& communicator_of(rondo_communicator* handle) {
  return *at(handle, "communicator").communicator;
}

// Posts what body(communicator) posts, and waits for it if the caller wants no request.
template <typename Body>
rondo_status post(rondo_communicator* handle, rondo_request** request, Body&& body) noexcept {
  return guarded([&] {
    if (request == nullptr) {
      Request(body(communicator_of(handle))).wait();
      return;
    }
    *request = nullptr;
    auto made = std::make_unique<rondo_request>();
    made->request = body(communicator_of(handle));
    *request = made.release();
  });
}

template <typename Body>
rondo_status make_plan(rondo_communicator* handle, rondo_plan** plan, Body&& body) noexcept {
  return guarded([&] {
    at(plan, "plan") = nullptr;
    *plan = new rondo_plan{body(communicator_of(handle))};
  });
}

// Elements of each rank's part: what the caller says, or equal parts.
struct Parts {
  std::span<const std::size_t> counts;
  std::size_t sum = 0;
};

Parts parts_of(const Communicator& ranks, std::size_t mine, const std::size_t* counts) {
  const auto size = static_cast<std::size_t>(ranks.size());
  std::size_t sum = 0;
  const std::size_t wrong = std::numeric_limits<std::size_t>::max();
  for (std::size_t r = 0; r < size; ++r) {
    // A sum that overflows is refused by elements().
    const std::size_t part = counts == nullptr ? mine : counts[r];
    sum = part > wrong - sum ? wrong : sum + part;
  }
  if (counts == nullptr) return {.counts = {}, .sum = sum};
  const std::size_t own = counts[static_cast<std::size_t>(ranks.rank())];
  if (own != mine) {
    refuse("this rank passes " + std::to_string(mine) + " elements, but its entry in counts is " +
           std::to_string(own));
  }
  return {.counts = {counts, size}, .sum = sum};
}

// The caller's array has entries of the caller's size.
std::vector<Neighbour> neighbours_of(const rondo_neighbour* first, std::size_t count) {
  std::vector<Neighbour> made;
  if (count == 0) return made;
  const std::size_t stride = at(first, "neighbours").struct_size;
  const auto* bytes = reinterpret_cast<const std::byte*>(first);
  for (std::size_t i = 0; i < count; ++i) {
    const auto given = read_struct(*reinterpret_cast<const rondo_neighbour*>(bytes + i * stride),
                                   "rondo_neighbour");
    if (given.struct_size != stride) refuse("all neighbours must have the same struct_size");
    with_type(given.type, [&]<typename T>(T) {
      made.emplace_back(given.rank, Strided(elements<const T>(given.out, given.out_count, "out")),
                        Strided(elements<T>(given.in, given.in_count, "in")), given.out_tag,
                        given.in_tag);
    });
  }
  return made;
}

rondo_communicator* own(Communicator made) {
  auto handle = std::make_unique<rondo_communicator>();
  handle->own = std::make_unique<Communicator>(std::move(made));
  handle->communicator = handle->own.get();
  return handle.release();
}

// The requests of handles, side by side, until it ends; NULL gives an empty one. So does a handle
// that stands there again: they are given back from the last to the first, which has the operation.
class LentRequests {
 public:
  explicit LentRequests(std::span<rondo_request* const> handles) : handles_(handles) {
    for (rondo_request* const handle : handles) {
      requests_.push_back(handle == nullptr ? Request() : std::move(handle->request));
    }
  }
  LentRequests(const LentRequests&) = delete;
  LentRequests& operator=(const LentRequests&) = delete;
  ~LentRequests() {
    for (std::size_t i = handles_.size(); i-- > 0;) {
      if (handles_[i] != nullptr) handles_[i]->request = std::move(requests_[i]);
    }
  }
  [[nodiscard]] std::span<Request> get() noexcept { return requests_; }

 private:
  std::span<rondo_request* const> handles_;
  std::vector<Request> requests_;
};

}  // namespace
}  // namespace rondo::c

using rondo::c::at;
using rondo::c::elements;
using rondo::c::guarded;
using rondo::c::guarded_value;
using rondo::c::LentRequests;
using rondo::c::make_plan;
using rondo::c::op_of;
using rondo::c::own;
using rondo::c::parts_of;
using rondo::c::post;
using rondo::c::with_type;
using rondo::transport::Communicator;
using rondo::transport::Strided;

extern "C" {

int rondo_communicator_rank(const rondo_communicator* communicator) {
  return guarded_value(-1, [&] { return at(communicator, "communicator").communicator->rank(); });
}

int rondo_communicator_size(const rondo_communicator* communicator) {
  return guarded_value(-1, [&] { return at(communicator, "communicator").communicator->size(); });
}

rondo_status rondo_communicator_split(rondo_communicator* communicator, int color, int key,
                                      rondo_communicator** part) {
  return guarded([&] {
    at(part, "part") = nullptr;
    Communicator& whole = rondo::c::communicator_of(communicator);
    auto made = whole.split(color == RONDO_NO_COLOR ? std::nullopt : std::optional(color), key);
    if (made) *part = own(std::move(*made));
  });
}

rondo_status rondo_communicator_dup(rondo_communicator* communicator, rondo_communicator** copy) {
  return guarded([&] {
    at(copy, "copy") = nullptr;
    *copy = own(rondo::c::communicator_of(communicator).dup());
  });
}

void rondo_communicator_free(rondo_communicator* communicator) {
  if (communicator != nullptr && communicator->own != nullptr) delete communicator;
}

rondo_status rondo_allreduce(rondo_communicator* communicator, const void* in, void* out,
                             size_t count, rondo_type type, rondo_op op, rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    return with_type(type, [&]<typename T>(T) {
      return ranks.allreduce(elements<const T>(in, count, "in"), elements<T>(out, count, "out"),
                             op_of(op));
    });
  });
}

rondo_status rondo_allreduce_coalesced(rondo_communicator* communicator, void* const* arrays,
                                       const size_t* counts, size_t array_count, rondo_type type,
                                       rondo_op op, rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    return with_type(type, [&]<typename T>(T) {
      std::vector<std::span<T>> all;
      for (std::size_t i = 0; i < array_count; ++i) {
        all.push_back(
            elements<T>((&at(arrays, "arrays"))[i], (&at(counts, "counts"))[i], "arrays"));
      }
      return ranks.allreduce_coalesced(std::span<const std::span<T>>(all), op_of(op));
    });
  });
}

rondo_status rondo_reduce(rondo_communicator* communicator, const void* in, void* out, size_t count,
                          rondo_type type, rondo_op op, int root, rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    return with_type(type, [&]<typename T>(T) {
      // Only the root's is used, and only that must be there.
      const std::size_t results = ranks.rank() == root ? count : 0;
      return ranks.reduce(elements<const T>(in, count, "in"), elements<T>(out, results, "out"),
                          root, op_of(op));
    });
  });
}

rondo_status rondo_reduce_scatter(rondo_communicator* communicator, const void* in, void* out,
                                  size_t out_count, const size_t* counts, rondo_type type,
                                  rondo_op op, rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    const auto parts = parts_of(ranks, out_count, counts);
    return with_type(type, [&]<typename T>(T) {
      return ranks.reduce_scatter(elements<const T>(in, parts.sum, "in"),
                                  elements<T>(out, out_count, "out"), op_of(op), parts.counts);
    });
  });
}

rondo_status rondo_broadcast(rondo_communicator* communicator, void* data, size_t count,
                             rondo_type type, int root, rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    return with_type(type, [&]<typename T>(T) {
      return ranks.broadcast(elements<T>(data, count, "data"), root);
    });
  });
}

rondo_status rondo_allgather(rondo_communicator* communicator, const void* in, size_t in_count,
                             void* out, const size_t* counts, rondo_type type,
                             rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    const auto parts = parts_of(ranks, in_count, counts);
    return with_type(type, [&]<typename T>(T) {
      return ranks.allgather(elements<const T>(in, in_count, "in"),
                             elements<T>(out, parts.sum, "out"), parts.counts);
    });
  });
}

rondo_status rondo_gather(rondo_communicator* communicator, const void* in, size_t in_count,
                          void* out, const size_t* counts, rondo_type type, int root,
                          rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    const auto parts = parts_of(ranks, in_count, counts);
    return with_type(type, [&]<typename T>(T) {
      const std::size_t results = ranks.rank() == root ? parts.sum : 0;
      return ranks.gather(elements<const T>(in, in_count, "in"), elements<T>(out, results, "out"),
                          root, parts.counts);
    });
  });
}

rondo_status rondo_scatter(rondo_communicator* communicator, const void* in, void* out,
                           size_t out_count, const size_t* counts, rondo_type type, int root,
                           rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    const auto parts = parts_of(ranks, out_count, counts);
    return with_type(type, [&]<typename T>(T) {
      const std::size_t inputs = ranks.rank() == root ? parts.sum : 0;
      return ranks.scatter(elements<const T>(in, inputs, "in"), elements<T>(out, out_count, "out"),
                           root, parts.counts);
    });
  });
}

rondo_status rondo_alltoallv(rondo_communicator* communicator, const void* in,
                             const size_t* in_counts, void* out, const size_t* out_counts,
                             rondo_type type, rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    const auto own = static_cast<std::size_t>(ranks.rank());
    const auto to = parts_of(ranks, (&at(in_counts, "in_counts"))[own], in_counts);
    const auto from = parts_of(ranks, (&at(out_counts, "out_counts"))[own], out_counts);
    return with_type(type, [&]<typename T>(T) {
      return ranks.alltoallv(elements<const T>(in, to.sum, "in"), to.counts,
                             elements<T>(out, from.sum, "out"), from.counts);
    });
  });
}

rondo_status rondo_scan(rondo_communicator* communicator, const void* in, void* out, size_t count,
                        rondo_type type, rondo_op op, rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    return with_type(type, [&]<typename T>(T) {
      return ranks.scan(elements<const T>(in, count, "in"), elements<T>(out, count, "out"),
                        op_of(op));
    });
  });
}

rondo_status rondo_exscan(rondo_communicator* communicator, const void* in, void* out, size_t count,
                          rondo_type type, rondo_op op, rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    return with_type(type, [&]<typename T>(T) {
      return ranks.exscan(elements<const T>(in, count, "in"), elements<T>(out, count, "out"),
                          op_of(op));
    });
  });
}

rondo_status rondo_alltoall(rondo_communicator* communicator, const void* in, void* out,
                            size_t count, rondo_type type, rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    const std::size_t sum = parts_of(ranks, count, nullptr).sum;
    return with_type(type, [&]<typename T>(T) {
      return ranks.alltoall(elements<const T>(in, sum, "in"), elements<T>(out, sum, "out"));
    });
  });
}

rondo_status rondo_barrier(rondo_communicator* communicator, rondo_request** request) {
  return post(communicator, request, [](Communicator& ranks) { return ranks.barrier(); });
}

rondo_status rondo_send(rondo_communicator* communicator, const void* data, size_t count,
                        rondo_type type, int peer, int tag, rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    return with_type(type, [&]<typename T>(T) {
      return ranks.send(elements<const T>(data, count, "data"), peer, tag);
    });
  });
}

rondo_status rondo_recv(rondo_communicator* communicator, void* data, size_t count, rondo_type type,
                        int peer, int tag, rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    return with_type(type, [&]<typename T>(T) {
      return ranks.recv(elements<T>(data, count, "data"), peer, tag);
    });
  });
}

rondo_status rondo_sendrecv(rondo_communicator* communicator, const rondo_neighbour* neighbours,
                            size_t neighbour_count, rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    return ranks.sendrecv(rondo::c::neighbours_of(neighbours, neighbour_count));
  });
}

rondo_status rondo_put_signal(rondo_communicator* communicator, int peer, uint64_t value, int tag,
                              rondo_request** request) {
  return post(communicator, request,
              [&](Communicator& ranks) { return ranks.put_signal(peer, value, tag); });
}

rondo_status rondo_wait_signal(rondo_communicator* communicator, int peer, uint64_t* value, int tag,
                               rondo_request** request) {
  return post(communicator, request, [&](Communicator& ranks) {
    return ranks.wait_signal(peer, at(value, "value"), tag);
  });
}

rondo_status rondo_share(rondo_communicator* communicator, void* mine, size_t bytes,
                         void** pointers) {
  return guarded([&] {
    auto& ranks = rondo::c::communicator_of(communicator);
    void** next = &at(pointers, "pointers");
    for (const auto& memory : ranks.share(elements<std::uint8_t>(mine, bytes, "mine"))) {
      *next++ = memory.data();
    }
  });
}

rondo_status rondo_request_test(rondo_request* request, int* complete) {
  return guarded([&] {
    at(complete, "complete") = 0;
    *complete = at(request, "request").request.test() ? 1 : 0;
  });
}

int rondo_request_finished(const rondo_request* request) {
  return request == nullptr || request->request.finished() ? 1 : 0;
}

rondo_status rondo_request_wait(rondo_request* request) {
  return guarded([&] { at(request, "request").request.wait(); });
}

rondo_status rondo_request_wait_for(rondo_request* request, int64_t limit_ns, int* complete) {
  return guarded([&] {
    at(complete, "complete") = 0;
    if (limit_ns < 0) rondo::c::refuse("limit_ns is negative");
    const std::chrono::nanoseconds limit(limit_ns);
    *complete = at(request, "request").request.wait_for(limit) ? 1 : 0;
  });
}

rondo_status rondo_request_wait_all(rondo_request* const* requests, size_t count) {
  return guarded([&] {
    if (count > 0) static_cast<void>(at(requests, "requests"));
    for (size_t i = 0; i < count; ++i) {
      if (requests[i] != nullptr) requests[i]->request.wait();
    }
  });
}

rondo_status rondo_request_wait_all_for(rondo_request* const* requests, size_t count,
                                        int64_t limit_ns, int* complete) {
  return guarded([&] {
    at(complete, "complete") = 0;
    if (count > 0) static_cast<void>(at(requests, "requests"));
    if (limit_ns < 0) rondo::c::refuse("limit_ns is negative");
    LentRequests all({requests, count});
    const std::chrono::nanoseconds limit(limit_ns);
    *complete = rondo::transport::wait_all_for(all.get(), limit) ? 1 : 0;
  });
}

rondo_status rondo_request_wait_any(rondo_request* const* requests, size_t count, int64_t limit_ns,
                                    size_t* index) {
  return guarded([&] {
    at(index, "index") = count;
    if (count > 0) static_cast<void>(at(requests, "requests"));
    LentRequests all({requests, count});
    const auto found = limit_ns < 0 ? rondo::transport::wait_any(all.get())
                                    : rondo::transport::wait_any_for(
                                          all.get(), std::chrono::nanoseconds(limit_ns));
    *index = found.value_or(count);
  });
}

rondo_status rondo_request_cancel(rondo_request* request) {
  return guarded([&] { at(request, "request").request.cancel(); });
}

rondo_status rondo_request_status(const rondo_request* request) {
  rondo_status status = RONDO_OK;
  const rondo_status own =
      guarded([&] { status = at(request, "request").request.status().value(); });
  return own == RONDO_OK ? status : own;
}

void rondo_request_free(rondo_request* request) { delete request; }

rondo_status rondo_plan_allreduce(rondo_communicator* communicator, void* data, size_t count,
                                  rondo_type type, rondo_op op, rondo_plan** plan) {
  return make_plan(communicator, plan, [&](Communicator& ranks) {
    return with_type(type, [&]<typename T>(T) {
      return ranks.plan_allreduce(elements<T>(data, count, "data"), op_of(op));
    });
  });
}

rondo_status rondo_plan_broadcast(rondo_communicator* communicator, void* data, size_t count,
                                  rondo_type type, int root, rondo_plan** plan) {
  return make_plan(communicator, plan, [&](Communicator& ranks) {
    return with_type(type, [&]<typename T>(T) {
      return ranks.plan_broadcast(elements<T>(data, count, "data"), root);
    });
  });
}

rondo_status rondo_plan_allgather(rondo_communicator* communicator, const void* in, size_t in_count,
                                  void* out, const size_t* counts, rondo_type type,
                                  rondo_plan** plan) {
  return make_plan(communicator, plan, [&](Communicator& ranks) {
    const auto parts = parts_of(ranks, in_count, counts);
    return with_type(type, [&]<typename T>(T) {
      return ranks.plan_allgather(Strided(elements<const T>(in, in_count, "in")),
                                  Strided(elements<T>(out, parts.sum, "out")), parts.counts);
    });
  });
}

rondo_status rondo_plan_reduce_scatter(rondo_communicator* communicator, const void* in, void* out,
                                       size_t out_count, const size_t* counts, rondo_type type,
                                       rondo_op op, rondo_plan** plan) {
  return make_plan(communicator, plan, [&](Communicator& ranks) {
    const auto parts = parts_of(ranks, out_count, counts);
    return with_type(type, [&]<typename T>(T) {
      return ranks.plan_reduce_scatter(Strided(elements<const T>(in, parts.sum, "in")),
                                       Strided(elements<T>(out, out_count, "out")), op_of(op),
                                       parts.counts);
    });
  });
}

rondo_status rondo_plan_sendrecv(rondo_communicator* communicator,
                                 const rondo_neighbour* neighbours, size_t neighbour_count,
                                 rondo_plan** plan) {
  return make_plan(communicator, plan, [&](Communicator& ranks) {
    return ranks.plan_sendrecv(rondo::c::neighbours_of(neighbours, neighbour_count));
  });
}

rondo_status rondo_plan_start(rondo_plan* plan, rondo_request** request) {
  return guarded([&] {
    auto& started = at(plan, "plan").plan;
    if (request == nullptr) {
      started.start().wait();
      return;
    }
    *request = nullptr;
    auto made = std::make_unique<rondo_request>();
    made->request = started.start();
    *request = made.release();
  });
}

void rondo_plan_free(rondo_plan* plan) { delete plan; }

}  // extern "C"
