#include "links/ofi/link.hpp"

#include <sys/uio.h>

#include <new>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "links/link.hpp"
#include "links/ofi/errors.hpp"

namespace rondo::transport::ofi {
namespace {

/// What libfabric compares: `tag` alone where receives name an address, else with the sender.
std::uint64_t wire_tag(const Endpoint& endpoint, std::int32_t sender, std::uint64_t tag) {
  if (endpoint.choice.directed) return tag;
  return static_cast<std::uint64_t>(sender) << link_tag_bits | tag;
}

}  // namespace

Link::Link(const rondo_link_options& options)
    : endpoint_(open_endpoint(options)),
      memory_(endpoint_),
      peers_(static_cast<std::size_t>(options.size)),
      route_(endpoint_.provider() + " over " + endpoint_.info().domain_attr->name),
      address_(address_blob(endpoint_)),
      inject_bytes_(endpoint_.info().tx_attr->inject_size),
      longest_(endpoint_.info().ep_attr->max_msg_size),
      rank_(options.rank) {
  listed_.reserve(peers_.size());
}

Link::~Link() { lose_everything(error_link_lost); }

int Link::connect(std::int32_t rank, std::string_view address) {
  if (error_ != 0) return error_;
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers_.size()) return error_unknown_peer;
  return peers_[static_cast<std::size_t>(rank)].connect(endpoint_, address);
}

void Link::post_send(std::int32_t peer, std::uint64_t tag, const void* data, std::size_t bytes,
                     rondo_transfer& transfer) noexcept {
  // A receive writes through the same pointer of Message; a send never does.
  Message* message = start(Message::Kind::send, peer, wire_tag(endpoint_, rank_, tag),
                           const_cast<void*>(data), bytes, transfer);
  if (message == nullptr) return;
  ++sends_;
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  if (to.waiting.empty() && hand_over(*message) != Taken::later) return;
  message->state = Message::State::queued;
  to.waiting.push(*message);
  if (to.is_listed) return;
  to.is_listed = true;
  listed_.push_back(peer);
}

void Link::post_recv(std::int32_t peer, std::uint64_t tag, void* data, std::size_t bytes,
                     rondo_transfer& transfer) noexcept {
  Message* message =
      start(Message::Kind::recv, peer, wire_tag(endpoint_, peer, tag), data, bytes, transfer);
  if (message != nullptr) post(*message);
}

void Link::post(Message& recv) noexcept {
  if (waiting_recvs_.empty() && hand_over(recv) != Taken::later) return;
  recv.state = Message::State::queued;
  waiting_recvs_.push(recv);
}

void Link::discard(std::int32_t peer, std::uint64_t tag, std::uint64_t mask) noexcept {
  constexpr std::uint64_t all = (std::uint64_t{1} << link_tag_bits) - 1;
  rondo_transfer unused{};
  Message* message = start(Message::Kind::recv, peer, wire_tag(endpoint_, peer, tag & mask),
                           trash_.data(), trash_.size(), unused);
  if (message == nullptr) return;
  message->transfer = nullptr;
  message->ignored = all & ~mask;
  message->discards = true;
  post(*message);
}

/// Why no message of `bytes` goes to or comes from `peer`; 0 if nothing stands against it.
std::int32_t Link::obstacle(std::int32_t peer, std::size_t bytes) const noexcept {
  if (error_ != 0) return error_;
  if (peer < 0 || static_cast<std::size_t>(peer) >= peers_.size()) return error_unknown_peer;
  const Peer& other = peers_[static_cast<std::size_t>(peer)];
  if (other.error != 0) return other.error;
  if (other.address == FI_ADDR_NOTAVAIL) return error_unknown_peer;
  return bytes > longest_ ? error_message_too_long : 0;
}

Message* Link::start(Message::Kind kind, std::int32_t peer, std::uint64_t tag, void* data,
                     std::size_t bytes, rondo_transfer& transfer) noexcept {
  transfer = {.state = rondo_transfer_failed,
              .error = obstacle(peer, bytes),
              .bytes = 0,
              .handle = nullptr,
              .context = nullptr};
  if (transfer.error != 0) return nullptr;
  try {
    Message& message = messages_.take();
    message.transfer = &transfer;
    message.data = data;
    message.bytes = bytes;
    message.tag = tag;
    message.peer = peer;
    message.kind = kind;
    transfer.state = rondo_transfer_pending;
    transfer.handle = &message;
    return &message;
  } catch (const std::bad_alloc&) {
    transfer.error = FI_ENOMEM;
    return nullptr;
  }
}

Link::Taken Link::hand_over(Message& message) noexcept {
  const std::int64_t result =
      message.kind == Message::Kind::send ? hand_over_send(message) : hand_over_recv(message);
  if (result == 0) {
    message.state = Message::State::posted;
    return Taken::yes;
  }
  if (result == -FI_EAGAIN) return Taken::later;
  const std::int32_t peer = message.peer;
  const auto error = static_cast<std::int32_t>(-result);
  end(message, error, 0);
  lose_peer(peer, error);
  return Taken::failed;
}

std::int64_t Link::hand_over_send(Message& message) noexcept {
  if (message.bytes <= inject_bytes_) return inject(message);
  if (const int error = lease(message); error != 0) return -error;
  return fi_tsend(endpoint_.ep.get(), message.data, message.bytes, message.lease.descriptor,
                  peers_[static_cast<std::size_t>(message.peer)].address, message.tag,
                  &message.context);
}

/// A send whose memory is free at once. Unlike fi_tinject it reports its end, which tells when
/// everything has left and whether it failed.
std::int64_t Link::inject(Message& message) noexcept {
  iovec data{.iov_base = message.data, .iov_len = message.bytes};
  void* descriptor = nullptr;
  fi_msg_tagged send{};
  send.msg_iov = &data;
  send.desc = &descriptor;
  send.iov_count = 1;
  send.addr = peers_[static_cast<std::size_t>(message.peer)].address;
  send.tag = message.tag;
  send.context = &message.context;
  const std::int64_t result = fi_tsendmsg(endpoint_.ep.get(), &send, FI_INJECT | FI_COMPLETION);
  if (result == 0) answer(message, 0, message.bytes);
  return result;
}

std::int64_t Link::hand_over_recv(Message& message) noexcept {
  if (const int error = lease(message); error != 0) return -error;
  const fi_addr_t from = endpoint_.choice.directed
                             ? peers_[static_cast<std::size_t>(message.peer)].address
                             : FI_ADDR_UNSPEC;
  return fi_trecv(endpoint_.ep.get(), message.data, message.bytes, message.lease.descriptor, from,
                  message.tag, message.ignored, &message.context);
}

int Link::lease(Message& message) noexcept {
  // A second try of the same message has its lease already.
  if (message.lease.descriptor != nullptr) return 0;
  return memory_.lease(message.data, message.bytes, message.lease);
}

int Link::arm() noexcept {
  // What libfabric could not take yet may be taken without an event.
  if (error_ != 0 || endpoint_.wait_descriptor < 0 || !waiting_recvs_.empty() || !listed_.empty()) {
    return -1;
  }
  fid* queue = &endpoint_.cq->fid;
  return fi_trywait(endpoint_.fabric.get(), &queue, 1) == 0 ? endpoint_.wait_descriptor : -1;
}

}  // namespace rondo::transport::ofi
