#include "links/ofi/message.hpp"

#include <algorithm>
#include <functional>

namespace rondo::transport::ofi {

Message& MessagePool::take() {
  if (free_ == nullptr) {
    blocks_.push_back(std::make_unique<Message[]>(block_size));
    for (std::size_t i = 0; i < block_size; ++i) give_back(blocks_.back()[i]);
  }
  Message& message = *free_;
  free_ = message.next;
  message.cancelled = false;
  return message;
}

void MessagePool::give_back(Message& message) noexcept {
  message.state = Message::State::unused;
  message.transfer = nullptr;
  message.next = free_;
  free_ = &message;
}

bool MessagePool::owns(const void* message) const noexcept {
  const std::less_equal<const void*> before;
  return std::any_of(blocks_.begin(), blocks_.end(), [&](const auto& block) {
    return before(block.get(), message) && before(message, block.get() + block_size - 1);
  });
}

}  // namespace rondo::transport::ofi
