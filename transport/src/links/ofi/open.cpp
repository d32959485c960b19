#include <algorithm>
#include <utility>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "links/ofi/endpoint.hpp"
#include "links/ofi/errors.hpp"
#include "links/ofi/library.hpp"

namespace rondo::transport::ofi {
namespace {

/// `result` of making `what`, 0 or negative.
void check(int result, const Endpoint& endpoint, const std::string& what) {
  if (result >= 0) return;
  throw Failure(-result, "libfabric's " + endpoint.provider() + " over " +
                             endpoint.info().domain_attr->name + " cannot make " + what + ": " +
                             library().strerror(-result));
}

void open_queue(Endpoint& endpoint) {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_MSG;
  attributes.wait_obj = FI_WAIT_FD;
  fid_cq* cq = nullptr;
  int result = fi_cq_open(endpoint.domain.get(), &attributes, &cq, nullptr);
  if (result == 0) {
    endpoint.cq.reset(cq);
    if (fi_control(&cq->fid, FI_GETWAIT, &endpoint.wait_descriptor) == 0) return;
    endpoint.wait_descriptor = -1;
    endpoint.cq.reset();
  }
  // Not all can: nobody sleeps on this link then.
  attributes.wait_obj = FI_WAIT_NONE;
  result = fi_cq_open(endpoint.domain.get(), &attributes, &cq, nullptr);
  check(result, endpoint, "a completion queue");
  endpoint.cq.reset(cq);
}

void open_addresses(Endpoint& endpoint, int size) {
  fi_av_attr attributes{};
  attributes.type = FI_AV_TABLE;
  attributes.count = static_cast<std::size_t>(size);
  fid_av* av = nullptr;
  check(fi_av_open(endpoint.domain.get(), &attributes, &av, nullptr), endpoint,
        "a table of addresses");
  endpoint.av.reset(av);
}

std::string name_of(const Endpoint& endpoint) {
  constexpr std::size_t longest = 512;
  std::string name(longest, '\0');
  std::size_t bytes = name.size();
  check(fi_getname(&endpoint.ep->fid, name.data(), &bytes), endpoint, "an address");
  name.resize(bytes);
  return name;
}

void enable(Endpoint& endpoint) {
  fid_ep* ep = nullptr;
  check(fi_endpoint(endpoint.domain.get(), endpoint.choice.info.get(), &ep, nullptr), endpoint,
        "an endpoint");
  endpoint.ep.reset(ep);
  check(fi_ep_bind(ep, &endpoint.av->fid, 0), endpoint, "an endpoint with addresses");
  check(fi_ep_bind(ep, &endpoint.cq->fid, FI_TRANSMIT | FI_RECV), endpoint,
        "an endpoint with a completion queue");
  check(fi_enable(ep), endpoint, "an enabled endpoint");
  endpoint.name = name_of(endpoint);
}

}  // namespace

bool Endpoint::closes_connections() const {
  return provider().ends_with(";ofi_rxm") && closes_removed_connections();
}

Endpoint open_endpoint(const rondo_link_options& options) {
  expect_ranks(options.size);
  Endpoint endpoint;
  endpoint.choice = choose_provider(options.provider, options.device);
  fi_info* info = endpoint.choice.info.get();
  fid_fabric* fabric = nullptr;
  check(library().fabric(info->fabric_attr, &fabric, nullptr), endpoint, "a fabric");
  endpoint.fabric.reset(fabric);
  fid_domain* domain = nullptr;
  check(fi_domain(fabric, info, &domain, nullptr), endpoint, "a domain");
  endpoint.domain.reset(domain);
  open_queue(endpoint);
  open_addresses(endpoint, options.size);
  enable(endpoint);
  return endpoint;
}

}  // namespace rondo::transport::ofi
