#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "links/plugin.hpp"

namespace rondo::transport::ofi {

/// The text of an error for which links/engine.hpp has none.
[[nodiscard]] const char* error_text(std::int32_t error);

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

struct CloseObject {
  template <typename Object>
  void operator()(Object* object) const noexcept {
    fi_close(&object->fid);
  }
};
template <typename Object>
using Owned = std::unique_ptr<Object, CloseObject>;

/// libfabric's objects of one link, in the order they are made; closed in the opposite one.
/// Links share none, so those of several threads do not wait for each other.
struct Endpoint {
  Choice choice;
  Owned<fid_fabric> fabric;
  Owned<fid_domain> domain;
  Owned<fid_cq> cq;
  Owned<fid_av> av;
  Owned<fid_ep> ep;
  int wait_descriptor = -1;  ///< readable when the queue has something; -1: the provider has none
  std::string name;          ///< what fi_getname says: its address

  [[nodiscard]] const fi_info& info() const noexcept { return *choice.info; }
  /// Does the provider want `bit` of memory registration?
  [[nodiscard]] bool wants(int bit) const noexcept {
    return (info().domain_attr->mr_mode & bit) != 0;
  }
  [[nodiscard]] std::string provider() const { return info().fabric_attr->prov_name; }
  /// Can the connection to one peer be closed, and all others stay?
  [[nodiscard]] bool closes_connections() const;
};

/// Opens provider `options.provider` ("tcp" and "verbs" mean those under ofi_rxm; "" the best there
/// is) over one of the interfaces `options.device` (comma-separated, the first that exists; "" any,
/// loopback last). Throws OpenError, where something is missing with a list of what exists.
[[nodiscard]] Endpoint open_endpoint(const LinkOptions& options);

/// "version 1.17", then "provider tcp;ofi_rxm over eth0, lo" a line, best first. Throws OpenError.
[[nodiscard]] std::string describe_providers();

}  // namespace rondo::transport::ofi
