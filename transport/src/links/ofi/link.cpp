// Keeps track of a link's memory, messages and peers, posts messages to libfabric, takes back their
// ends, and exports the plug-in.
//
// Every post hands its message to libfabric, whose completion queue reports each end with the
// message's context. Until libfabric can accept it, a message waits here for progress().
//
// Messages are given up one by one or with their peer. A message that still waits here is dropped,
// and a receive that has no message yet is cancelled by libfabric. But no provider cancels a send,
// nor a message that is coming in: libfabric refers to its memory until the peer has done its part,
// and the peer may never do it. Such a message may take a CancelPatience to end by itself. Then the
// connection to its peer is closed, which puts the memory out of libfabric's reach, costs what else
// was under way with this peer, and leaves all other peers alone. Providers without connections of
// their own leave only the endpoint to be closed, and with it every peer.

#include "links/ofi/link.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>

#include "links/plugin.hpp"

namespace rondo::transport::ofi {

int OfiMemory::add(const void* base, std::size_t bytes) {
  if (!needed_) return 0;
  fid_mr* registration = nullptr;
  const int error = register_memory(base, bytes, registration);
  if (error == 0) memory_.add(base, bytes, Owned<fid_mr>(registration));
  return error;
}

int OfiMemory::lease(const void* data, std::size_t bytes, Lease& lease) {
  lease = {};
  if (!needed_ || bytes == 0) return 0;
  const auto join = [this](const void* base, std::size_t joined_bytes) {
    fid_mr* registration = nullptr;
    if (register_memory(base, joined_bytes, registration) != 0) registration = nullptr;
    return Owned<fid_mr>(registration);
  };
  if (const Owned<fid_mr>* known = memory_.find(data, bytes, join)) {
    lease.descriptor = fi_mr_desc(known->get());
    return 0;
  }
  const int error = register_memory(data, bytes, lease.once);
  if (error == 0) lease.descriptor = fi_mr_desc(lease.once);
  return error;
}

void OfiMemory::drop(Lease& lease) noexcept {
  if (lease.once != nullptr) fi_close(&lease.once->fid);
  lease = {};
}

int OfiMemory::register_memory(const void* base, std::size_t bytes, fid_mr*& registration) {
  const std::uint64_t key = endpoint_->wants(FI_MR_PROV_KEY) ? 0 : next_key_++;
  int result = fi_mr_reg(endpoint_->domain.get(), base, bytes, FI_SEND | FI_RECV, /*offset=*/0, key,
                         /*flags=*/0, &registration, nullptr);
  if (result != 0) return -result;
  if (!endpoint_->wants(FI_MR_ENDPOINT)) return 0;
  result = fi_mr_bind(registration, &endpoint_->ep->fid, 0);
  if (result == 0) result = fi_mr_enable(registration);
  if (result == 0) return 0;
  fi_close(&registration->fid);
  registration = nullptr;
  return -result;
}

// Blocks are never freed, so that the address of a message stays known to owns().
OfiMessage& MessagePool::acquire() {
  if (free_ == nullptr) {
    blocks_.push_back(std::make_unique<OfiMessage[]>(block_size));
    for (std::size_t i = 0; i < block_size; ++i) release(blocks_.back()[i]);
  }
  OfiMessage& message = *free_;
  free_ = message.next;
  message.ignored = 0;
  message.cancelled = false;
  message.discards = false;
  return message;
}

void MessagePool::release(OfiMessage& message) noexcept {
  message.state = OfiMessage::State::unused;
  message.transfer = nullptr;
  message.next = free_;
  free_ = &message;
}

bool MessagePool::owns(const void* message) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(message);
  return std::ranges::any_of(blocks_, [&](const auto& block) {
    const auto first = reinterpret_cast<std::uintptr_t>(block.get());
    return first <= address && address < first + block_size * sizeof(OfiMessage);
  });
}

std::string address_blob(const Endpoint& endpoint) {
  std::string blob = endpoint.provider();
  blob += '\0';
  return blob + endpoint.name;
}

int OfiPeer::connect(const Endpoint& endpoint, std::string_view blob) {
  const std::size_t end = blob.find('\0');
  if (end == std::string_view::npos) return error_bad_address;
  if (blob.substr(0, end) != endpoint.provider()) return error_other_provider;
  // libfabric reads as many bytes as its own addresses have.
  const std::string_view name = blob.substr(end + 1);
  if (name.size() != endpoint.name.size()) return error_bad_address;
  fi_addr_t found = FI_ADDR_NOTAVAIL;
  const int inserted =
      fi_av_insert(endpoint.av.get(), name.data(), 1, &found, /*flags=*/0, nullptr);
  if (inserted < 0) return -inserted;
  if (inserted != 1) return error_bad_address;
  address = found;
  return 0;
}

namespace {

/// The tag for libfabric: `tag` alone where receives name an address, else with the sender.
std::uint64_t wire_tag(const Endpoint& endpoint, std::int32_t sender, std::uint64_t tag) {
  if (endpoint.choice.directed) return tag;
  return static_cast<std::uint64_t>(sender) << link_tag_bits | tag;
}

// They stay reachable, so that checks for leaks know that they were not forgotten.
void leave(Endpoint endpoint) {
  static std::mutex mutex;
  static auto& left = *new std::vector<Endpoint>();
  const std::scoped_lock lock(mutex);
  left.push_back(std::move(endpoint));
}

}  // namespace

OfiLink::OfiLink(const LinkOptions& options)
    : endpoint_(open_endpoint(options)),
      memory_(endpoint_),
      peers_(static_cast<std::size_t>(options.size)),
      route_("ofi: " + endpoint_.provider() + " over " + endpoint_.info().domain_attr->name),
      address_(address_blob(endpoint_)),
      inject_bytes_(endpoint_.info().tx_attr->inject_size),
      longest_(endpoint_.info().ep_attr->max_msg_size),
      rank_(options.rank) {
  listed_.reserve(peers_.size());
}

OfiLink::~OfiLink() {
  const auto deadline = Clock::now() + link_close_timeout;
  while (sends_ > 0 && error_ == 0 && Clock::now() < deadline) progress();
  fail_everything(error_link_lost);
  if (is_left_) leave(std::move(endpoint_));
}

std::string OfiLink::try_connect(int rank, const std::string& address) {
  const std::int32_t error = connect_to(rank, address);
  return error == 0 ? std::string() : ofi::error_text(error);
}

std::string OfiLink::error_text(const Transfer& transfer) const {
  if (transfer.error != error_message_too_long) return ofi::error_text(transfer.error);
  return "the message is longer than the " + std::to_string(longest_) + " bytes that libfabric's " +
         endpoint_.provider() + " takes; exchange it in parts, or choose fabric tcp or ucx";
}

std::string OfiLink::try_add_memory(std::span<std::byte> memory) {
  const std::int32_t error = memory_.add(memory.data(), memory.size());
  return error == 0 ? std::string() : ofi::error_text(error);
}

/// 0, or an error number.
std::int32_t OfiLink::connect_to(int rank, const std::string& address) {
  if (error_ != 0) return error_;
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers_.size()) return error_unknown_peer;
  return peers_[static_cast<std::size_t>(rank)].connect(endpoint_, address);
}

void OfiLink::post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                        Transfer& transfer) noexcept {
  // A receive writes through the same pointer of OfiMessage; a send never does.
  OfiMessage* message = start(OfiMessage::Kind::send, peer, wire_tag(endpoint_, rank_, tag),
                              const_cast<std::byte*>(data.data()), data.size(), transfer);
  if (message == nullptr) return;
  ++sends_;
  OfiPeer& to = peers_[static_cast<std::size_t>(peer)];
  if (to.waiting.empty() && submit(*message) != Submitted::later) return;
  message->state = OfiMessage::State::queued;
  to.waiting.push(*message);
  if (to.is_listed) return;
  to.is_listed = true;
  listed_.push_back(peer);
}

void OfiLink::post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                        Transfer& transfer) noexcept {
  // Ranks with equal devices send nothing longer than longest_, so a longer receive needs no more.
  OfiMessage* message = start(OfiMessage::Kind::recv, peer, wire_tag(endpoint_, peer, tag),
                              data.data(), std::min(data.size(), longest_), transfer);
  if (message != nullptr) post(*message);
}

// Receives of all peers share one queue: libfabric matches them in the order posted.
void OfiLink::post(OfiMessage& recv) noexcept {
  if (waiting_recvs_.empty() && submit(recv) != Submitted::later) return;
  recv.state = OfiMessage::State::queued;
  waiting_recvs_.push(recv);
}

// The receive is posted again whenever it has received something; see end().
void OfiLink::discard(int peer, std::uint64_t tag, std::uint64_t mask) noexcept {
  constexpr std::uint64_t all = (std::uint64_t{1} << link_tag_bits) - 1;
  Transfer unused{};
  OfiMessage* message = start(OfiMessage::Kind::recv, peer, wire_tag(endpoint_, peer, tag & mask),
                              trash_.data(), trash_.size(), unused);
  if (message == nullptr) return;
  message->transfer = nullptr;
  message->ignored = all & ~mask;
  message->discards = true;
  post(*message);
}

/// Why no message of `bytes` goes to or comes from `peer`; 0 if nothing stands against it.
std::int32_t OfiLink::why_impossible(int peer, std::size_t bytes) const noexcept {
  if (error_ != 0) return error_;
  if (peer < 0 || static_cast<std::size_t>(peer) >= peers_.size()) return error_unknown_peer;
  const OfiPeer& other = peers_[static_cast<std::size_t>(peer)];
  if (other.error != 0) return other.error;
  if (other.address == FI_ADDR_NOTAVAIL) return error_unknown_peer;
  return bytes > longest_ ? error_message_too_long : 0;
}

/// A message in flight for `transfer`; null when that has failed.
OfiMessage* OfiLink::start(OfiMessage::Kind kind, int peer, std::uint64_t tag, void* data,
                           std::size_t bytes, Transfer& transfer) noexcept {
  std::int32_t error = why_impossible(peer, bytes);
  OfiMessage* message = nullptr;
  try {
    if (error == 0) message = &messages_.acquire();
  } catch (const std::bad_alloc&) {
    error = FI_ENOMEM;
  }
  if (message == nullptr) {
    transfer.end(error, 0);
    return nullptr;
  }
  message->transfer = &transfer;
  message->data = data;
  message->bytes = bytes;
  message->tag = tag;
  message->peer = peer;
  message->kind = kind;
  transfer.begin(message);
  return message;
}

/// Hands a message to libfabric, which may not accept it yet.
OfiLink::Submitted OfiLink::submit(OfiMessage& message) noexcept {
  const std::int64_t result =
      message.kind == OfiMessage::Kind::send ? submit_send(message) : submit_recv(message);
  if (result == 0) {
    message.state = OfiMessage::State::posted;
    return Submitted::yes;
  }
  if (result == -FI_EAGAIN) return Submitted::later;
  const std::int32_t peer = message.peer;
  const auto error = static_cast<std::int32_t>(-result);
  end(message, error, 0);
  fail_peer(peer, error);
  return Submitted::failed;
}

std::int64_t OfiLink::submit_send(OfiMessage& message) noexcept {
  if (message.bytes <= inject_bytes_) return inject(message);
  if (const int error = lease(message); error != 0) return -error;
  return fi_tsend(endpoint_.ep.get(), message.data, message.bytes, message.lease.descriptor,
                  peers_[static_cast<std::size_t>(message.peer)].address, message.tag,
                  &message.context);
}

/// A send whose memory is free at once. Unlike fi_tinject it reports its end, which tells when
/// everything has left and whether it failed.
std::int64_t OfiLink::inject(OfiMessage& message) noexcept {
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

std::int64_t OfiLink::submit_recv(OfiMessage& message) noexcept {
  if (const int error = lease(message); error != 0) return -error;
  const fi_addr_t from = endpoint_.choice.directed
                             ? peers_[static_cast<std::size_t>(message.peer)].address
                             : FI_ADDR_UNSPEC;
  return fi_trecv(endpoint_.ep.get(), message.data, message.bytes, message.lease.descriptor, from,
                  message.tag, message.ignored, &message.context);
}

int OfiLink::lease(OfiMessage& message) noexcept {
  // A second try of the same message has its lease already.
  if (message.lease.descriptor != nullptr) return 0;
  return memory_.lease(message.data, message.bytes, message.lease);
}

std::optional<int> OfiLink::arm() noexcept {
  // Messages that wait here may become acceptable to libfabric without an event.
  if (error_ != 0 || endpoint_.wait_descriptor < 0 || !waiting_recvs_.empty() || !listed_.empty()) {
    return std::nullopt;
  }
  fid* queue = &endpoint_.cq->fid;
  if (fi_trywait(endpoint_.fabric.get(), &queue, 1) != 0) return std::nullopt;
  return endpoint_.wait_descriptor;
}

bool OfiLink::progress() noexcept {
  if (error_ != 0) return false;
  const bool completed = read_completions();
  const bool submitted = retry_all();
  return completed || submitted;
}

/// Bounded, so that one call stays short.
bool OfiLink::read_completions() noexcept {
  constexpr int rounds = 4;
  constexpr std::size_t batch = 16;
  fi_cq_msg_entry entries[batch];
  bool moved = false;
  for (int round = 0; round < rounds && error_ == 0; ++round) {
    const std::int64_t count = fi_cq_read(endpoint_.cq.get(), entries, batch);
    if (count == 0 || count == -FI_EAGAIN) break;
    moved = true;
    if (count == -FI_EAVAIL) {
      read_error();
    } else if (count < 0) {
      fail_everything(static_cast<std::int32_t>(-count));
    } else {
      for (std::int64_t i = 0; i < count; ++i) complete(entries[i].op_context, entries[i].len);
      if (count < static_cast<std::int64_t>(batch)) break;
    }
  }
  return moved;
}

// A message has ended well, or an abandoned one is reported at last.
void OfiLink::complete(void* context, std::size_t received) noexcept {
  OfiMessage& message = *static_cast<OfiMessage*>(context);
  if (message.state == OfiMessage::State::abandoned) return messages_.release(message);
  if (message.kind == OfiMessage::Kind::send) return end(message, 0, message.bytes);
  end(message, received > message.bytes ? Transfer::truncated : 0, received);
}

void OfiLink::read_error() noexcept {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(endpoint_.cq.get(), &entry, /*flags=*/0) <= 0) return;
  // Errors of a provider's own messages come without a context of ours.
  if (!messages_.owns(entry.op_context)) return;
  OfiMessage& message = *static_cast<OfiMessage*>(entry.op_context);
  if (message.state == OfiMessage::State::posted) fail(message, entry.err);
  if (message.state == OfiMessage::State::abandoned) messages_.release(message);
}

// When a message fails, the order of those that follow cannot be kept: the peer fails with it.
void OfiLink::fail(OfiMessage& message, std::int32_t error) noexcept {
  const std::int32_t rank = message.peer;
  const std::int32_t before = peers_[static_cast<std::size_t>(rank)].error;
  if (message.cancelled) return end(message, before != 0 ? before : error, 0);
  // Ranks differ; the connection stands.
  if (error == FI_ETRUNC) return end(message, Transfer::truncated, 0);
  // Cancelled by the provider: its connection went.
  if (error == FI_ECANCELED) error = error_peer_lost;
  end(message, error, 0);
  fail_peer(rank, error);
}

// Submits what libfabric could not accept before, to each peer in order.
bool OfiLink::retry_all() noexcept {
  bool moved = retry(waiting_recvs_);
  for (std::size_t i = 0; i < listed_.size();) {
    OfiPeer& peer = peers_[static_cast<std::size_t>(listed_[i])];
    if (retry(peer.waiting)) moved = true;
    if (!peer.waiting.empty()) {
      ++i;
      continue;
    }
    peer.is_listed = false;
    listed_[i] = listed_.back();
    listed_.pop_back();
  }
  return moved;
}

bool OfiLink::retry(Fifo<OfiMessage>& queue) noexcept {
  bool moved = false;
  while (!queue.empty()) {
    OfiMessage& message = queue.pop();
    if (submit(message) == Submitted::later) {
      queue.push_front(message);
      break;
    }
    moved = true;
  }
  return moved;
}

/// Tells the caller how its transfer went; libfabric may still refer to the message.
void OfiLink::answer(OfiMessage& message, std::int32_t error, std::size_t bytes) noexcept {
  if (message.transfer == nullptr) return;
  Transfer& transfer = *message.transfer;
  message.transfer = nullptr;
  transfer.end(error, bytes);
}

// libfabric refers to the message no more. A receive that discards begins again.
void OfiLink::end(OfiMessage& message, std::int32_t error, std::size_t bytes) noexcept {
  if (message.kind == OfiMessage::Kind::send) --sends_;
  OfiMemory::drop(message.lease);
  answer(message, error, bytes);
  const bool received = error == 0 || error == Transfer::truncated;
  if (message.discards && received && error_ == 0) return post(message);
  messages_.release(message);
}

// Giving up.

void OfiLink::cancel(Transfer& transfer) noexcept {
  if (!transfer.pending()) return;
  OfiMessage& message = *static_cast<OfiMessage*>(transfer.handle);
  if (message.state == OfiMessage::State::queued) {
    unqueue(message);
    end(message, FI_ECANCELED, 0);
    return;
  }
  if (cancel_alone(message, transfer)) return;
  // libfabric 1.17 crashes where a connection, or the endpoint, is closed while a message is
  // fetched over TCP. It moves only when it is called: so nobody calls it again, and the memory
  // is safe.
  is_left_ = message.kind == OfiMessage::Kind::recv && endpoint_.provider() == "tcp;ofi_rxm";
  if (is_left_ || !close_connection(message.peer)) fail_everything(error_link_lost);
}

/// True when libfabric has cancelled or completed `message` in time.
bool OfiLink::cancel_alone(OfiMessage& message, const Transfer& transfer) noexcept {
  message.cancelled = true;
  fi_cancel(&endpoint_.ep->fid, &message.context);
  const auto deadline = patience_.deadline();
  while (transfer.pending()) {
    progress();
    if (transfer.pending() && Clock::now() > deadline) return false;
  }
  return true;
}

/// Closes the connection to `rank` and ends all messages to and from it. False when the provider
/// has no connections that could be closed.
bool OfiLink::close_connection(std::int32_t rank) noexcept {
  OfiPeer& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer.is_closed) {
    if (!endpoint_.closes_connections()) return false;
    if (fi_av_remove(endpoint_.av.get(), &peer.address, 1, /*flags=*/0) != 0) return false;
    peer.is_closed = true;
  }
  fail_peer(rank, error_peer_closed);
  // libfabric reports most of what has ended with the connection.
  constexpr int rounds = 100;
  for (int round = 0; round < rounds && has_posted(rank); ++round) {
    if (!read_completions()) break;
  }
  // But it does not report a send that the peer should have fetched.
  messages_.for_each([&](OfiMessage& message) {
    if (message.peer == rank && message.state == OfiMessage::State::posted) {
      abandon(message, peer.error);
    }
  });
  return true;
}

bool OfiLink::has_posted(std::int32_t rank) noexcept {
  bool found = false;
  messages_.for_each([&](const OfiMessage& message) {
    found = found || (message.peer == rank && message.state == OfiMessage::State::posted);
  });
  return found;
}

// The caller is told the end, but libfabric may still report the message.
void OfiLink::abandon(OfiMessage& message, std::int32_t error) noexcept {
  if (message.kind == OfiMessage::Kind::send) --sends_;
  OfiMemory::drop(message.lease);
  answer(message, error, 0);
  message.state = OfiMessage::State::abandoned;
}

void OfiLink::unqueue(OfiMessage& message) noexcept {
  OfiPeer& peer = peers_[static_cast<std::size_t>(message.peer)];
  (message.kind == OfiMessage::Kind::send ? peer.waiting : waiting_recvs_)
      .extract([&](const OfiMessage& other) { return &other == &message; });
}

// Ends what is under way with one peer, as far as this rank can; everything later fails at once.
void OfiLink::fail_peer(std::int32_t rank, std::int32_t error) noexcept {
  OfiPeer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.error != 0) return;
  peer.error = error;
  messages_.for_each([&](OfiMessage& message) {
    if (message.peer != rank) return;
    if (message.state == OfiMessage::State::queued) {
      unqueue(message);
      end(message, error, 0);
    } else if (message.state == OfiMessage::State::posted &&
               message.kind == OfiMessage::Kind::recv) {
      // It fails once libfabric has given it back. Posted sends fail by themselves, but for one
      // that the peer should have fetched: see close_connection().
      message.cancelled = true;
      fi_cancel(&endpoint_.ep->fid, &message.context);
    }
  });
}

// Closing the endpoint ends every message: libfabric touches no memory afterwards.
void OfiLink::fail_everything(std::int32_t error) noexcept {
  if (error_ != 0) return;
  error_ = error;
  // Registrations bound to the endpoint would keep it from closing; others are needed until then.
  if (endpoint_.wants(FI_MR_ENDPOINT)) release_memory();
  if (!is_left_) endpoint_.ep.reset();
  while (!waiting_recvs_.empty()) waiting_recvs_.pop();
  for (const std::int32_t rank : listed_) {
    OfiPeer& peer = peers_[static_cast<std::size_t>(rank)];
    while (!peer.waiting.empty()) peer.waiting.pop();
    peer.is_listed = false;
  }
  listed_.clear();
  messages_.for_each([&](OfiMessage& message) {
    if (message.state == OfiMessage::State::abandoned) return messages_.release(message);
    end(message, error, 0);
  });
}

void OfiLink::release_memory() noexcept {
  messages_.for_each([](OfiMessage& message) { OfiMemory::drop(message.lease); });
  memory_.clear();
}

static std::unique_ptr<Link> open_link(const LinkOptions& options) {
  return std::make_unique<OfiLink>(options);
}

}  // namespace rondo::transport::ofi

const rondo::transport::LinkPlugin rondo::transport::rondo_link_plugin = {
    .release = RONDO_VERSION,
    .open = rondo::transport::ofi::open_link,
    .describe = rondo::transport::ofi::describe_providers,
};
