#pragma once

#include <filesystem>

#include <csignal>

#include <rondo/transport/world.hpp>

namespace rondo::tools {

/// While it lives, SIGUSR2 asks this rank for its flight record instead of ending it. At most one
/// in a process.
class DumpRequest {
 public:
  DumpRequest();
  DumpRequest(const DumpRequest&) = delete;
  DumpRequest& operator=(const DumpRequest&) = delete;
  ~DumpRequest();

  /// Writes flight-rankN.json to `folder` if it has been asked for since the last call. What
  /// goes wrong is said on stderr, and ends nothing.
  void answer(const transport::World& world, const std::filesystem::path& folder) const;

 private:
  struct sigaction previous_ = {};
};

}  // namespace rondo::tools
