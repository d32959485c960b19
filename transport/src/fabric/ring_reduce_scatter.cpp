#include "fabric/ring_reduce_scatter.hpp"

#include "fabric/chunks.hpp"
#include "node/columns.hpp"

namespace rondo::transport {

RingReduceScatter::RingReduceScatter(Group& group, const Posted& posted)
    : RingOperation(group, posted, RingHalves::reduce_scatter,
                    longest_chunk(posted, group.count())) {}

ConstBlock RingReduceScatter::given(const Group& /*group*/, const Posted& posted,
                                    std::size_t chunk) const {
  return column_of(posted.input, posted, chunk);
}

Block RingReduceScatter::result(const Group& /*group*/, const Posted& posted,
                                std::size_t /*chunk*/) const {
  return posted.output;
}

}  // namespace rondo::transport
