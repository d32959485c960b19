#include "schemes/averaging_place.hpp"

namespace rondo::sync {

void write(ByteWriter& writer, const AveragingPlace& place) {
  writer.put(static_cast<std::uint8_t>(place.started));
  writer.put(place.updates);
  writer.put(place.round);
  writer.put(place.steps);
  writer.put(place.samples);
  writer.put(place.own_samples);
}

AveragingPlace read_place(ByteReader& reader) {
  AveragingPlace place;
  place.started = reader.get<std::uint8_t>() != 0;
  place.updates = reader.get<std::int64_t>();
  place.round = reader.get<std::int64_t>();
  place.steps = reader.get<std::int64_t>();
  place.samples = reader.get<std::int64_t>();
  place.own_samples = reader.get<std::int64_t>();
  return place;
}

}  // namespace rondo::sync
