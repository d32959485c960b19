// The link over reliable datagram endpoints of libfabric, and what its plug-in exports;
// links/engine.hpp has what it does with messages and peers.
//
// libfabric's completion queue reports each end with the message's context. When a message of a
// peer fails, so do all others to and from it: their order could not be kept. Messages that were
// cancelled or longer than their receive do not count. The end of long sends over ofi_rxm may not
// be reported: they end when they are cancelled.
//
// - A message that is longer than the provider's longest fails: its receiver could not take it in
//   parts, because a receive may be longer than its message.
// - A send of up to the provider's inject size is done at once: libfabric has copied it.
// - ofi_rxm closes the connection to one peer. Providers without connections of their own leave
//   only the endpoint to be closed.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>

#include "links/engine.hpp"
#include "links/ofi/endpoint.hpp"
#include "links/plugin.hpp"

namespace rondo::transport::ofi {
namespace {

struct OfiTraits {
  struct Own {
    fi_context2 context{};
    void* descriptor = nullptr;  ///< of its registered memory
    fid_mr* once = nullptr;      ///< registered for this message alone
  };
  struct Route {
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    bool is_closed = false;  ///< this rank has closed the connection
  };
  using Registration = Owned<fid_mr>;
  struct Entry {};
  static constexpr std::int32_t try_again = FI_EAGAIN;
  static constexpr bool receives_late = false;
};
static_assert(std::is_standard_layout_v<EngineMessage<OfiTraits::Own>>);

// The address for a peer's connect(): the provider's name, a zero byte, the endpoint's name.
std::string address_blob(const Endpoint& endpoint) {
  std::string blob = endpoint.provider();
  blob += '\0';
  return blob + endpoint.name;
}

// They stay reachable, so that checks for leaks know that they were not forgotten.
void leave(Endpoint endpoint) {
  static std::mutex mutex;
  static auto& left = *new std::vector<Endpoint>();
  const std::scoped_lock lock(mutex);
  left.push_back(std::move(endpoint));
}

class OfiLink final : public LinkEngine<OfiLink, OfiTraits> {
 public:
  explicit OfiLink(const LinkOptions& options);
  OfiLink(const OfiLink&) = delete;
  OfiLink& operator=(const OfiLink&) = delete;
  ~OfiLink() override;

  [[nodiscard]] std::string address() const override { return address_blob(endpoint_); }
  [[nodiscard]] std::string route() const override {
    return "ofi: " + endpoint_.provider() + " over " + endpoint_.info().domain_attr->name;
  }

 private:
  friend LinkEngine;

  std::int32_t connect_to(Peer& peer, std::string_view blob) noexcept;
  [[nodiscard]] static std::int32_t open(const Peer& peer) noexcept {
    return peer.route.address == FI_ADDR_NOTAVAIL ? std::int32_t{error_unknown_peer} : 0;
  }
  Registration map(const void* base, std::size_t bytes, std::int32_t& error) noexcept;
  std::int32_t submit(Message& message) noexcept;
  void cancel_posted(Message& message) const noexcept {
    fi_cancel(&endpoint_.ep->fid, &message.own.context);
  }
  static void drop(Message& message) noexcept {
    if (message.own.once != nullptr) fi_close(&message.own.once->fid);
    message.own.once = nullptr;
    message.own.descriptor = nullptr;
  }
  bool poll() noexcept;
  bool close(std::int32_t rank) noexcept;
  void quit() noexcept;
  [[nodiscard]] std::optional<int> descriptor() const noexcept;
  [[nodiscard]] std::string library_text(std::int32_t error) const;

  [[nodiscard]] std::int32_t lease(Message& message) noexcept;
  [[nodiscard]] std::int32_t inject(Message& message, fi_addr_t peer) const noexcept;
  void complete(const fi_cq_msg_entry& entry) noexcept;
  void read_error() noexcept;
  void fail(Message& message, std::int32_t error) noexcept;

  Endpoint endpoint_;
  std::size_t inject_bytes_;
  std::uint64_t next_key_ = 1;
  bool is_left_ = false;  ///< libfabric is not called any more
};

OfiLink::OfiLink(const LinkOptions& options)
    : LinkEngine(options),
      endpoint_(open_endpoint(options)),
      inject_bytes_(endpoint_.info().tx_attr->inject_size) {
  longest_ = endpoint_.info().ep_attr->max_msg_size;
  is_directed_ = endpoint_.choice.directed;
}

OfiLink::~OfiLink() {
  const auto deadline = Clock::now() + link_close_timeout;
  while (sends_ > 0 && error_ == 0 && Clock::now() < deadline) progress();
  fail_everything(error_link_lost);
  memory_.clear();
  if (is_left_) leave(std::move(endpoint_));
}

std::int32_t OfiLink::connect_to(Peer& peer, std::string_view blob) noexcept {
  const std::size_t end = blob.find('\0');
  if (end == std::string_view::npos) return error_bad_address;
  if (blob.substr(0, end) != endpoint_.provider()) return error_other_library;
  // libfabric reads as many bytes as its own addresses have.
  const std::string_view name = blob.substr(end + 1);
  if (name.size() != endpoint_.name.size()) return error_bad_address;
  fi_addr_t found = FI_ADDR_NOTAVAIL;
  const int inserted =
      fi_av_insert(endpoint_.av.get(), name.data(), 1, &found, /*flags=*/0, nullptr);
  if (inserted < 0) return -inserted;
  if (inserted != 1) return error_bad_address;
  peer.route.address = found;
  return 0;
}

std::string OfiLink::library_text(std::int32_t error) const {
  if (error != error_message_too_long) return ofi::error_text(error);
  return "the message is longer than the " + std::to_string(longest_) + " bytes that libfabric's " +
         endpoint_.provider() + " takes; exchange it in parts, or choose fabric tcp or ucx";
}

// Memory.

OfiTraits::Registration OfiLink::map(const void* base, std::size_t bytes,
                                     std::int32_t& error) noexcept {
  if (!endpoint_.wants(FI_MR_LOCAL)) return {};
  const std::uint64_t key = endpoint_.wants(FI_MR_PROV_KEY) ? 0 : next_key_++;
  fid_mr* made = nullptr;
  error = -fi_mr_reg(endpoint_.domain.get(), base, bytes, FI_SEND | FI_RECV, /*offset=*/0, key,
                     /*flags=*/0, &made, nullptr);
  if (error != 0) return {};
  Registration registration(made);
  if (endpoint_.wants(FI_MR_ENDPOINT)) {
    error = -fi_mr_bind(made, &endpoint_.ep->fid, 0);
    if (error == 0) error = -fi_mr_enable(made);
    if (error != 0) return {};
  }
  return registration;
}

// Memory that was added costs a look-up; any other is registered for its one message.
std::int32_t OfiLink::lease(Message& message) noexcept {
  // A second try of the same message has it already.
  if (!endpoint_.wants(FI_MR_LOCAL) || message.bytes == 0 || message.own.descriptor != nullptr) {
    return 0;
  }
  std::int32_t error = 0;
  if (const Registration* const known = registered(message); known != nullptr) {
    message.own.descriptor = fi_mr_desc(known->get());
  } else if (Registration once = map(message.data, message.bytes, error); once != nullptr) {
    message.own.once = once.release();
    message.own.descriptor = fi_mr_desc(message.own.once);
  }
  return error;
}

// Posting.

std::int32_t OfiLink::submit(Message& message) noexcept {
  const fi_addr_t peer = peer_of(message.peer).route.address;
  if (message.kind == Kind::send && message.bytes <= inject_bytes_) return inject(message, peer);
  if (const std::int32_t error = lease(message); error != 0) return error;
  const std::int64_t result =
      message.kind == Kind::send
          ? fi_tsend(endpoint_.ep.get(), message.data, message.bytes, message.own.descriptor, peer,
                     message.tag, &message.own.context)
          : fi_trecv(endpoint_.ep.get(), message.data, message.bytes, message.own.descriptor,
                     is_directed_ ? peer : FI_ADDR_UNSPEC, message.tag, message.ignored,
                     &message.own.context);
  return static_cast<std::int32_t>(-result);
}

// A send whose memory is free at once. Unlike fi_tinject it reports its end, which tells when
// everything has left and whether it failed.
std::int32_t OfiLink::inject(Message& message, fi_addr_t peer) const noexcept {
  iovec data{.iov_base = message.data, .iov_len = message.bytes};
  void* descriptor = nullptr;
  fi_msg_tagged send{};
  send.msg_iov = &data;
  send.desc = &descriptor;
  send.iov_count = 1;
  send.addr = peer;
  send.tag = message.tag;
  send.context = &message.own.context;
  const std::int64_t result = fi_tsendmsg(endpoint_.ep.get(), &send, FI_INJECT | FI_COMPLETION);
  if (result == 0) answer(message, 0, message.bytes);
  return static_cast<std::int32_t>(-result);
}

// Progress.

std::optional<int> OfiLink::descriptor() const noexcept {
  if (endpoint_.wait_descriptor < 0) return std::nullopt;
  fid* queue = &endpoint_.cq->fid;
  if (fi_trywait(endpoint_.fabric.get(), &queue, 1) != 0) return std::nullopt;
  return endpoint_.wait_descriptor;
}

// Bounded, so that one call stays short.
bool OfiLink::poll() noexcept {
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
      for (std::int64_t i = 0; i < count; ++i) complete(entries[i]);
      if (count < static_cast<std::int64_t>(batch)) break;
    }
  }
  return moved;
}

void OfiLink::complete(const fi_cq_msg_entry& entry) noexcept {
  Message& message = *static_cast<Message*>(entry.op_context);
  if (message.kind == Kind::send) return ended(message, 0, message.bytes);
  ended(message, entry.len > message.bytes ? Transfer::truncated : 0, entry.len);
}

void OfiLink::read_error() noexcept {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(endpoint_.cq.get(), &entry, /*flags=*/0) <= 0) return;
  // Errors of a provider's own messages come without a context of ours.
  Message* found = nullptr;
  messages_.for_each([&](Message& message) {
    const bool is_under_way = message.state == State::posted || message.state == State::abandoned;
    if (&message == entry.op_context && is_under_way) found = &message;
  });
  if (found != nullptr) fail(*found, entry.err);
}

// When a message fails, the order of those that follow cannot be kept: the peer fails with it.
void OfiLink::fail(Message& message, std::int32_t error) noexcept {
  const std::int32_t rank = message.peer;
  if (message.cancelled || message.state == State::abandoned) return ended(message, error, 0);
  // Ranks differ; the connection stands.
  if (error == FI_ETRUNC) return ended(message, Transfer::truncated, 0);
  // Cancelled by the provider: its connection went.
  if (error == FI_ECANCELED) error = error_peer_lost;
  ended(message, error, 0);
  fail_peer(rank, error);
}

// Giving up.

// libfabric 1.17 crashes where a connection, or the endpoint, is closed while a message is fetched
// over TCP. It moves only when it is called: so nobody calls it again, and the memory is safe.
bool OfiLink::close(std::int32_t rank) noexcept {
  OfiTraits::Route& route = peer_of(rank).route;
  if (route.is_closed) return true;
  settle(rank);  // the ends of the receives that were cancelled
  is_left_ = endpoint_.provider() == "tcp;ofi_rxm" && has_posted(rank, Kind::recv);
  if (is_left_ || !endpoint_.closes_connections()) return false;
  route.is_closed = fi_av_remove(endpoint_.av.get(), &route.address, 1, /*flags=*/0) == 0;
  return route.is_closed;
}

// Registrations bound to the endpoint would keep it from closing; others are needed until then.
void OfiLink::quit() noexcept {
  if (is_left_) return;
  if (endpoint_.wants(FI_MR_ENDPOINT)) {
    messages_.for_each(drop);
    memory_.clear();
  }
  endpoint_.ep.reset();
}

std::unique_ptr<Link> open_link(const LinkOptions& options) {
  return std::make_unique<OfiLink>(options);
}

}  // namespace
}  // namespace rondo::transport::ofi

const rondo::transport::LinkPlugin rondo::transport::rondo_link_plugin = {
    .release = RONDO_VERSION,
    .open = rondo::transport::ofi::open_link,
    .describe = rondo::transport::ofi::describe_providers,
};
