#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "bootstrap/environment.hpp"
#include "bootstrap/side_channel.hpp"

namespace rondo::transport::rendezvous {

/// What a rank has once all ranks have met at the store.
struct StoreMeeting {
  std::unique_ptr<SideChannel> channel = {};
  std::string interface = {};  ///< by which links should reach other hosts
};

/// Meets all ranks of a job that has a coordinator (Placement::coordinator).
///
/// Rank 0 serves the store on the inherited listener, or makes one; the others join it. The secret
/// comes from where read_secret() finds it; without one nobody listens or connects beyond loopback,
/// and both must be the same user's.
/// `interfaces` is a pattern as of select_interfaces(), or empty. Collective: it ends when every
/// rank has come. Throws Error(rendezvous_failed) that says who did not, or what is wrong here.
[[nodiscard]] StoreMeeting meet_at_store(const Placement& placement, std::string_view interfaces,
                                         std::chrono::milliseconds deadline);

}  // namespace rondo::transport::rendezvous
