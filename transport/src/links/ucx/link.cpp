// The link over UCX, and what its plug-in exports.
//
// UCX's tag is the sender's rank in the upper 16 bits, then the link's 48. The link's record of a
// message lives in UCX's own request, so posting allocates nothing. UCX cancels no send, nor a
// message that has begun to arrive: such a message may take a CancelPatience to end by itself, and
// then ends with its connection.

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
#include <vector>

#include "links/cancel_patience.hpp"
#include "links/plugin.hpp"
#include "links/registered_memory.hpp"
#include "links/ucx/context.hpp"

namespace rondo::transport::ucx {
namespace {

using Clock = std::chrono::steady_clock;

// How long UCX may take to let go of what it was told to give up; it needs no peer for that.
constexpr std::chrono::milliseconds release_time{250};

constexpr unsigned rank_shift = 48;
constexpr std::uint64_t whole_tag = ~std::uint64_t{0};

/// With which `tag` comes from `rank`.
std::uint64_t tag_of(int rank, std::uint64_t tag) noexcept {
  return static_cast<std::uint64_t>(rank) << rank_shift | tag;
}

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

/// Memory that UCX was told of once, so that it need not look at it for each message.
class Registrations {
 public:
  [[nodiscard]] ucs_status_t add(ucp_context_h context, std::span<std::byte> memory);
  void clear(ucp_context_h context);

  /// The handle of what contains all of it, or null.
  [[nodiscard]] ucp_mem_h find(ucp_context_h context, std::span<const std::byte> memory);

 private:
  static ucs_status_t map(ucp_context_h context, const void* base, std::size_t bytes,
                          ucp_mem_h& handle);

  RegisteredMemory<ucp_mem_h> memory_;
};

/// Tagged messages over UCX.
///
/// A peer's connection is made by the first message posted to or from it, so that every
/// connection that matters reports when it breaks. Then what was in flight with that peer fails,
/// but for receives of messages that have already arrived.
class UcxLink final : public Link {
 public:
  explicit UcxLink(const LinkOptions& options);
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;
  ~UcxLink() override;

  void post_send(int rank, std::uint64_t tag, std::span<const std::byte> data,
                 Transfer& transfer) override;
  void post_recv(int rank, std::uint64_t tag, std::span<std::byte> data,
                 Transfer& transfer) override;
  bool progress() override;
  void cancel(Transfer& transfer) override;
  void discard(int rank, std::uint64_t tag, std::uint64_t mask) override;
  [[nodiscard]] std::optional<int> arm() override;

  [[nodiscard]] std::string address() const override { return address_; }
  [[nodiscard]] std::string route() const override { return "ucx: " + ucx_.route; }
  [[nodiscard]] std::string error_text(const Transfer& transfer) const override {
    return ucx::error_text(transfer.error);
  }

 private:
  [[nodiscard]] std::string try_connect(int rank, const std::string& address) override;
  [[nodiscard]] std::string try_add_memory(std::span<std::byte> memory) override;
  [[nodiscard]] std::int32_t connect_to(int rank, const std::string& address);

  // UCX calls sent() or received() when a message has ended; both call end().
  static void sent(void* request, ucs_status_t status, void* link);
  static void received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                       void* link);
  static void end(void* request, ucs_status_t status, std::uint64_t bytes);

  // Messages of several ranks that are thrown away when they come: a failed communicator's.
  struct Discarded {
    std::uint64_t tag = 0;
    std::uint64_t mask = 0;
    std::vector<int> ranks = {};
  };

  ucs_status_t open(UcxPeer& peer);
  void throw_away();
  [[nodiscard]] ucp_tag_message_h next_of(const Discarded& discarded);
  void throw_away(ucp_tag_message_h message);
  void start(ucs_status_ptr_t request, UcxPeer& peer, Transfer& transfer, std::uint64_t bytes,
             bool receives);
  void fail(UcxPeer& peer, ucs_status_t why);
  void cancel_receives(UcxPeer& peer);
  bool close_failed_peers();
  void abandon(UcxPeer& peer);
  void abandon(UcxMessage& message, ucs_status_t why);
  void fail_everything();
  bool flush(Clock::time_point deadline);
  void close_peers(Clock::time_point deadline);
  template <typename Condition>
  bool progress_until(Condition&& condition, Clock::time_point deadline);

  UcxContext ucx_;
  std::string address_;
  std::vector<UcxPeer> peers_;
  Registrations registrations_;
  std::vector<Discarded> discarded_;
  CancelPatience patience_;
  std::uint64_t own_tag_;
  int descriptor_ = -1;
  bool has_sent_ = false;
  bool flushed_ = false;
  bool failed_ = false;           ///< some peer's connection has broken since the last progress()
  bool moved_elsewhere_ = false;  ///< has UCX moved anything outside of progress()?
  bool broken_ = false;           ///< a message could be given up only by never calling UCX again
};

ucs_status_t Registrations::map(ucp_context_h context, const void* base, std::size_t bytes,
                                ucp_mem_h& handle) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = const_cast<void*>(base);
  params.length = bytes;
  return ucp_mem_map(context, &params, &handle);
}

ucs_status_t Registrations::add(ucp_context_h context, std::span<std::byte> memory) {
  ucp_mem_h handle = nullptr;
  const ucs_status_t status = map(context, memory.data(), memory.size(), handle);
  if (status == UCS_OK) memory_.add(memory.data(), memory.size(), handle);
  return status;
}

void Registrations::clear(ucp_context_h context) {
  memory_.for_each([context](ucp_mem_h handle) { ucp_mem_unmap(context, handle); });
  memory_.clear();
}

ucp_mem_h Registrations::find(ucp_context_h context, std::span<const std::byte> memory) {
  const auto join = [context](const void* base, std::size_t bytes) {
    ucp_mem_h handle = nullptr;
    return map(context, base, bytes, handle) == UCS_OK ? handle : nullptr;
  };
  const ucp_mem_h* known = memory_.find(memory.data(), memory.size(), join);
  return known == nullptr ? nullptr : *known;
}

UcxLink::UcxLink(const LinkOptions& options)
    : ucx_(options),
      address_(own_address(ucx_.worker)),
      peers_(static_cast<std::size_t>(options.size)),
      own_tag_(tag_of(options.rank, 0)) {
  if (ucp_worker_get_efd(ucx_.worker, &descriptor_) != UCS_OK) {
    throw OpenError("no descriptor to wait on: " + last_log_message());
  }
}

UcxLink::~UcxLink() {
  const LogCapture capture;
  if (broken_) {
    registrations_.clear(ucx_.context);  // no device reaches the memory after it
    ucx_.leave();
    return;
  }
  close_peers(Clock::now() + link_close_timeout);
  for (UcxPeer& peer : peers_) {
    while (UcxMessage* message = peer.messages().first()) abandon(*message, UCS_ERR_CANCELED);
    peer.leave_close();
  }
  registrations_.clear(ucx_.context);
}

std::string UcxLink::try_connect(int rank, const std::string& address) {
  const std::int32_t error = connect_to(rank, address);
  return error == 0 ? std::string() : ucx::error_text(error);
}

std::string UcxLink::try_add_memory(std::span<std::byte> memory) {
  const ucs_status_t status = registrations_.add(ucx_.context, memory);
  return status == UCS_OK ? std::string() : ucx::error_text(status);
}

/// 0, or an error number.
std::int32_t UcxLink::connect_to(int rank, const std::string& address) {
  UnpackedAddress unpacked = unpack_address(std::as_bytes(std::span(address)));
  if (unpacked.error != 0) return unpacked.error;
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers_.size()) return UCS_ERR_INVALID_PARAM;
  UcxPeer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.known()) return UCS_ERR_ALREADY_EXISTS;
  peer.know(std::move(unpacked.worker));
  // An endpoint within shared memory maps what the peer has, now, and may not have later.
  return ucx_.error_mode == UCP_ERR_HANDLING_MODE_NONE ? open(peer) : UCS_OK;
}

// Makes the connection unless there is one.
ucs_status_t UcxLink::open(UcxPeer& peer) {
  if (broken_) return UCS_ERR_CANCELED;
  return peer.open(ucx_.worker, ucx_.error_mode, failed_);
}

// Both posts make the connection, so that it reports when it breaks.
void UcxLink::post_send(int rank, std::uint64_t tag, std::span<const std::byte> data,
                        Transfer& transfer) {
  const LogCapture capture;
  UcxPeer& peer = peers_[static_cast<std::size_t>(rank)];
  if (const ucs_status_t status = open(peer); status != UCS_OK) {
    complete(transfer, status, 0);
    return;
  }
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK;
  params.cb.send = &UcxLink::sent;
  if (params.memh = registrations_.find(ucx_.context, data); params.memh != nullptr) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
  }
  has_sent_ = true;
  start(ucp_tag_send_nbx(peer.endpoint(), data.data(), data.size(), own_tag_ | tag, &params), peer,
        transfer, data.size(), false);
}

void UcxLink::post_recv(int rank, std::uint64_t tag, std::span<std::byte> data,
                        Transfer& transfer) {
  const LogCapture capture;
  UcxPeer& peer = peers_[static_cast<std::size_t>(rank)];
  const ucs_status_t status = open(peer);
  if (broken_ || !peer.known()) {
    complete(transfer, status, 0);
    return;
  }
  // Always through the callback: only there is it said how long the message was.
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = &UcxLink::received;
  if (params.memh = registrations_.find(ucx_.context, data); params.memh != nullptr) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
  }
  const std::uint64_t sent_tag = tag_of(rank, tag);
  for (Discarded& one : discarded_) {
    if ((tag & one.mask) == one.tag) std::erase(one.ranks, rank);
  }
  const ucs_status_ptr_t request =
      ucp_tag_recv_nbx(ucx_.worker, data.data(), data.size(), sent_tag, whole_tag, &params);
  start(request, peer, transfer, 0, true);
  // Messages that a lost peer sent before are still received; nothing else will come.
  if (status == UCS_OK || !transfer.pending()) return;
  ucp_request_cancel(ucx_.worker, request);
  if (transfer.pending() && !peer.closing()) {
    abandon(*static_cast<UcxMessage*>(request), status);
  }
  if (transfer.failed()) transfer.error = status;
}

// UCX has returned from a post: with a status if the message has ended already, else with a
// request. The callback may have run before that.
void UcxLink::start(ucs_status_ptr_t request, UcxPeer& peer, Transfer& transfer,
                    std::uint64_t bytes, bool receives) {
  if (!UCS_PTR_IS_PTR(request)) {
    complete(transfer, UCS_PTR_STATUS(request), bytes);
    return;
  }
  UcxMessage& message = *static_cast<UcxMessage*>(request);
  if (message.state == UcxMessage::State::ended) {
    complete(transfer, message.status, receives ? message.bytes : bytes);
    reset(message);
    ucp_request_free(request);
    return;
  }
  message.state = UcxMessage::State::listed;
  message.transfer = &transfer;
  message.bytes = bytes;
  message.receives = receives;
  peer.messages().add(message);
  transfer.begin(request);
  transfer.context = &peer;
}

void UcxLink::sent(void* request, ucs_status_t status, void* /*user*/) {
  end(request, status, static_cast<UcxMessage*>(request)->bytes);
}

void UcxLink::received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                       void* /*user*/) {
  end(request, status, info->length);
}

// During the post, start() has not seen the request yet: it finds the end there. For an abandoned
// message only the request is freed.
void UcxLink::end(void* request, ucs_status_t status, std::uint64_t bytes) {
  UcxMessage& message = *static_cast<UcxMessage*>(request);
  switch (message.state) {
    case UcxMessage::State::posting:
      message.state = UcxMessage::State::ended;
      message.status = status;
      message.bytes = bytes;
      return;
    case UcxMessage::State::listed:
      static_cast<UcxPeer*>(message.transfer->context)->messages().remove(message);
      complete(*message.transfer, status, bytes);
      break;
    case UcxMessage::State::ended:
    case UcxMessage::State::abandoned:
      break;
  }
  reset(message);
  ucp_request_free(request);
}

bool UcxLink::progress() {
  if (broken_) return false;
  const LogCapture capture;
  const bool moved = ucp_worker_progress(ucx_.worker) != 0;
  if (moved || std::exchange(moved_elsewhere_, false)) throw_away();
  return (failed_ && close_failed_peers()) || moved;
}

std::optional<int> UcxLink::arm() {
  if (broken_ || failed_) return std::nullopt;
  const LogCapture capture;
  if (ucp_worker_arm(ucx_.worker) != UCS_OK) return std::nullopt;
  return descriptor_;
}

template <typename Condition>
bool UcxLink::progress_until(Condition&& condition, Clock::time_point deadline) {
  while (!condition()) {
    moved_elsewhere_ = true;
    if (ucp_worker_progress(ucx_.worker) == 0 && Clock::now() > deadline) return false;
  }
  return true;
}

// Ends every message of the peer, and the connection.
void UcxLink::fail(UcxPeer& peer, ucs_status_t why) {
  cancel_receives(peer);
  if (ucx_.error_mode == UCP_ERR_HANDLING_MODE_NONE) return;
  peer.close(UCP_EP_CLOSE_FLAG_FORCE, why);
  const bool closed =
      progress_until([&peer] { return !peer.closing(); }, Clock::now() + release_time);
  if (closed) abandon(peer);
}

// A receive can be cancelled alone, unless its message is coming in. Its error says why the peer
// was lost, if it was.
void UcxLink::cancel_receives(UcxPeer& peer) {
  for (UcxMessage* message = peer.messages().first(); message != nullptr;) {
    UcxMessage* next = message->next;
    if (message->receives) {
      Transfer& transfer = *message->transfer;
      ucp_request_cancel(ucx_.worker, message);
      if (transfer.error == UCS_ERR_CANCELED && peer.status() != UCS_OK) {
        transfer.error = peer.status();
      }
    }
    message = next;
  }
}

// Called by progress(), not by the error handler: UCX is in the middle of something there.
bool UcxLink::close_failed_peers() {
  failed_ = false;
  for (UcxPeer& peer : peers_) {
    if (peer.must_close()) fail(peer, peer.status());
  }
  return true;
}

// UCX never touches a message again that it has not ended although the connection is gone: one of
// which only the beginning has come.
void UcxLink::abandon(UcxPeer& peer) {
  while (UcxMessage* message = peer.messages().first()) abandon(*message, peer.status());
}

void UcxLink::abandon(UcxMessage& message, ucs_status_t why) {
  static_cast<UcxPeer*>(message.transfer->context)->messages().remove(message);
  complete(*message.transfer, why, 0);
  message.transfer = nullptr;
  message.state = UcxMessage::State::abandoned;
}

// From now on UCX is not called any more, so nothing else ends either.
void UcxLink::fail_everything() {
  broken_ = true;
  for (UcxPeer& peer : peers_) {
    while (UcxMessage* message = peer.messages().first()) abandon(*message, UCS_ERR_CANCELED);
  }
}

void UcxLink::discard(int rank, std::uint64_t tag, std::uint64_t mask) {
  const auto same = [&](const Discarded& one) {
    return one.tag == (tag & mask) && one.mask == mask;
  };
  auto one = std::ranges::find_if(discarded_, same);
  if (one == discarded_.end()) one = discarded_.insert(one, {.tag = tag & mask, .mask = mask});
  one->ranks.push_back(rank);
  const LogCapture capture;
  if (!broken_) throw_away();
}

// Most of the time nothing has come that nobody awaits: then one look suffices, however much is to
// be thrown away.
void UcxLink::throw_away() {
  if (discarded_.empty()) return;
  ucp_tag_recv_info_t any{};
  if (ucp_tag_probe_nb(ucx_.worker, 0, 0, /*remove=*/0, &any) == nullptr) return;
  for (const Discarded& one : discarded_) {
    while (ucp_tag_message_h message = next_of(one)) throw_away(message);
  }
}

// Another rank's message with such a tag is left alone, and hides what is behind it until then.
ucp_tag_message_h UcxLink::next_of(const Discarded& discarded) {
  ucp_tag_recv_info_t info{};
  const auto probe = [&](std::uint64_t tag, std::uint64_t mask, int remove) {
    return ucp_tag_probe_nb(ucx_.worker, tag, mask, remove, &info);
  };
  if (probe(discarded.tag, discarded.mask, 0) == nullptr) return nullptr;
  const auto sender = static_cast<int>(info.sender_tag >> rank_shift);
  if (std::ranges::find(discarded.ranks, sender) == discarded.ranks.end()) return nullptr;
  return probe(info.sender_tag, whole_tag, 1);
}

// It is received into no memory, which ends it for its sender as if there were some.
void UcxLink::throw_away(ucp_tag_message_h message) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK;
  params.cb.recv = &UcxLink::received;
  const ucs_status_ptr_t request = ucp_tag_msg_recv_nbx(ucx_.worker, nullptr, 0, message, &params);
  if (!UCS_PTR_IS_PTR(request)) return;
  UcxMessage& thrown = *static_cast<UcxMessage*>(request);
  const bool ended = thrown.state == UcxMessage::State::ended;
  thrown.state = UcxMessage::State::abandoned;
  if (ended) end(request, UCS_OK, 0);
}

// UCX can end alone only a receive that has no message yet. The others may end by themselves for a
// moment; then they are cancelled with their connection. When that does not end one either, UCX is
// not called any more, so that it cannot touch the memory.
void UcxLink::cancel(Transfer& transfer) {
  if (!transfer.pending()) return;
  const LogCapture capture;
  UcxPeer& peer = *static_cast<UcxPeer*>(transfer.context);
  UcxMessage& message = *static_cast<UcxMessage*>(transfer.handle);
  if (message.receives && !broken_) ucp_request_cancel(ucx_.worker, &message);
  if (transfer.pending() && !broken_) {
    const auto deadline = patience_.deadline();
    while (transfer.pending() && Clock::now() < deadline) progress();
  }
  if (transfer.pending() && !broken_) fail(peer, UCS_ERR_CANCELED);
  // Shared memory has no connection to close: the message may still end by itself.
  const auto ended = [&transfer] { return !transfer.pending(); };
  if (!broken_ && !progress_until(ended, Clock::now() + release_time)) fail_everything();
  transfer.state = TransferState::idle;
}

// The worker, not its endpoints one by one: theirs waits for answers that a peer may be too busy
// to give.
bool UcxLink::flush(Clock::time_point deadline) {
  if (!has_sent_) return true;
  flushed_ = false;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = [](void* request, ucs_status_t /*status*/, void* ended) {
    *static_cast<bool*>(ended) = true;
    ucp_request_free(request);
  };
  params.user_data = &flushed_;
  if (!UCS_PTR_IS_PTR(ucp_worker_flush_nbx(ucx_.worker, &params))) return true;
  return progress_until([this] { return flushed_; }, deadline);
}

// Connections are closed by force where UCX allows that, because a peer may never answer.
void UcxLink::close_peers(Clock::time_point deadline) {
  const bool flushed = flush(deadline);
  const bool may_force = ucx_.error_mode == UCP_ERR_HANDLING_MODE_PEER;
  for (UcxPeer& peer : peers_) {
    cancel_receives(peer);
    if (may_force || flushed) {
      peer.close(may_force ? unsigned{UCP_EP_CLOSE_FLAG_FORCE} : 0U, UCS_ERR_CANCELED);
    }
  }
  const auto closed = [](const UcxPeer& peer) { return !peer.closing(); };
  progress_until([&] { return std::ranges::all_of(peers_, closed); },
                 std::max(deadline, Clock::now() + release_time));
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
