#include "links/ucx/address.hpp"

#include <ucp/api/ucp.h>

#include <cstdint>
#include <cstring>

#include "links/ucx/errors.hpp"

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

std::string pack_address(std::span<const std::byte> worker) {
  const Head head = head_of(worker);
  std::string address(reinterpret_cast<const char*>(&head), sizeof head);
  address.append(reinterpret_cast<const char*>(worker.data()), worker.size());
  return address;
}

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
    return {.worker = {}, .error = unlike_versions};
  }
  return {.worker{reinterpret_cast<const char*>(worker.data()), worker.size()}, .error = 0};
}

}  // namespace rondo::transport::ucx
