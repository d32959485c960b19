#include "bootstrap/absent.hpp"

#include <cstddef>

namespace rondo::transport::rendezvous {

std::string absent(const std::vector<bool>& came) {
  // More names than these tell nobody anything.
  constexpr std::size_t most = 8;
  std::string names;
  std::size_t count = 0;
  for (std::size_t r = 0; r < came.size(); ++r) {
    if (came[r]) continue;
    count += 1;
    if (count <= most) names += (count > 1 ? ", " : "") + std::to_string(r);
  }
  if (count > most) names += " and " + std::to_string(count - most) + " more";
  return (count == 1 ? "rank " : "ranks ") + names + " of " + std::to_string(came.size()) +
         " did not come";
}

}  // namespace rondo::transport::rendezvous
