#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "links/link_v1.h"

namespace rondo::transport {

/// One message in flight over a Link. It lives where its operation lives: the link refers to it,
/// and to the message's memory, until it is done, failed or cancelled.
struct Transfer : rondo_transfer {
  Transfer() noexcept : rondo_transfer{} {}
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() = default;

  [[nodiscard]] bool idle() const noexcept { return state == rondo_transfer_idle; }
  [[nodiscard]] bool pending() const noexcept { return state == rondo_transfer_pending; }
  [[nodiscard]] bool done() const noexcept { return state == rondo_transfer_done; }
  [[nodiscard]] bool failed() const noexcept { return state == rondo_transfer_failed; }
};

/// Tags have 48 bits; links need the others to tell senders apart.
inline constexpr unsigned link_tag_bits = 48;

/// The only interface to a wire: tagged messages between this rank and others.
///
/// - **Matching.** A message goes to the receive that names its sender and its tag; several with
///   the same sender and tag match in the order posted. A message may come before its receive
///   is posted, and none is lost for it.
/// - **Completion.** A posted transfer is pending until progress() (or the post itself) has made
///   it done or failed. A send is done when its memory may be written again; a receive, when the
///   message is there. A message longer than its receive's memory makes the receive fail.
/// - **Waiting.** Nothing here waits, but close() in the destructor.
/// - **Threads.** Belongs to the World's thread.
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  virtual void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                         Transfer& transfer) = 0;
  virtual void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                         Transfer& transfer) = 0;

  /// Moves what can be moved. True if anything did.
  virtual bool progress() = 0;

  /// After it the link does not refer to `transfer` or its memory any more. A send that the peer
  /// is already taking may take the connection with it.
  virtual void cancel(Transfer& transfer) = 0;

  /// Nobody here will ask any more for what `peer` sends with a tag that equals `tag` in the bits
  /// of `mask`: it is thrown away when it comes, and also if it has come, so that the peer need not
  /// take it back. A link whose sends can be taken back without harm has nothing to do.
  virtual void discard(int /*peer*/, std::uint64_t /*tag*/, std::uint64_t /*mask*/) {}

  /// A descriptor that becomes readable when progress() would move something; nothing when it
  /// would already, or when the link cannot tell.
  [[nodiscard]] virtual std::optional<int> arm() = 0;

  /// What others need to reach this rank.
  [[nodiscard]] virtual std::string address() const = 0;
  /// Makes `rank` known; the connection is made when it is first used.
  virtual void connect(int rank, const std::string& address) = 0;

  /// Memory that will be sent from and received into often.
  virtual void add_memory(std::span<std::byte> memory) = 0;

  /// What the link took, for people: "ucx: tcp over eth0".
  [[nodiscard]] virtual std::string route() const = 0;
  /// Why a transfer failed.
  [[nodiscard]] virtual std::string error_text(const Transfer& transfer) const = 0;
};

}  // namespace rondo::transport
