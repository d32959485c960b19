#pragma once

#include <string>

namespace rondo::transport::ucx {

/// What UCX calls the comma-separated network interfaces: the interfaces themselves, for tcp, and
/// the RDMA ports whose network device they are. "eth0" becomes "eth0,rxe0:1".
[[nodiscard]] std::string devices_of(const std::string& interfaces);

}  // namespace rondo::transport::ucx
