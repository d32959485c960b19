#pragma once

#include <memory>
#include <string>

#include <rdma/fabric.h>

namespace rondo::transport::ofi {

struct FreeInfo {
  void operator()(fi_info* info) const noexcept;
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

/// A provider and the interface it is used over.
struct Choice {
  Info info;
  /// How receives name their sender: by its address where the provider's tags have fewer than 64
  /// bits, else by its rank in the tag's upper 16.
  bool directed = false;
};

/// What `provider` ("tcp" and "verbs" mean those under ofi_rxm; "" the best there is) offers over
/// one of the interfaces `devices` (comma-separated, the first that exists; "" any, loopback
/// last). Throws Failure with a list of what exists.
[[nodiscard]] Choice choose_provider(const std::string& provider, const std::string& devices);

/// "version 1.17", then "provider tcp;ofi_rxm over eth0, lo" a line, best first.
[[nodiscard]] std::string describe_providers();

}  // namespace rondo::transport::ofi
