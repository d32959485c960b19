#include "links/ucx/link.hpp"

#include <algorithm>
#include <utility>

#include "links/ucx/address.hpp"
#include "links/ucx/errors.hpp"
#include "links/ucx/quiet.hpp"

namespace rondo::transport::ucx {
namespace {

using Clock = std::chrono::steady_clock;

// How long UCX may take to let go of what it was told to give up; it needs no peer for that.
constexpr std::chrono::milliseconds release_time{250};

constexpr unsigned rank_shift = 48;
constexpr std::uint64_t whole_tag = ~std::uint64_t{0};

std::string own_address(ucp_worker_h worker) {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  if (ucp_worker_get_address(worker, &address, &bytes) != UCS_OK) {
    throw OpenError("no address: " + last_words());
  }
  std::string packed = pack_address({reinterpret_cast<const std::byte*>(address), bytes});
  ucp_worker_release_address(worker, address);
  return packed;
}

}  // namespace

UcxLink::UcxLink(const Opened& opened, const rondo_link_options& options)
    : opened_(opened),
      address_(own_address(opened.worker)),
      peers_(static_cast<std::size_t>(options.size)),
      own_tag_(static_cast<std::uint64_t>(options.rank) << rank_shift) {
  if (ucp_worker_get_efd(opened.worker, &descriptor_) != UCS_OK) {
    throw OpenError("no descriptor to wait on: " + last_words());
  }
}

int UcxLink::connect(int rank, std::span<const std::byte> address) {
  UnpackedAddress unpacked = unpack_address(address);
  if (unpacked.error != 0) return unpacked.error;
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers_.size()) return UCS_ERR_INVALID_PARAM;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.known()) return UCS_ERR_ALREADY_EXISTS;
  peer.know(std::move(unpacked.worker));
  // An endpoint within shared memory maps what the peer has, now, and may not have later.
  return opened_.error_mode == UCP_ERR_HANDLING_MODE_NONE ? open(peer) : UCS_OK;
}

ucs_status_t UcxLink::open(Peer& peer) {
  if (broken_) return UCS_ERR_CANCELED;
  return peer.open(opened_.worker, opened_.error_mode, failed_);
}

void UcxLink::post_send(int rank, std::uint64_t tag, std::span<const std::byte> data,
                        rondo_transfer& transfer) {
  const Quiet quiet;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (const ucs_status_t status = open(peer); status != UCS_OK) {
    complete(transfer, status, 0);
    return;
  }
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK;
  params.cb.send = &UcxLink::sent;
  if (params.memh = registrations_.find(data); params.memh != nullptr) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
  }
  has_sent_ = true;
  start(ucp_tag_send_nbx(peer.endpoint(), data.data(), data.size(), own_tag_ | tag, &params), peer,
        transfer, data.size(), false);
}

void UcxLink::post_recv(int rank, std::uint64_t tag, std::span<std::byte> data,
                        rondo_transfer& transfer) {
  const Quiet quiet;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const ucs_status_t status = open(peer);
  if (broken_ || !peer.known()) {
    complete(transfer, status, 0);
    return;
  }
  // Always through the callback: only there is it said how long the message was.
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = &UcxLink::received;
  if (params.memh = registrations_.find(data); params.memh != nullptr) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
  }
  const std::uint64_t sender = static_cast<std::uint64_t>(rank) << rank_shift;
  const ucs_status_ptr_t request =
      ucp_tag_recv_nbx(opened_.worker, data.data(), data.size(), sender | tag, whole_tag, &params);
  start(request, peer, transfer, 0, true);
  // What a lost peer sent before is still received; nothing else will come.
  if (status == UCS_OK || transfer.state != rondo_transfer_pending) return;
  ucp_request_cancel(opened_.worker, request);
  if (transfer.state == rondo_transfer_pending && !peer.closing()) {
    forget(*static_cast<Message*>(request), status);
  }
  if (transfer.state == rondo_transfer_failed) transfer.error = status;
}

void UcxLink::start(ucs_status_ptr_t request, Peer& peer, rondo_transfer& transfer,
                    std::uint64_t bytes, bool receives) {
  if (!UCS_PTR_IS_PTR(request)) {
    complete(transfer, UCS_PTR_STATUS(request), bytes);
    return;
  }
  Message& message = *static_cast<Message*>(request);
  if (message.state == Message::State::ended) {
    complete(transfer, message.status, receives ? message.bytes : bytes);
    reset(message);
    ucp_request_free(request);
    return;
  }
  message.state = Message::State::listed;
  message.transfer = &transfer;
  message.bytes = bytes;
  message.receives = receives;
  peer.messages().add(message);
  transfer.handle = request;
  transfer.context = &peer;
  transfer.state = rondo_transfer_pending;
}

void UcxLink::sent(void* request, ucs_status_t status, void* /*user*/) {
  end(request, status, static_cast<Message*>(request)->bytes);
}

void UcxLink::received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                       void* /*user*/) {
  end(request, status, info->length);
}

void UcxLink::end(void* request, ucs_status_t status, std::uint64_t bytes) {
  Message& message = *static_cast<Message*>(request);
  switch (message.state) {
    case Message::State::posting:
      message.state = Message::State::ended;
      message.status = status;
      message.bytes = bytes;
      return;
    case Message::State::listed:
      static_cast<Peer*>(message.transfer->context)->messages().remove(message);
      complete(*message.transfer, status, bytes);
      break;
    case Message::State::ended:
    case Message::State::forgotten:
      break;
  }
  reset(message);
  ucp_request_free(request);
}

bool UcxLink::progress() {
  if (broken_) return false;
  const Quiet quiet;
  const bool moved = ucp_worker_progress(opened_.worker) != 0;
  return (failed_ && bury_failed()) || moved;
}

std::optional<int> UcxLink::arm() {
  if (broken_ || failed_) return std::nullopt;
  const Quiet quiet;
  if (ucp_worker_arm(opened_.worker) != UCS_OK) return std::nullopt;
  return descriptor_;
}

template <typename Condition>
bool UcxLink::progress_until(Condition&& condition, Clock::time_point deadline) {
  while (!condition()) {
    if (ucp_worker_progress(opened_.worker) == 0 && Clock::now() > deadline) return false;
  }
  return true;
}

// Ends every message of the peer, and the connection.
void UcxLink::fail(Peer& peer, ucs_status_t why) {
  cancel_receives(peer);
  if (opened_.error_mode == UCP_ERR_HANDLING_MODE_NONE) return;
  peer.close(UCP_EP_CLOSE_FLAG_FORCE, why);
  const bool closed =
      progress_until([&peer] { return !peer.closing(); }, Clock::now() + release_time);
  if (closed) forget(peer);
}

void UcxLink::cancel_receives(Peer& peer) {
  for (Message* message = peer.messages().first(); message != nullptr;) {
    Message* next = message->next;
    if (message->receives) {
      rondo_transfer& transfer = *message->transfer;
      ucp_request_cancel(opened_.worker, message);
      if (transfer.error == UCS_ERR_CANCELED && peer.status() != UCS_OK) {
        transfer.error = peer.status();
      }
    }
    message = next;
  }
}

// Not in the error handler: UCX is in the middle of something there.
bool UcxLink::bury_failed() {
  failed_ = false;
  for (Peer& peer : peers_) {
    if (peer.must_close()) fail(peer, peer.status());
  }
  return true;
}

// What UCX has not ended although the connection is gone, a message of which only the beginning
// has come, will never be touched again.
void UcxLink::forget(Peer& peer) {
  while (Message* message = peer.messages().first()) forget(*message, peer.status());
}

void UcxLink::forget(Message& message, ucs_status_t why) {
  static_cast<Peer*>(message.transfer->context)->messages().remove(message);
  complete(*message.transfer, why, 0);
  message.transfer = nullptr;
  message.state = Message::State::forgotten;
}

void UcxLink::cancel(rondo_transfer& transfer) {
  if (transfer.state != rondo_transfer_pending) return;
  const Quiet quiet;
  Peer& peer = *static_cast<Peer*>(transfer.context);
  Message& message = *static_cast<Message*>(transfer.handle);
  if (message.receives && !broken_) ucp_request_cancel(opened_.worker, &message);
  if (transfer.state == rondo_transfer_pending && !broken_) fail(peer, UCS_ERR_CANCELED);
  // Shared memory has no connection to cut: the message may still end by itself.
  const auto ended = [&transfer] { return transfer.state != rondo_transfer_pending; };
  if (!broken_ && !progress_until(ended, Clock::now() + release_time)) broken_ = true;
  if (transfer.state == rondo_transfer_pending) forget(message, UCS_ERR_CANCELED);
  transfer.state = rondo_transfer_idle;
}

void UcxLink::close(std::chrono::milliseconds timeout) {
  const Quiet quiet;
  if (!broken_) close_peers(Clock::now() + timeout);
  for (Peer& peer : peers_) {
    while (Message* message = peer.messages().first()) forget(*message, UCS_ERR_CANCELED);
  }
  registrations_.clear(opened_.context);
  close_ucx(opened_);
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
  if (!UCS_PTR_IS_PTR(ucp_worker_flush_nbx(opened_.worker, &params))) return true;
  return progress_until([this] { return flushed_; }, deadline);
}

void UcxLink::close_peers(Clock::time_point deadline) {
  const bool flushed = flush(deadline);
  const bool may_force = opened_.error_mode == UCP_ERR_HANDLING_MODE_PEER;
  for (Peer& peer : peers_) {
    cancel_receives(peer);
    if (may_force || flushed) {
      peer.close(may_force ? unsigned{UCP_EP_CLOSE_FLAG_FORCE} : 0U, UCS_ERR_CANCELED);
    }
  }
  const auto closed = [](const Peer& peer) { return !peer.closing(); };
  progress_until([&] { return std::ranges::all_of(peers_, closed); },
                 std::max(deadline, Clock::now() + release_time));
}

}  // namespace rondo::transport::ucx
