#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "links/link_v1.h"
#include "links/ofi/provider.hpp"

namespace rondo::transport::ofi {

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

/// Throws Failure.
[[nodiscard]] Endpoint open_endpoint(const rondo_link_options& options);

}  // namespace rondo::transport::ofi
