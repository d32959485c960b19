#include "launch/next_meeting.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "launch/meeting_point.hpp"

namespace rondo::tools {
namespace {

constexpr std::size_t most_characters = 512;

MeetingPoint another_like(const std::string& coordinator) {
  const std::string tcp = "tcp:";
  const std::size_t port = coordinator.rfind(':');
  if (!coordinator.starts_with(tcp) || port < tcp.size()) return meet_on_this_node();
  return meet_at(coordinator.substr(tcp.size(), port - tcp.size()));
}

}  // namespace

NextMeeting::NextMeeting(transport::World& world) {
  const char* now = std::getenv("RONDO_COORDINATOR");
  if (now == nullptr) return;
  std::vector<std::uint8_t> text(most_characters, 0);
  if (world.rank() == 0) {
    MeetingPoint point = another_like(now);
    std::copy_n(point.coordinator.begin(), std::min(point.coordinator.size(), text.size()),
                text.begin());
    listener_ = std::move(point.listener);
  }
  world.communicator().broadcast(std::span(text), 0).wait();
  world.communicator().barrier().wait();
  coordinator_.assign(text.begin(), std::ranges::find(text, std::uint8_t{0}));
}

void NextMeeting::prepare() const {
  if (coordinator_.empty()) return;
  setenv("RONDO_COORDINATOR", coordinator_.c_str(), 1);
  if (listener_.value() < 0) return;
  // The World takes it over.
  setenv("RONDO_LISTENER", std::to_string(listener_.release()).c_str(), 1);
}

}  // namespace rondo::tools
