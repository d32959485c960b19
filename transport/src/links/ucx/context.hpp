#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <ucp/api/ucp.h>

#include "links/plugin.hpp"

namespace rondo::transport::ucx {

/// Error numbers of the link's own; those below zero are UCX's, but for Transfer::truncated.
enum : std::int32_t { not_an_address = 1, other_version };

[[nodiscard]] const char* error_text(std::int32_t error);

/// UCX, ready for use. Several may be made and destroyed by several threads at once.
struct UcxContext {
  /// Throws OpenError.
  explicit UcxContext(const LinkOptions& options);
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;
  ~UcxContext();
  /// Leaves it to the end of the process: with a message that it has not ended, UCX would abort().
  void leave();

  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  /// Are broken connections reported? Not within shared memory alone.
  ucp_err_handling_mode_t error_mode = UCP_ERR_HANDLING_MODE_PEER;
  std::string route;  ///< "tcp over eth0"
};

/// "version 1.13.1", then "provider tcp over eth0, lo", a line each. May be called by any thread.
[[nodiscard]] std::string describe_ucx();

/// While one exists, what UCX would print on this thread is kept for error texts instead.
/// It is printed, too, if the user has set UCX_LOG_LEVEL.
class LogCapture {
 public:
  LogCapture() noexcept;
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  ~LogCapture();
};

/// The last message that UCX logged on this thread since the last call; may be empty.
[[nodiscard]] std::string last_log_message();

/// The link's record of a message in flight. It lives in the memory that UCX gives to each of its
/// requests, so posting allocates nothing.
struct UcxMessage {
  enum class State : std::uint8_t {
    posting,   ///< UCX has not returned from the call that posts it
    ended,     ///< ... and it has ended already
    listed,    ///< in its peer's list; a transfer waits for it
    abandoned  ///< its transfer was given up
  };
  UcxMessage* previous;
  UcxMessage* next;
  Transfer* transfer;
  std::uint64_t bytes;
  ucs_status_t status;
  State state;
  bool receives;
};

/// As UCX finds a request's memory when it makes it.
void reset(UcxMessage& message) noexcept;

/// The end of a transfer.
void complete(Transfer& transfer, ucs_status_t status, std::uint64_t bytes) noexcept;

/// Messages in flight with one peer, each once.
class UcxMessageList {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] UcxMessage* first() const noexcept { return first_; }
  void add(UcxMessage& message) noexcept;
  void remove(UcxMessage& message) noexcept;

 private:
  UcxMessage* first_ = nullptr;
};

/// One other rank: its address, the endpoint that leads there once there is one, and the messages
/// in flight. A peer that has failed stays failed.
class UcxPeer {
 public:
  UcxPeer() = default;
  UcxPeer(const UcxPeer&) = delete;
  UcxPeer& operator=(const UcxPeer&) = delete;
  ~UcxPeer() = default;

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
  [[nodiscard]] bool closing() const noexcept { return closing_ != nullptr; }
  /// Leaves the end of a close that has not ended to UCX. From 1.18 on UCX ends the process when a
  /// worker is destroyed with an endpoint whose close somebody else could still look at.
  void leave_close() noexcept;

  [[nodiscard]] UcxMessageList& messages() noexcept { return messages_; }

 private:
  static void report(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static void end_close(void* request, ucs_status_t status, void* peer);

  std::string address_;
  UcxMessageList messages_;
  ucp_ep_h endpoint_ = nullptr;
  bool* failed_ = nullptr;
  ucs_status_t status_ = UCS_OK;
  void* closing_ = nullptr;  ///< the request to close the endpoint
};

/// Packs the address that ranks tell each other: a mark, UCX's version, then the address of its
/// worker. UCX itself trusts what it gets.
[[nodiscard]] std::string pack_address(std::span<const std::byte> worker);

/// The worker's part of it, once it is known to be one that this UCX can use.
struct UnpackedAddress {
  std::string worker;
  std::int32_t error = 0;  ///< 0, or one of context.hpp
};
[[nodiscard]] UnpackedAddress unpack_address(std::span<const std::byte> address);

}  // namespace rondo::transport::ucx
