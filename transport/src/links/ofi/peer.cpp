#include "links/ofi/peer.hpp"

#include "links/ofi/errors.hpp"

namespace rondo::transport::ofi {

std::string address_blob(const Endpoint& endpoint) {
  std::string blob = endpoint.provider();
  blob += '\0';
  return blob + endpoint.name;
}

int Peer::connect(const Endpoint& endpoint, std::string_view blob) {
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
