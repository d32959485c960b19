// An average that overlaps with the local steps after it. The rank's displacement is copied and
// posted, and its parameters at that moment are kept: so the steps that it makes meanwhile are
// known as a difference when the mean has arrived, and can be made again from the parameters that
// all ranks have then in common.

#include "schemes/average_under_way.hpp"

#include <algorithm>
#include <cstdint>

#include "flat/flat.hpp"

namespace rondo::sync {

void AverageUnderWay::post(transport::Communicator& group, std::span<const float> start,
                           float weight, const Round& round, std::span<float> unsent) {
  std::ranges::copy(replica_.parameters, left_from_.begin());
  mean_.pack(start, {}, weight);
  mean_.post(group, unsent);
  round_ = round;
  posted_ = true;
}

PackedMean& AverageUnderWay::arrived() {
  mean_.wait();
  return mean_;
}

std::pair<Round, double> AverageUnderWay::take() noexcept {
  posted_ = false;
  return {round_, std::exchange(rates_, 0.0)};
}

// Where no step has been made the difference is exactly 0.
void AverageUnderWay::move_to(std::span<float> parameters, std::span<const float> common) const {
  flat::subtract(parameters, parameters, left_from_);
  flat::add(parameters, common);
}

// A saved run goes on with the mean, not with the message.
void AverageUnderWay::write(ByteWriter& writer) {
  writer.put(posted_);
  if (!posted_) return;
  PackedMean& mean = arrived();
  writer.put_array(std::span<const float>(mean.displacement()));
  writer.put_array(std::span<const float>(mean.statistics()));
  writer.put_array(std::span<const float>(left_from_));
  for (const std::int64_t value : {round_.index, round_.steps, round_.samples, round_.last_step}) {
    writer.put(value);
  }
  writer.put(rates_);
}

std::function<void()> AverageUnderWay::read(ByteReader& reader) {
  const bool posted = reader.get<std::uint8_t>() != 0;
  std::vector<float> displacement(posted ? replica_.parameters.size() : 0);
  std::vector<float> statistics(posted ? replica_.statistics.size() : 0);
  std::vector<float> left_from(displacement.size());
  Round round;
  double rates = 0.0;
  if (posted) {
    for (std::vector<float>* values : {&displacement, &statistics, &left_from}) {
      reader.get_array(std::span(*values));
    }
    for (std::int64_t* value : {&round.index, &round.steps, &round.samples, &round.last_step}) {
      *value = reader.get<std::int64_t>();
    }
    rates = reader.get<double>();
  }
  return [=, this] {
    PackedMean& mean = arrived();  // of the run that ends here
    std::ranges::copy(displacement, mean.displacement().begin());
    std::ranges::copy(statistics, mean.statistics().begin());
    std::ranges::copy(left_from, left_from_.begin());
    round_ = round;
    rates_ = rates;
    posted_ = posted;
  };
}

}  // namespace rondo::sync
