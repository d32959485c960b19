// The state of one worker at rest. The store is in that of the token's holder.

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/byte_reader.hpp"
#include "base/byte_writer.hpp"
#include "base/counters.hpp"
#include "schemes/cyclic_scheme.hpp"

namespace rondo::sync {
namespace {

constexpr std::string_view cyclic_state_name = "cyclic";
constexpr std::uint32_t cyclic_state_version = 3;

}  // namespace

std::vector<std::byte> CyclicScheme::save() const {
  iteration_.expect_between("save()");
  expect_rest("save()");
  ByteWriter writer(cyclic_state_name, cyclic_state_version);
  writer.put(workers_.rank());
  writer.put(workers_.size());
  writer.put(started_);
  write(writer, counters_);
  writer.put(static_cast<std::uint64_t>(script_.position()));
  writer.put(updates_before_);
  writer.put(rest_.parked);
  writer.put(rest_.holder);
  writer.put(rest_.version);
  writer.put(rest_.samples);
  writer.put(pulled_.version);
  writer.put(pulled_.samples);
  writer.put(pending_.batches);
  writer.put(pending_.minibatches);
  writer.put(pending_.samples);
  writer.put(pending_.learning_rate);
  writer.put_array(std::span<const float>(pending_.sum));
  if (!started_) {
    writer.put_array(std::span<const std::byte>(optimizer_->save()));
  } else if (holds()) {
    writer.put_array(open_ ? store_.all() : std::span<const float>(restored_));
  }
  return writer.take();
}

void CyclicScheme::expect_own(int rank, int size) const {
  if (rank == workers_.rank() && size == workers_.size()) return;
  throw std::invalid_argument("state of cyclic: of worker " + std::to_string(rank) + " of " +
                              std::to_string(size) + ", but this is worker " +
                              std::to_string(workers_.rank()) + " of " +
                              std::to_string(workers_.size()));
}

void CyclicScheme::restore(std::span<const std::byte> state) {
  iteration_.expect_between("restore()");
  expect_rest("restore()");
  ByteReader reader(state, cyclic_state_name, cyclic_state_version);
  const auto rank = reader.get<int>();
  expect_own(rank, reader.get<int>());
  const auto started = reader.get<bool>();
  if (started_ && !started) {
    throw std::logic_error("cyclic: a state from before the first step, after it");
  }
  const SchemeCounters counters = read_counters(reader);
  const auto script_position = reader.get<std::uint64_t>();
  const auto updates_before = reader.get<std::int64_t>();
  Rest rest;
  rest.parked = reader.get<bool>();
  rest.holder = reader.get<int>();
  rest.version = reader.get<std::int64_t>();
  rest.samples = reader.get<std::int64_t>();
  Pulled pulled;
  pulled.version = reader.get<std::int64_t>();
  pulled.samples = reader.get<std::int64_t>();
  Pending pending;
  pending.batches = reader.get<double>();
  pending.minibatches = reader.get<int>();
  pending.samples = reader.get<std::int64_t>();
  pending.learning_rate = reader.get<double>();
  pending.sum.resize(pending_.sum.size());
  reader.get_array(std::span(pending.sum));
  std::vector<float> store(started && rest.holder == rank ? store_.all().size() : 0);
  if (started && rest.holder == rank) reader.get_array(std::span(store));
  const auto optimizer_state = started ? std::span<const std::byte>() : reader.get_bytes();
  reader.expect_end();
  if (!started) optimizer_->restore(optimizer_state);  // from here on nothing throws
  counters_ = counters;
  script_.set_position(static_cast<std::size_t>(script_position));
  updates_before_ = updates_before;
  rest_ = rest;
  pulled_ = pulled;
  pending_ = std::move(pending);
  restored_ = std::move(store);
  started_ = started;
  open_ = false;
}

}  // namespace rondo::sync
