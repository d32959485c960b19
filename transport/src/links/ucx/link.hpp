#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "links/link_v1.h"
#include "links/ucx/open.hpp"
#include "links/ucx/peer.hpp"
#include "links/ucx/registrations.hpp"

namespace rondo::transport::ucx {

/// Tagged messages over UCX: what the plug-in's table calls. UCX's tag is the sender's rank in the
/// upper 16 bits, then the link's 48.
///
/// A peer's connection is made by the first message posted to or from it, so that every
/// connection that matters reports when it breaks. Then what was in flight with that peer fails,
/// but for receives of messages that have already arrived.
class UcxLink {
 public:
  UcxLink(const Opened& opened, const rondo_link_options& options);
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;
  ~UcxLink() = default;

  void close(std::chrono::milliseconds timeout);

  [[nodiscard]] const std::string& route() const noexcept { return opened_.route; }
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  /// 0 or an error number.
  [[nodiscard]] int connect(int rank, std::span<const std::byte> address);

  void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                 rondo_transfer& transfer);
  void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data, rondo_transfer& transfer);
  bool progress();
  void cancel(rondo_transfer& transfer);
  [[nodiscard]] std::optional<int> arm();

  [[nodiscard]] ucs_status_t add_memory(std::span<std::byte> memory) {
    return registrations_.add(opened_.context, memory);
  }
  void remove_memory(const void* base) { registrations_.remove(opened_.context, base); }

 private:
  static void sent(void* request, ucs_status_t status, void* link);
  static void received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                       void* link);
  static void end(void* request, ucs_status_t status, std::uint64_t bytes);

  ucs_status_t open(Peer& peer);
  void start(ucs_status_ptr_t request, Peer& peer, rondo_transfer& transfer, std::uint64_t bytes,
             bool receives);
  void fail(Peer& peer, ucs_status_t why);
  void cancel_receives(Peer& peer);
  bool bury_failed();
  void forget(Peer& peer);
  void forget(Message& message, ucs_status_t why);
  bool flush(std::chrono::steady_clock::time_point deadline);
  void close_peers(std::chrono::steady_clock::time_point deadline);
  template <typename Condition>
  bool progress_until(Condition&& condition, std::chrono::steady_clock::time_point deadline);

  Opened opened_;
  std::string address_;
  std::vector<Peer> peers_;
  Registrations registrations_;
  std::uint64_t own_tag_;
  int descriptor_ = -1;
  bool has_sent_ = false;
  bool flushed_ = false;
  bool failed_ = false;  ///< some peer's connection has broken since the last progress()
  bool broken_ = false;  ///< a message could be given up only by never calling UCX again
};

}  // namespace rondo::transport::ucx
