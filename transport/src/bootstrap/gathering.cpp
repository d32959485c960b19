#include "bootstrap/gathering.hpp"

#include <utility>

namespace rondo::transport::rendezvous {

bool Gathering::take(std::size_t rank, Blob blob, Time deadline) {
  if (blob.round != round_ || came_[rank]) return false;
  if (arrived_ == 0) deadline_ = deadline;
  parts_[rank] = std::move(blob.bytes);
  came_[rank] = true;
  arrived_ += 1;
  return true;
}

std::optional<Blobs> Gathering::complete() {
  if (arrived_ != parts_.size()) return std::nullopt;
  Blobs all{.round = round_, .parts = std::exchange(parts_, std::vector<std::string>(arrived_))};
  came_.assign(came_.size(), false);
  arrived_ = 0;
  round_ += 1;
  deadline_ = Time::max();
  return all;
}

}  // namespace rondo::transport::rendezvous
