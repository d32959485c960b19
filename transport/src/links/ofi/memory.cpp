#include "links/ofi/memory.hpp"

#include <iterator>

namespace rondo::transport::ofi {

int Memory::add(void* base, std::size_t bytes) {
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

void Memory::remove(void* base) { regions_.erase(reinterpret_cast<std::uintptr_t>(base)); }

int Memory::lease(const void* data, std::size_t bytes, Lease& lease) {
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

void Memory::drop(Lease& lease) noexcept {
  if (lease.once != nullptr) fi_close(&lease.once->fid);
  lease = {};
}

int Memory::register_memory(const void* base, std::size_t bytes, fid_mr*& registration) {
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

}  // namespace rondo::transport::ofi
