#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <rdma/fabric.h>

#include "links/fifo.hpp"
#include "links/link.hpp"
#include "links/ofi/endpoint.hpp"

namespace rondo::transport::ofi {

/// Registered memory, where the provider wants local buffers registered (FI_MR_LOCAL); elsewhere
/// nothing is done here.
///
/// What lies in memory that was added costs a look-up; any other buffer is registered for its one
/// message.
class OfiMemory {
 public:
  /// `endpoint` is lent, and outlives it.
  explicit OfiMemory(const Endpoint& endpoint) noexcept
      : endpoint_(&endpoint), needed_(endpoint.wants(FI_MR_LOCAL)) {}

  /// 0 or an error. The same `base` may be added again when it has grown.
  [[nodiscard]] int add(void* base, std::size_t bytes);
  void clear() noexcept { regions_.clear(); }

  /// A buffer's registration for one message: `once` is the caller's to drop().
  struct Lease {
    void* descriptor = nullptr;
    fid_mr* once = nullptr;
  };
  /// 0 or an error.
  [[nodiscard]] int lease(const void* data, std::size_t bytes, Lease& lease);
  static void drop(Lease& lease) noexcept;

 private:
  struct Region {
    std::size_t bytes = 0;
    std::vector<Owned<fid_mr>> registrations;  // messages may still use those before the last
  };

  int register_memory(const void* base, std::size_t bytes, fid_mr*& registration);

  const Endpoint* endpoint_;
  std::map<std::uintptr_t, Region> regions_;  // by first address
  std::uint64_t next_key_ = 1;
  bool needed_;
};

/// What the link knows of one message, from post to libfabric's last report of it.
struct OfiMessage {
  enum class Kind : std::uint8_t { send, recv };
  /// abandoned: its caller has been told the end, its memory is out of libfabric's reach, and only
  /// the context must not be used again before libfabric has reported it, if it ever does.
  enum class State : std::uint8_t { unused, queued, posted, abandoned };

  fi_context2 context{};         // first: libfabric gives its address back
  Transfer* transfer = nullptr;  ///< null once the caller has been told the end
  void* data = nullptr;          ///< a send's is only read
  std::size_t bytes = 0;
  std::uint64_t tag = 0;
  std::uint64_t ignored = 0;  ///< bits of the tag that a receive does not compare
  OfiMemory::Lease lease;
  OfiMessage* next = nullptr;
  std::int32_t peer = 0;
  Kind kind = Kind::send;
  State state = State::unused;
  bool cancelled = false;
  bool discards = false;  ///< a receive whose messages nobody wants; posted again and again
};
static_assert(std::is_standard_layout_v<OfiMessage>);

/// Messages are used again; memory grows to the most that were in flight at once.
class MessagePool {
 public:
  /// Throws std::bad_alloc.
  [[nodiscard]] OfiMessage& acquire();
  void release(OfiMessage& message) noexcept;
  [[nodiscard]] bool owns(const void* message) const noexcept;

  /// Calls `visit` with each message that is in use; it may release it.
  template <typename Visit>
  void for_each(Visit visit) {
    for (const auto& block : blocks_) {
      for (std::size_t i = 0; i < block_size; ++i) {
        if (block[i].state != OfiMessage::State::unused) visit(block[i]);
      }
    }
  }

 private:
  static constexpr std::size_t block_size = 64;

  std::vector<std::unique_ptr<OfiMessage[]>> blocks_;
  OfiMessage* free_ = nullptr;
};

/// Another rank, as this one reaches it. Peers have no connection of their own here: libfabric
/// makes one when it is needed.
struct OfiPeer {
  fi_addr_t address = FI_ADDR_NOTAVAIL;
  std::int32_t error = 0;    ///< of the connection; all that follows fails with it
  Fifo<OfiMessage> waiting;  ///< sends that libfabric cannot accept yet
  bool is_listed = false;    ///< among the link's peers with waiting sends
  bool is_closed = false;    ///< this rank has closed the connection

  /// Makes its address known. Returns 0 or an error.
  [[nodiscard]] int connect(const Endpoint& endpoint, std::string_view blob);
};

/// What a peer's connect() takes: the provider's name, a zero byte, the endpoint's name.
[[nodiscard]] std::string address_blob(const Endpoint& endpoint);

}  // namespace rondo::transport::ofi
