#pragma once

#include <string>

#include "launch/descriptor.hpp"

namespace rondo::transport {
class World;
}

namespace rondo::tools {

/// Lets the ranks of a job meet once more, for a World with other settings. The environment names
/// one meeting; this makes another of the same kind, at another port and with another job id.
class NextMeeting {
 public:
  /// Collective over `world`, which is to end before prepare().
  explicit NextMeeting(transport::World& world);

  /// Changes this process' environment: the next World::attach() goes to the new meeting.
  void prepare() const;

 private:
  std::string coordinator_ = {};  // empty: there is no launcher, and nobody to meet
  mutable Descriptor listener_ = {};
};

}  // namespace rondo::tools
