// The link over UCX, and what its plug-in exports; links/engine.hpp has what it does with messages
// and peers.
//
// UCX's tag is the sender's rank in the upper 16 bits, then the link's 48. UCX reports broken
// connections only to its endpoints, so the first message posted to or from a peer makes its
// endpoint. When a connection breaks, all messages in flight with its peer fail, but for receives
// of messages that have already arrived.

#include <ucp/api/ucp.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "links/engine.hpp"
#include "links/plugin.hpp"
#include "links/ucx/context.hpp"

namespace rondo::transport::ucx {
namespace {

// How long UCX may take to let go of what it was told to give up; it needs no peer for that.
constexpr std::chrono::milliseconds release_time{250};

// The address that other ranks need to reach this worker.
std::string own_address(ucp_worker_h worker) {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  if (ucp_worker_get_address(worker, &address, &bytes) != UCS_OK) {
    throw OpenError("no address: " + last_log_message());
  }
  std::string packed = pack_address({reinterpret_cast<const std::byte*>(address), bytes});
  ucp_worker_release_address(worker, address);
  return packed;
}

/// The error number of a status.
std::int32_t error_of(ucs_status_t status) noexcept {
  return status == UCS_ERR_MESSAGE_TRUNCATED ? Transfer::truncated : std::int32_t{status};
}

struct Unmap {
  ucp_context_h context = nullptr;
  void operator()(ucp_mem_h memory) const noexcept { ucp_mem_unmap(context, memory); }
};

class UcxLink;

struct UcxTraits {
  struct Own {
    UcxLink* link = nullptr;
    void* request = nullptr;  ///< UCX's, once the call that posts has returned
    bool is_ended = false;    ///< within that call, with these
    std::int32_t error = 0;
    std::size_t bytes = 0;
  };
  struct Route {
    std::string address;
    ucp_ep_h endpoint = nullptr;
    void* closing = nullptr;     ///< the request to close the endpoint
    bool* has_broken = nullptr;  ///< the link's
  };
  using Registration = std::unique_ptr<ucp_mem, Unmap>;
  using Entry = LogCapture;
  static constexpr std::int32_t try_again = UCS_INPROGRESS;
  static constexpr bool receives_late = true;
};

class UcxLink final : public LinkEngine<UcxLink, UcxTraits> {
 public:
  explicit UcxLink(const LinkOptions& options)
      : LinkEngine(options), ucx_(options), address_(own_address(ucx_.worker)) {
    if (ucp_worker_get_efd(ucx_.worker, &descriptor_) != UCS_OK) {
      throw OpenError("no descriptor to wait on: " + last_log_message());
    }
  }
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;
  ~UcxLink() override;

  [[nodiscard]] std::string address() const override { return address_; }
  [[nodiscard]] std::string route() const override { return "ucx: " + ucx_.route; }

 private:
  friend LinkEngine;

  std::int32_t connect_to(Peer& peer, const std::string& address);
  std::int32_t open(Peer& peer) noexcept;
  Registration map(const void* base, std::size_t bytes, std::int32_t& error) const noexcept;
  std::int32_t submit(Message& message) noexcept;
  void cancel_posted(Message& message) const noexcept {
    if (message.kind == Kind::recv) ucp_request_cancel(ucx_.worker, message.own.request);
  }
  static void drop(Message& /*message*/) noexcept {}
  bool poll() noexcept;
  bool close(std::int32_t rank) noexcept;
  // UCX is not called any more, so that it cannot touch the memory.
  static void quit() noexcept {}
  [[nodiscard]] std::optional<int> descriptor() const noexcept {
    if (has_broken_ || ucp_worker_arm(ucx_.worker) != UCS_OK) return std::nullopt;
    return descriptor_;
  }
  [[nodiscard]] static std::string library_text(std::int32_t error) {
    return ucx::error_text(error);
  }

  // UCX calls these: when a connection breaks, when one is closed, and when a message has ended.
  static void report(void* peer, ucp_ep_h endpoint, ucs_status_t status) noexcept;
  static void end_close(void* request, ucs_status_t status, void* peer) noexcept;
  static void sent(void* request, ucs_status_t status, void* message) noexcept;
  static void received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                       void* message) noexcept;

  ucs_status_ptr_t hand_over(Message& message) noexcept;
  static void end(Message& message, void* request, ucs_status_t status, std::size_t bytes) noexcept;
  static void start_closing(Peer& peer, unsigned flags) noexcept;
  bool flush(Clock::time_point deadline) noexcept;
  void close_all(Clock::time_point deadline) noexcept;
  template <typename Condition>
  bool progress_until(Condition&& condition, Clock::time_point deadline) noexcept;

  UcxContext ucx_;
  std::string address_;
  int descriptor_ = -1;
  bool has_sent_ = false;
  bool has_flushed_ = false;
  bool has_broken_ = false;  ///< has some peer's connection, since the last poll()?
};

UcxLink::~UcxLink() {
  const LogCapture capture;
  const bool is_left = error_ != 0;
  if (!is_left) close_all(Clock::now() + link_close_timeout);
  fail_everything(error_link_lost);
  memory_.clear();  // no device reaches it after that
  if (is_left) ucx_.leave();
}

std::int32_t UcxLink::connect_to(Peer& peer, const std::string& address) {
  UnpackedAddress unpacked = unpack_address(std::as_bytes(std::span(address)));
  if (unpacked.error != 0) return unpacked.error;
  if (!peer.route.address.empty()) return UCS_ERR_ALREADY_EXISTS;
  peer.route.address = std::move(unpacked.worker);
  // An endpoint within shared memory maps what the peer has, now, and may not have later.
  return ucx_.error_mode == UCP_ERR_HANDLING_MODE_NONE ? open(peer) : 0;
}

std::int32_t UcxLink::open(Peer& peer) noexcept {
  UcxTraits::Route& route = peer.route;
  if (route.endpoint != nullptr) return 0;
  if (route.address.empty()) return error_unknown_peer;
  route.has_broken = &has_broken_;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(route.address.data());
  params.err_mode = ucx_.error_mode;
  params.err_handler = {.cb = &UcxLink::report, .arg = &peer};
  peer.error = ucp_ep_create(ucx_.worker, &params, &route.endpoint);
  if (peer.error != 0) route.endpoint = nullptr;
  return peer.error;
}

// The connection is closed later, by poll(): UCX is in the middle of something.
void UcxLink::report(void* peer, ucp_ep_h /*endpoint*/, ucs_status_t status) noexcept {
  Peer& self = *static_cast<Peer*>(peer);
  if (self.error == 0) self.error = status;
  *self.route.has_broken = true;
}

UcxTraits::Registration UcxLink::map(const void* base, std::size_t bytes,
                                     std::int32_t& error) const noexcept {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = const_cast<void*>(base);
  params.length = bytes;
  ucp_mem_h handle = nullptr;
  error = ucp_mem_map(ucx_.context, &params, &handle);
  return {error == 0 ? handle : nullptr, Unmap{ucx_.context}};
}

ucs_status_ptr_t UcxLink::hand_over(Message& message) noexcept {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.user_data = &message;
  if (const Registration* const known = registered(message); known != nullptr) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    params.memh = known->get();
  }
  if (message.kind == Kind::send) {
    has_sent_ = true;
    params.cb.send = &UcxLink::sent;
    return ucp_tag_send_nbx(peer_of(message.peer).route.endpoint, message.data, message.bytes,
                            message.tag, &params);
  }
  // Always through the callback: only there is it said how long the message was.
  params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = &UcxLink::received;
  return ucp_tag_recv_nbx(ucx_.worker, message.data, message.bytes, message.tag, ~message.ignored,
                          &params);
}

// UCX returns a status if the message has ended already, else a request. The callback may have run
// before that.
std::int32_t UcxLink::submit(Message& message) noexcept {
  message.own = {.link = this};
  const ucs_status_ptr_t request = hand_over(message);
  if (!UCS_PTR_IS_PTR(request)) {
    ended(message, error_of(UCS_PTR_STATUS(request)), message.bytes);
    return 0;
  }
  message.own.request = request;
  if (message.own.is_ended) {
    ucp_request_free(request);
    ended(message, message.own.error, message.own.bytes);
    return 0;
  }
  const Peer& peer = peer_of(message.peer);
  if (peer.error == 0) return 0;
  // Nothing but what a lost peer sent before will come.
  withdraw(message);
  if (message.state == State::posted && peer.route.closing == nullptr) abandon(message, peer.error);
  return 0;
}

void UcxLink::sent(void* request, ucs_status_t status, void* message) noexcept {
  Message& self = *static_cast<Message*>(message);
  end(self, request, status, self.bytes);
}

void UcxLink::received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                       void* message) noexcept {
  end(*static_cast<Message*>(message), request, status, info->length);
}

// During the post, submit() has not seen the request yet: it finds the end there.
void UcxLink::end(Message& message, void* request, ucs_status_t status,
                  std::size_t bytes) noexcept {
  if (message.own.request == nullptr) {
    message.own.is_ended = true;
    message.own.error = error_of(status);
    message.own.bytes = bytes;
    return;
  }
  ucp_request_free(request);
  message.own.link->ended(message, error_of(status), bytes);
}

bool UcxLink::poll() noexcept {
  const bool moved = ucp_worker_progress(ucx_.worker) != 0;
  if (!std::exchange(has_broken_, false)) return moved;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    const bool has_broken = peer.error != 0 && peer.route.endpoint != nullptr;
    if (has_broken) close_peer(static_cast<std::int32_t>(rank), peer.error);
  }
  return true;
}

template <typename Condition>
bool UcxLink::progress_until(Condition&& condition, Clock::time_point deadline) noexcept {
  while (!condition()) {
    if (ucp_worker_progress(ucx_.worker) == 0 && Clock::now() > deadline) return false;
  }
  return true;
}

// With force nothing is waited for that the peer would have to do. Shared memory has no connection
// to close.
bool UcxLink::close(std::int32_t rank) noexcept {
  if (ucx_.error_mode == UCP_ERR_HANDLING_MODE_NONE) return false;
  Peer& peer = peer_of(rank);
  start_closing(peer, UCP_EP_CLOSE_FLAG_FORCE);
  return progress_until([&peer] { return peer.route.closing == nullptr; },
                        Clock::now() + release_time);
}

// The endpoint is not used any more, but its messages may end until the request is complete.
void UcxLink::start_closing(Peer& peer, unsigned flags) noexcept {
  if (peer.route.endpoint == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.flags = flags;
  params.cb.send = &UcxLink::end_close;
  params.user_data = &peer;
  const ucs_status_ptr_t request =
      ucp_ep_close_nbx(std::exchange(peer.route.endpoint, nullptr), &params);
  peer.route.closing = UCS_PTR_IS_PTR(request) ? request : nullptr;
}

void UcxLink::end_close(void* request, ucs_status_t /*status*/, void* peer) noexcept {
  static_cast<Peer*>(peer)->route.closing = nullptr;
  ucp_request_free(request);
}

// The worker, not its endpoints one by one: theirs waits for answers that a peer may be too busy
// to give.
bool UcxLink::flush(Clock::time_point deadline) noexcept {
  if (!has_sent_) return true;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = [](void* request, ucs_status_t /*status*/, void* flushed) {
    *static_cast<bool*>(flushed) = true;
    ucp_request_free(request);
  };
  params.user_data = &has_flushed_;
  if (!UCS_PTR_IS_PTR(ucp_worker_flush_nbx(ucx_.worker, &params))) return true;
  return progress_until([this] { return has_flushed_; }, deadline);
}

// Connections are closed by force where UCX allows that, because a peer may never answer. From 1.18
// on UCX ends the process when a worker is destroyed with an endpoint whose close somebody else
// could still look at: so the ends of those that take longer are left to UCX.
void UcxLink::close_all(Clock::time_point deadline) noexcept {
  const bool flushed = flush(deadline);
  const bool may_force = ucx_.error_mode == UCP_ERR_HANDLING_MODE_PEER;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    fail_peer(static_cast<std::int32_t>(rank), error_link_lost);
    if (may_force || flushed) {
      start_closing(peers_[rank], may_force ? unsigned{UCP_EP_CLOSE_FLAG_FORCE} : 0U);
    }
  }
  const auto is_closed = [](const Peer& peer) { return peer.route.closing == nullptr; };
  progress_until([&] { return std::ranges::all_of(peers_, is_closed); },
                 std::max(deadline, Clock::now() + release_time));
  for (Peer& peer : peers_) {
    if (!is_closed(peer)) ucp_request_free(std::exchange(peer.route.closing, nullptr));
  }
}

std::unique_ptr<Link> open_link(const LinkOptions& options) {
  return std::make_unique<UcxLink>(options);
}

}  // namespace
}  // namespace rondo::transport::ucx

const rondo::transport::LinkPlugin rondo::transport::rondo_link_plugin = {
    .release = RONDO_VERSION,
    .open = rondo::transport::ucx::open_link,
    .describe = rondo::transport::ucx::describe_ucx,
};
