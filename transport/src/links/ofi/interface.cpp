#include "links/ofi/interface.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>

namespace rondo::transport::ofi {
namespace {

constexpr std::uint32_t loopback_network = 127;

/// Its own address, if that is one of IP; libfabric's other formats say nothing here.
const sockaddr* ip_address(const fi_info& info) {
  const bool ip = info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN ||
                  info.addr_format == FI_SOCKADDR_IN6;
  return ip ? static_cast<const sockaddr*>(info.src_addr) : nullptr;
}

in_addr v4_of(const sockaddr& address) {
  return reinterpret_cast<const sockaddr_in&>(address).sin_addr;
}

const in6_addr& v6_of(const sockaddr& address) {
  return reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
}

bool equal(const sockaddr& a, const sockaddr& b) {
  if (a.sa_family != b.sa_family) return false;
  if (a.sa_family == AF_INET) return v4_of(a).s_addr == v4_of(b).s_addr;
  return a.sa_family == AF_INET6 && std::memcmp(&v6_of(a), &v6_of(b), sizeof(in6_addr)) == 0;
}

/// Has the network interface `name` the address `own`?
bool has_address(const std::string& name, const sockaddr& own) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(all, &::freeifaddrs);
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr && name == entry->ifa_name && equal(*entry->ifa_addr, own)) {
      return true;
    }
  }
  return false;
}

bool is(const char* name, const std::string& wanted) { return name != nullptr && wanted == name; }

int reach_v4(const sockaddr& address) {
  constexpr unsigned first_byte = 24;
  return ntohl(v4_of(address).s_addr) >> first_byte == loopback_network ? 1 : 4;
}

int reach_v6(const sockaddr& address) {
  const in6_addr& own = v6_of(address);
  if (IN6_IS_ADDR_LOOPBACK(&own)) return 0;
  return IN6_IS_ADDR_LINKLOCAL(&own) ? 2 : 3;
}

}  // namespace

bool is_over(const fi_info& info, const std::string& device) {
  if (is(info.domain_attr->name, device)) return true;
  const bool has_card = info.nic != nullptr && info.nic->device_attr != nullptr;
  if (has_card && is(info.nic->device_attr->name, device)) return true;
  const sockaddr* own = ip_address(info);
  return own != nullptr && has_address(device, *own);
}

int reach(const fi_info& info) {
  const sockaddr* own = ip_address(info);
  if (own == nullptr) return 4;
  return own->sa_family == AF_INET ? reach_v4(*own) : reach_v6(*own);
}

}  // namespace rondo::transport::ofi
