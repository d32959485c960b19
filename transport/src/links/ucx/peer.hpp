#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "links/ucx/message.hpp"

namespace rondo::transport::ucx {

/// One other rank: its address, the endpoint that leads there once there is one, and the messages
/// in flight. A peer that has failed stays failed.
class Peer {
 public:
  Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() = default;

  [[nodiscard]] bool known() const noexcept { return !address_.empty(); }
  void know(std::string address) { address_ = std::move(address); }

  /// Makes the endpoint unless there is one. `failed` is set as soon as UCX reports that the
  /// connection has broken. Returns status().
  ucs_status_t open(ucp_worker_h worker, ucp_err_handling_mode_t mode, bool& failed);
  [[nodiscard]] ucp_ep_h endpoint() const noexcept { return endpoint_; }

  /// UCS_OK while messages may be sent; else why not.
  [[nodiscard]] ucs_status_t status() const noexcept { return status_; }
  [[nodiscard]] bool must_close() const noexcept {
    return status_ != UCS_OK && endpoint_ != nullptr;
  }

  /// Starts to close the endpoint; UCX ends what was in flight over it. With force nothing is
  /// waited for that the peer would have to do.
  void close(unsigned flags, ucs_status_t why);
  [[nodiscard]] bool closing() const noexcept { return closing_; }

  [[nodiscard]] MessageList& messages() noexcept { return messages_; }

 private:
  static void report(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static void end_close(void* request, ucs_status_t status, void* peer);

  std::string address_;
  MessageList messages_;
  ucp_ep_h endpoint_ = nullptr;
  bool* failed_ = nullptr;
  ucs_status_t status_ = UCS_OK;
  bool closing_ = false;
};

}  // namespace rondo::transport::ucx
