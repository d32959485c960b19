#include "links/ucx/message.hpp"

namespace rondo::transport::ucx {

void reset(Message& message) noexcept {
  message = Message{.previous = nullptr,
                    .next = nullptr,
                    .transfer = nullptr,
                    .bytes = 0,
                    .status = UCS_OK,
                    .state = Message::State::posting,
                    .receives = false};
}

void complete(rondo_transfer& transfer, ucs_status_t status, std::uint64_t bytes) noexcept {
  transfer.handle = nullptr;
  transfer.context = nullptr;
  transfer.error = status == UCS_ERR_MESSAGE_TRUNCATED ? int{rondo_error_truncated} : status;
  transfer.bytes = status == UCS_OK ? bytes : 0;
  transfer.state = status == UCS_OK ? rondo_transfer_done : rondo_transfer_failed;
}

void MessageList::add(Message& message) noexcept {
  message.previous = nullptr;
  message.next = first_;
  if (first_ != nullptr) first_->previous = &message;
  first_ = &message;
}

void MessageList::remove(Message& message) noexcept {
  (message.previous != nullptr ? message.previous->next : first_) = message.next;
  if (message.next != nullptr) message.next->previous = message.previous;
}

}  // namespace rondo::transport::ucx
