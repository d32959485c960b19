// Another rank as UCX reaches it: its address, its endpoint, and the messages in flight with it.

#include "links/ucx/peer.hpp"

#include <cstring>

#include "links/ucx/context.hpp"

namespace rondo::transport::ucx {
namespace {

// Little endian, as UCX's own addresses: nodes of unlike byte order cannot talk anyway.
struct Head {
  char mark[4] = {'r', 'u', 'c', 'x'};
  std::uint32_t major_version = 0;
  std::uint64_t worker_bytes = 0;
  std::uint64_t check = 0;
};

// FNV-1a: an address that was cut or mixed up must not reach UCX.
std::uint64_t hash_of(std::span<const std::byte> data) noexcept {
  std::uint64_t hash = 14'695'981'039'346'656'037U;
  for (const std::byte byte : data) {
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 1'099'511'628'211U;
  }
  return hash;
}

Head head_of(std::span<const std::byte> worker) noexcept {
  Head head;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&head.major_version, &minor, &release);
  head.worker_bytes = worker.size();
  head.check = hash_of(worker);
  return head;
}

}  // namespace

void reset(UcxMessage& message) noexcept {
  message = UcxMessage{.previous = nullptr,
                       .next = nullptr,
                       .transfer = nullptr,
                       .bytes = 0,
                       .status = UCS_OK,
                       .state = UcxMessage::State::posting,
                       .receives = false};
}

void complete(Transfer& transfer, ucs_status_t status, std::uint64_t bytes) noexcept {
  transfer.end(status == UCS_ERR_MESSAGE_TRUNCATED ? Transfer::truncated : std::int32_t{status},
               bytes);
}

void UcxMessageList::add(UcxMessage& message) noexcept {
  message.previous = nullptr;
  message.next = first_;
  if (first_ != nullptr) first_->previous = &message;
  first_ = &message;
}

void UcxMessageList::remove(UcxMessage& message) noexcept {
  (message.previous != nullptr ? message.previous->next : first_) = message.next;
  if (message.next != nullptr) message.next->previous = message.previous;
}

ucs_status_t UcxPeer::open(ucp_worker_h worker, ucp_err_handling_mode_t mode, bool& failed) {
  if (endpoint_ != nullptr || status_ != UCS_OK) return status_;
  if (!known()) return UCS_ERR_UNREACHABLE;
  failed_ = &failed;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address_.data());
  params.err_mode = mode;
  params.err_handler = {.cb = &UcxPeer::report, .arg = this};
  const ucs_status_t status = ucp_ep_create(worker, &params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
    status_ = status;
  }
  return status_;
}

// UCX calls this when the connection breaks. It is closed later, by progress().
void UcxPeer::report(void* peer, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  UcxPeer& self = *static_cast<UcxPeer*>(peer);
  if (self.status_ == UCS_OK) self.status_ = status;
  *self.failed_ = true;
}

// The endpoint is not used any more, but its messages may end until the request is complete.
void UcxPeer::close(unsigned flags, ucs_status_t why) {
  if (status_ == UCS_OK) status_ = why;
  if (endpoint_ == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.flags = flags;
  params.cb.send = &UcxPeer::end_close;
  params.user_data = this;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint_, &params);
  endpoint_ = nullptr;
  closing_ = UCS_PTR_IS_PTR(request);
}

void UcxPeer::end_close(void* request, ucs_status_t /*status*/, void* peer) {
  static_cast<UcxPeer*>(peer)->closing_ = false;
  ucp_request_free(request);
}

std::string pack_address(std::span<const std::byte> worker) {
  const Head head = head_of(worker);
  std::string address(reinterpret_cast<const char*>(&head), sizeof head);
  address.append(reinterpret_cast<const char*>(worker.data()), worker.size());
  return address;
}

// UCX trusts what it gets, so everything is checked before.
UnpackedAddress unpack_address(std::span<const std::byte> address) {
  Head head;
  if (address.size() <= sizeof head) return {.worker = {}, .error = not_an_address};
  std::memcpy(&head, address.data(), sizeof head);
  const auto worker = address.subspan(sizeof head);
  const Head expected = head_of(worker);
  if (std::memcmp(head.mark, expected.mark, sizeof head.mark) != 0 ||
      head.worker_bytes != expected.worker_bytes || head.check != expected.check) {
    return {.worker = {}, .error = not_an_address};
  }
  if (head.major_version != expected.major_version) {
    return {.worker = {}, .error = other_version};
  }
  return {.worker{reinterpret_cast<const char*>(worker.data()), worker.size()}, .error = 0};
}

}  // namespace rondo::transport::ucx
