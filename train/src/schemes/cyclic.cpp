// The scheme cyclic from [update], and its decisions as files: turns that were recorded can be
// replayed in another run, in the same order.

#include "schemes/cyclic.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <rondo/sync/cyclic.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "schemes/make_scheme.hpp"

namespace rondo::train {
namespace {

using TurnKind = sync::Turn::Kind;

constexpr std::array turn_kinds = {TurnKind::push, TurnKind::skip, TurnKind::park};

TurnKind kind_of(std::string_view name) {
  for (const TurnKind kind : turn_kinds) {
    if (name_of(kind) == name) return kind;
  }
  throw std::invalid_argument("no such kind");
}

// Anything else than a turn of one of these workers is refused, whatever its form: the caller names
// file and line.
sync::Turn turn_of(const std::string& line, int workers) {
  const auto object = nlohmann::json::parse(line);
  const sync::Turn turn{.kind = kind_of(object.at("kind").get<std::string>()),
                        .worker = object.at("worker").get<int>(),
                        .minibatches = object.at("minibatches").get<int>()};
  if (turn.worker < 0 || turn.worker >= workers || turn.minibatches < 0) {
    throw std::invalid_argument("no such worker");
  }
  return turn;
}

}  // namespace

std::string_view name_of(sync::Turn::Kind kind) noexcept {
  switch (kind) {
    case TurnKind::push:
      return "push";
    case TurnKind::skip:
      return "skip";
    case TurnKind::park:
      return "park";
  }
  return "";
}

namespace {

constexpr const char* kind_of_gap = "gap";

[[noreturn]] void fail_to_append(const std::filesystem::path& file) {
  throw DataError(fmt::format(
      "{}: cannot be written ({}); give the run a folder that can be written to, with enough space",
      file.string(), std::generic_category().message(errno)));
}

}  // namespace

void append_token_trace(const std::filesystem::path& file, const std::vector<sync::Push>& turns) {
  // Appended epoch by epoch: a run that is killed leaves the turns of its whole epochs.
  std::ofstream stream(file, std::ios::app);
  for (const sync::Push& push : turns) {
    if (push.by_flush) continue;  // a replay may end elsewhere, or not yet
    const nlohmann::ordered_json line = {{"worker", push.turn.worker},
                                         {"kind", name_of(push.turn.kind)},
                                         {"minibatches", push.turn.minibatches}};
    stream << line.dump() << '\n';
  }
  stream.flush();
  if (!stream) fail_to_append(file);
}

void append_token_gap(const std::filesystem::path& file) {
  std::ofstream stream(file, std::ios::app);
  stream << nlohmann::ordered_json{{"kind", kind_of_gap}}.dump() << '\n';
  stream.flush();
  if (!stream) fail_to_append(file);
}

std::vector<sync::Turn> read_token_trace(const std::filesystem::path& file, int workers) {
  const auto refuse = [&](const char* why) {
    throw ConfigError("update.replay: " + file.string() + " " + why +
                      "; give the token_trace.jsonl of a run folder");
  };
  std::ifstream stream(file);
  if (!stream) refuse("cannot be read");
  std::vector<sync::Turn> turns;
  for (std::string line; std::getline(stream, line);) {
    if (nlohmann::json::parse(line, nullptr, false) == nlohmann::json{{"kind", kind_of_gap}}) {
      throw ConfigError("update.replay: " + file.string() +
                        ": turns of its run are missing, because the file was cut or removed when "
                        "the run went on; give the trace of another run");
    }
    try {
      turns.push_back(turn_of(line, workers));
    } catch (const std::exception&) {  // of JSON, or one's own
      throw ConfigError("update.replay: " + file.string() + ":" + std::to_string(turns.size() + 1) +
                        ": is no turn of one of " + std::to_string(workers) +
                        " workers; give the token_trace.jsonl of a run with as many ranks");
    }
  }
  if (stream.bad()) refuse("cannot be read");  // a folder opens as a file does
  if (turns.empty()) refuse("has no turns, so that nothing would be repeated");
  return turns;
}

namespace {

static_assert(std::is_trivially_copyable_v<sync::Push>);

// An allgather of unequal parts needs to know all sizes on every rank.
std::vector<std::size_t> bytes_by_rank(transport::World& world, std::size_t mine) {
  // Every rank has taken another number of turns.
  const std::array own{static_cast<std::int64_t>(mine)};
  std::vector<std::int64_t> all(static_cast<std::size_t>(world.size()));
  world.communicator().allgather(std::span<const std::int64_t>(own), std::span(all)).wait();
  return {all.begin(), all.end()};
}

// std::stable_sort would do, but for a warning of clang about the library that gcc 12 brings.
std::vector<sync::Push> by_version(const std::vector<sync::Push>& pushes) {
  std::vector<std::size_t> order(pushes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(pushes[i].version, i); });
  std::vector<sync::Push> sorted;
  for (const std::size_t i : order) sorted.push_back(pushes[i]);
  return sorted;
}

}  // namespace

// In the order of the versions of the model, which is that of the turns.
std::vector<sync::Push> gather_pushes(transport::World& world,
                                      const std::vector<sync::Push>& mine) {
  std::vector<std::uint8_t> own(mine.size() * sizeof(sync::Push));
  if (!own.empty()) std::memcpy(own.data(), mine.data(), own.size());
  const std::vector<std::size_t> counts = bytes_by_rank(world, own.size());
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  std::vector<std::uint8_t> bytes(total);
  world.communicator()
      .allgather(std::span<const std::uint8_t>(own), std::span(bytes),
                 std::span<const std::size_t>(counts))
      .wait();
  if (world.rank() != 0) return {};
  std::vector<sync::Push> all(total / sizeof(sync::Push));
  if (total > 0) std::memcpy(all.data(), bytes.data(), total);
  return by_version(all);
}

Scheme make_cyclic(const Experiment& experiment, SchemeParts& parts,
                   const SharedOptimizer& optimizer) {
  const Experiment::Update& update = experiment.update;
  sync::CyclicOptions options{.delay = update.delay,
                              .scaling = update.scaling,
                              .local_step = update.local_step,
                              .minibatch_cap = static_cast<int>(update.minibatch_cap),
                              .when_empty = update.when_empty,
                              .clip_norm = experiment.optimizer.clip_norm,
                              .epoch_samples = parts.epoch_samples,
                              .total_samples = parts.total_samples,
                              .script = std::move(parts.script)};
  if (Traces* const traces = parts.traces) {
    // Collected on the rank that took the turn; gathered and written at the end of an epoch.
    options.on_push = [traces](const sync::Push& push) { traces->pushes.push_back(push); };
  }
  return sync::make_cyclic(parts.replica, optimizer, options);
}

}  // namespace rondo::train
