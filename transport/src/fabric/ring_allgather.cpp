#include "fabric/ring_allgather.hpp"

#include "fabric/chunks.hpp"
#include "node/columns.hpp"

namespace rondo::transport {

RingAllgather::RingAllgather(Group& group, const Posted& posted)
    : RingOperation(group, posted, RingHalves::allgather, longest_chunk(posted, group.count())) {}

// Only the own share is given.
ConstBlock RingAllgather::given(const Group& /*group*/, const Posted& posted,
                                std::size_t /*chunk*/) const {
  return posted.input;
}

Block RingAllgather::result(const Group& /*group*/, const Posted& posted, std::size_t chunk) const {
  return column_of(posted.output, posted, chunk);
}

}  // namespace rondo::transport
