#include "base/counters.hpp"

#include <cstdint>

namespace rondo::sync {

void write(ByteWriter& writer, const SchemeCounters& counters) {
  writer.put(counters.global_reductions);
  writer.put(counters.lazy_reductions);
  writer.put(counters.local_reductions);
  writer.put(counters.global_bytes);
  writer.put(counters.local_bytes);
  writer.put(counters.collectives);
  writer.put(counters.evaluation_reductions);
}

SchemeCounters read_counters(ByteReader& reader) {
  SchemeCounters counters;
  counters.global_reductions = reader.get<std::uint64_t>();
  counters.lazy_reductions = reader.get<std::uint64_t>();
  counters.local_reductions = reader.get<std::uint64_t>();
  counters.global_bytes = reader.get<std::uint64_t>();
  counters.local_bytes = reader.get<std::uint64_t>();
  counters.collectives = reader.get<std::uint64_t>();
  counters.evaluation_reductions = reader.get<std::uint64_t>();
  return counters;
}

SchemeCounters sum(const SchemeCounters& a, const SchemeCounters& b) noexcept {
  return {.global_reductions = a.global_reductions + b.global_reductions,
          .lazy_reductions = a.lazy_reductions + b.lazy_reductions,
          .local_reductions = a.local_reductions + b.local_reductions,
          .global_bytes = a.global_bytes + b.global_bytes,
          .local_bytes = a.local_bytes + b.local_bytes,
          .collectives = a.collectives + b.collectives,
          .evaluation_reductions = a.evaluation_reductions + b.evaluation_reductions};
}

}  // namespace rondo::sync
