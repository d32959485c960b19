// The state of a run as bytes, and as ranks of another number take it over.

#include "trainer/run_state.hpp"

#include <string_view>

#include <rondo/sync/scheme_base.hpp>

namespace rondo::train {
namespace {

constexpr std::string_view name = "progress";
constexpr std::uint32_t version = 4;

// Numbers, in the order in which `visit` is given them, written or read.
template <typename State, typename Visit>
void visit_numbers(State& state, Visit visit) {
  visit(state.step);
  visit(state.epoch);
  visit(state.epoch_first);
  visit(state.momenta_from);
  visit(state.best_accuracy);
  visit(state.seconds);
  visit(state.work);
  visit(state.synchronous);
  visit(state.trained_samples);
  visit(state.minibatch);
  visit(state.in_epoch);
  visit(state.losses);
  visit(state.traffic);
  visit_figures(state.last_epoch, [&](const char*, auto& number) { visit(number); });
}

}  // namespace

std::vector<std::byte> to_bytes(const RunState& state) {
  sync::ByteWriter writer(name, version);
  visit_numbers(state, [&]<typename T>(const T& number) {
    writer.put_array(std::span<const T>(&number, 1));
  });
  writer.put(static_cast<std::uint8_t>(state.epoch_open));
  writer.put_array(std::span<const char>(state.last_epoch.parameter_hash));
  return writer.take();
}

RunState read_run_state(std::span<const std::byte> bytes) {
  sync::ByteReader reader(bytes, name, version);
  RunState state;
  visit_numbers(state, [&]<typename T>(T& number) { reader.get_array(std::span<T>(&number, 1)); });
  state.epoch_open = reader.get<std::uint8_t>() != 0;
  const auto hash = reader.get_bytes();
  state.last_epoch.parameter_hash.assign(reinterpret_cast<const char*>(hash.data()), hash.size());
  reader.expect_end();
  return state;
}

RunState together(std::span<const RunState> ranks) {
  RunState all = ranks.front();
  for (const RunState& other : ranks.subspan(1)) {
    all.in_epoch = all.in_epoch + other.in_epoch;
    all.losses.own.add(other.losses.own);
    all.losses.window.add(other.losses.window);
    all.traffic.seconds += other.traffic.seconds;
    all.traffic.communicating += other.traffic.communicating;
    all.traffic.waiting += other.traffic.waiting;
    all.traffic.bytes += other.traffic.bytes;
  }
  const auto count = static_cast<double>(ranks.size());
  all.traffic.seconds /= count;
  all.traffic.communicating /= count;
  all.traffic.waiting /= count;
  all.in_epoch.global_reductions /= ranks.size();
  all.in_epoch.local_reductions /= ranks.size();
  all.in_epoch.lazy_reductions /= ranks.size();
  return all;
}

RunState without_sums(RunState state) {
  state.in_epoch.global_bytes = 0;
  state.in_epoch.local_bytes = 0;
  state.losses.own = {};
  state.losses.window = {};
  state.traffic.bytes = 0.0;
  return state;
}

}  // namespace rondo::train
