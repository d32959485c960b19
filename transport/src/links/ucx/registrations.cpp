#include "links/ucx/registrations.hpp"

#include <functional>

namespace rondo::transport::ucx {

ucs_status_t Registrations::add(ucp_context_h context, std::span<std::byte> memory) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory.data();
  params.length = memory.size();
  ucp_mem_h handle = nullptr;
  const ucs_status_t status = ucp_mem_map(context, &params, &handle);
  if (status == UCS_OK) registrations_.push_back({.memory = memory, .handle = handle});
  return status;
}

void Registrations::remove(ucp_context_h context, const void* base) {
  std::erase_if(registrations_, [&](const Registration& registration) {
    if (registration.memory.data() != base) return false;
    ucp_mem_unmap(context, registration.handle);
    return true;
  });
}

void Registrations::clear(ucp_context_h context) {
  for (const auto& registration : registrations_) ucp_mem_unmap(context, registration.handle);
  registrations_.clear();
}

ucp_mem_h Registrations::find(std::span<const std::byte> memory) const noexcept {
  const std::less_equal<const std::byte*> not_after;
  for (const auto& [known, handle] : registrations_) {
    if (not_after(known.data(), memory.data()) &&
        not_after(memory.data() + memory.size(), known.data() + known.size())) {
      return handle;
    }
  }
  return nullptr;
}

}  // namespace rondo::transport::ucx
