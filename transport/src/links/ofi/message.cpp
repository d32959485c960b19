// What a link keeps of its memory, its messages and its peers.

#include "links/ofi/message.hpp"

#include <algorithm>
#include <iterator>

namespace rondo::transport::ofi {

// An arena that has grown is registered anew as a whole; older registrations stay for messages that
// use them.
int OfiMemory::add(void* base, std::size_t bytes) {
  if (!needed_) return 0;
  Region& region = regions_[reinterpret_cast<std::uintptr_t>(base)];
  if (region.bytes >= bytes) return 0;
  fid_mr* registration = nullptr;
  const int error = register_memory(base, bytes, registration);
  if (error != 0) return error;
  region.registrations.emplace_back(registration);
  region.bytes = bytes;
  return 0;
}

int OfiMemory::lease(const void* data, std::size_t bytes, Lease& lease) {
  lease = {};
  if (!needed_ || bytes == 0) return 0;
  const auto first = reinterpret_cast<std::uintptr_t>(data);
  const auto after = regions_.upper_bound(first);
  if (after != regions_.begin()) {
    const auto& [base, region] = *std::prev(after);
    if (first - base + bytes <= region.bytes) {
      lease.descriptor = fi_mr_desc(region.registrations.back().get());
      return 0;
    }
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

}  // namespace rondo::transport::ofi
