#pragma once

#include <string>

#include <rdma/fabric.h>

namespace rondo::transport::ofi {

/// Does `info` go over `device`: the name of a domain (lo, mlx5_0), of a network card, or of the
/// network interface that has its address?
[[nodiscard]] bool is_over(const fi_info& info, const std::string& device);

/// Orders offers of one provider: loopback reaches least, then link-local addresses, then IPv6.
[[nodiscard]] int reach(const fi_info& info);

}  // namespace rondo::transport::ofi
