#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bootstrap/environment.hpp"

namespace rondo::transport::rendezvous {

/// What RONDO_COORDINATOR says: the job, and where its store is unless the job is local.
struct Coordinator {
  std::string job = {};
  std::optional<Endpoint> endpoint = {};
};

/// Nothing when `text` is neither "local:JOB" nor "tcp:HOST:PORT/JOB".
[[nodiscard]] std::optional<Coordinator> parse_coordinator(std::string_view text);

}  // namespace rondo::transport::rendezvous
