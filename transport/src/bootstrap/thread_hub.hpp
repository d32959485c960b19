#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "bootstrap/side_channel.hpp"

namespace rondo::transport::rendezvous {

/// The side channels of `ranks` ranks that are threads of this process, in rank order.
///
/// They share one hub, which lives until the last of them is gone.
///
/// - **Threads.** There is none of its own: news is heard on the thread of whoever tells it, or
///   of another who is telling the same rank at that moment; what was told before watch() is
///   heard inside watch(). A handler may tell(), but not destroy its own channel.
/// - **End.** A destructor waits for the handler that is being called, if any; afterwards
///   nothing is heard. A rank that leaves while others are in allgather() ends their wait.
[[nodiscard]] std::vector<std::unique_ptr<SideChannel>> make_thread_hub(
    int ranks, std::chrono::milliseconds rendezvous_deadline);

}  // namespace rondo::transport::rendezvous
