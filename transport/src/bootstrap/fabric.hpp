#pragma once

#include <memory>
#include <string>
#include <vector>

#include <rondo/transport/world.hpp>

#include "bootstrap/card.hpp"
#include "links/link.hpp"

namespace rondo::transport::rendezvous {

/// Which link joins the nodes of a job, the same on all ranks.
struct FabricChoice {
  std::string plugin;    ///< "ucx", "ofi", or "shm"
  std::string provider;  ///< what the user asked for, or empty
  std::string reason;    ///< why this one, for people
};

/// What `name` ("auto", "ucx", "ucx:tcp", "ofi:verbs", "shm") asks for.
/// Throws std::invalid_argument when it is none of these.
[[nodiscard]] FabricChoice parse_fabric(const std::string& name);

/// The plug-ins that work on this host, by preference; empty when `name` does not need one.
[[nodiscard]] std::string usable_plugins(const std::string& name);

/// Throws Error(rendezvous_failed) when the ranks have none in common, or not what was asked for.
[[nodiscard]] FabricChoice choose_fabric(const FabricOptions& options,
                                         const std::vector<AddressCard>& cards);

/// `link` with the delays of `options`, or as it is.
[[nodiscard]] std::unique_ptr<Link> with_injected_delays(std::unique_ptr<Link> link,
                                                         const FabricOptions& options);

}  // namespace rondo::transport::rendezvous
