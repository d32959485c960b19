#include "links/ofi/message.hpp"

#include <algorithm>

namespace rondo::transport::ofi {

Message& MessagePool::take() {
  if (free_ == nullptr) {
    blocks_.push_back(std::make_unique<Message[]>(block_size));
    for (std::size_t i = 0; i < block_size; ++i) give_back(blocks_.back()[i]);
  }
  Message& message = *free_;
  free_ = message.next;
  message.ignored = 0;
  message.cancelled = false;
  message.discards = false;
  return message;
}

void MessagePool::give_back(Message& message) noexcept {
  message.state = Message::State::unused;
  message.transfer = nullptr;
  message.next = free_;
  free_ = &message;
}

bool MessagePool::owns(const void* message) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(message);
  return std::ranges::any_of(blocks_, [&](const auto& block) {
    const auto first = reinterpret_cast<std::uintptr_t>(block.get());
    return first <= address && address < first + block_size * sizeof(Message);
  });
}

}  // namespace rondo::transport::ofi
