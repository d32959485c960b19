#pragma once

#include <memory>
#include <string>
#include <vector>

#include <rondo/transport/world.hpp>

#include "bootstrap/candidates.hpp"
#include "bootstrap/fabric.hpp"
#include "bootstrap/side_channel.hpp"
#include "message/link.hpp"

namespace rondo::transport::bootstrap {

/// The link by which the nodes are joined.
struct ChosenLink {
  std::unique_ptr<Link> link;
  std::string reason;  ///< why this one, and what was left out; for people
};

/// Tries the ways to join `nodes`, the best first, until one carries messages between them.
///
/// Collective over all ranks. Throws Error(link_unavailable) when none does.
[[nodiscard]] ChosenLink choose_link(SideChannel& channel, const JobRank& self,
                                     const FabricOptions& options, const Membership& membership,
                                     const std::vector<HostOffers>& nodes);

}  // namespace rondo::transport::bootstrap
