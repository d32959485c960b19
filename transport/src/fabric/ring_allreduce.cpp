#include "fabric/ring_allreduce.hpp"

#include "fabric/chunks.hpp"
#include "node/rows.hpp"
#include "node/slices.hpp"

namespace rondo::transport {
RingAllreduce::RingAllreduce(Group& group, const Posted& posted)
    : RingOperation(group, posted, RingHalves::both, longest_chunk(posted, group.count())) {}

ConstBlock RingAllreduce::given(const Group& group, const Posted& posted, std::size_t chunk) const {
  return part_of(posted.input, allreduce_chunk(posted.input.bytes(), group.count(), chunk));
}

Block RingAllreduce::result(const Group& group, const Posted& posted, std::size_t chunk) const {
  return part_of(posted.output, allreduce_chunk(posted.output.bytes(), group.count(), chunk));
}

}  // namespace rondo::transport
