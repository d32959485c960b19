// Which algorithm an allreduce between nodes takes: the table of sizes as text
// ("rd:0-16k;ring:16k-max"). Every part names an algorithm and a range of bytes. The ranges must
// follow each other without gaps, so that every size has one algorithm. AllreducePaths shows the
// same table and the same choice to who plans and does not run, so that a prediction changes from
// doubling to halving and to rings where a run does.

#include "collective/algorithms.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "collective/hierarchical/hierarchical.hpp"
#include "collective/team_work.hpp"

namespace rondo::transport {
namespace {

constexpr std::size_t max_bytes = std::numeric_limits<std::size_t>::max();

[[noreturn]] void reject(std::string_view text, const std::string& what) {
  throw std::invalid_argument("rondo::transport: allreduce table \"" + std::string(text) + "\": " +
                              what + "; expected something like \"rd:0-16k;ring:16k-max\"");
}

std::string quoted(std::string_view part) { return "\"" + std::string(part) + "\""; }

/// By AllreduceAlgorithm.
constexpr std::array<std::string_view, 3> names = {"rd", "rh", "ring"};
/// Before a name: between all ranks.
constexpr std::string_view flat_prefix = "flat-";

AllreduceAlgorithm algorithm_of(std::string_view name, std::string_view text) {
  std::string_view algorithm = name;
  if (name.starts_with(flat_prefix)) algorithm.remove_prefix(flat_prefix.size());
  const auto found = std::ranges::find(names, algorithm);
  if (found != names.end()) return static_cast<AllreduceAlgorithm>(found - names.begin());
  reject(text, "no algorithm " + quoted(name) +
                   ", there are rd, rh and ring, and flat-rd, flat-rh and flat-ring");
}

// 0: no such suffix.
unsigned shift_of(std::string_view suffix) {
  if (suffix == "k") return 10;
  if (suffix == "m") return 20;
  if (suffix == "g") return 30;
  return 0;
}

std::size_t bytes_of(std::string_view number, std::string_view text) {
  if (number == "max") return max_bytes;
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  const std::string_view suffix = number.substr(static_cast<std::size_t>(end - number.data()));
  const unsigned shift = shift_of(suffix);
  if (error != std::errc() || (shift == 0 && !suffix.empty()) || value > max_bytes >> shift) {
    reject(text, quoted(number) + " is not a number of bytes");
  }
  return value << shift;
}

// With the largest unit that divides it.
std::string print_bytes(std::size_t bytes) {
  if (bytes == max_bytes) return "max";
  for (const char* unit : {"g", "m", "k"}) {
    const unsigned shift = shift_of(unit);
    if (bytes > 0 && bytes % (std::size_t{1} << shift) == 0) {
      return std::to_string(bytes >> shift) + unit;
    }
  }
  return std::to_string(bytes);
}

}  // namespace

AlgorithmTable::AlgorithmTable() noexcept
    : ranges_{{{.algorithm = AllreduceAlgorithm::doubling, .end = std::size_t{16} << 10U},
               {.algorithm = AllreduceAlgorithm::ring, .end = max_bytes}}},
      count_(2) {}

namespace {

// So many bytes on the wire take as long as one message's latency. TCP between two network
// namespaces was measured with 8 us and 3.5 GB/s, that is 27 KiB; 1.5 us and 12 GB/s would be 18.
constexpr double bytes_of_latency = 16.0 * 1024.0;
// Bytes that are added while nothing moves, in bytes on the wire.
constexpr double cost_of_adding = 0.25;

// The cost of an allreduce of n bytes: so many messages one behind the other, and so many times n
// bytes on the wire.
struct Cost {
  double messages = 0.0;
  double bytes = 0.0;
};

// Rounds of doubling and halving, and what the pairs that fold add to them: as much as two rounds
// of doubling.
struct Rounds {
  double positions = 1.0;
  double count = 0.0;
  Cost folding = {};
};

Rounds rounds_of(std::size_t ranks) noexcept {
  const std::size_t positions = std::bit_floor(ranks);
  Rounds rounds{.positions = static_cast<double>(positions),
                .count = static_cast<double>(std::countr_zero(positions))};
  if (positions != ranks) {
    rounds.folding = {.messages = 2.0, .bytes = 2.0 * (1.0 + cost_of_adding)};
  }
  return rounds;
}

// All n bytes in each round, which are added before the next.
Cost cost_of_doubling(std::size_t ranks) noexcept {
  const auto [positions, count, folding] = rounds_of(ranks);
  return {.messages = count + folding.messages,
          .bytes = count * (1.0 + cost_of_adding) + folding.bytes};
}

// Each round has half the bytes of the one before, and is taken again on the way back, where
// nothing is added.
Cost cost_of_halving(std::size_t ranks) noexcept {
  const auto [positions, count, folding] = rounds_of(ranks);
  return {.messages = 2.0 * count + folding.messages,
          .bytes = (1.0 - 1.0 / positions) * (2.0 + cost_of_adding) + folding.bytes};
}

// Steps with n/P bytes each. They are added while others arrive, so that takes no time.
Cost cost_of_ring(std::size_t ranks) noexcept {
  const double steps = 2.0 * static_cast<double>(ranks - 1);
  return {.messages = steps, .bytes = steps / static_cast<double>(ranks)};
}

// The bytes from which on `second` is faster, which has more messages, but less time for each byte:
// whole KiB, at least one.
std::size_t crossing(const Cost& first, const Cost& second) noexcept {
  constexpr double kibibyte = 1024.0;
  const double bytes =
      bytes_of_latency * (second.messages - first.messages) / (first.bytes - second.bytes);
  return static_cast<std::size_t>(std::max(1.0, bytes / kibibyte)) * std::size_t{1024};
}

}  // namespace

// Each algorithm sends more messages than the one before it, and takes less time for each byte.
// Halving and the ring send nearly as many bytes; but halving adds while nothing moves, which a
// ring hides, and that alone makes the ring the faster one of long data. Between few ranks halving
// is never the fastest: between two it has a ring's messages, and between three and five to seven
// the pairs that fold cost more than it saves.
AlgorithmTable AlgorithmTable::for_ranks(std::size_t ranks) noexcept {
  AlgorithmTable table;
  if (ranks < 2) return table;
  const Cost doubling = cost_of_doubling(ranks);
  const Cost halving = cost_of_halving(ranks);
  const Cost ring = cost_of_ring(ranks);
  const std::size_t begin = crossing(doubling, halving);
  const std::size_t end = crossing(halving, ring);
  table.short_end_ = crossing(doubling, ring);
  if (begin >= end) {
    table.ranges_[0].end = table.short_end_;
    return table;
  }
  table.ranges_[0].end = begin;
  table.ranges_[1] = {.algorithm = AllreduceAlgorithm::halving, .end = end};
  table.ranges_[2] = {.algorithm = AllreduceAlgorithm::ring, .end = max_bytes};
  table.count_ = 3;
  return table;
}

AlgorithmTable AlgorithmTable::only(AllreduceAlgorithm algorithm) noexcept {
  AlgorithmTable table;
  table.ranges_[0] = {.algorithm = algorithm, .end = max_bytes};
  table.count_ = 1;
  return table;
}

// Checks every range against the end of the one before it.
AlgorithmTable AlgorithmTable::parse(std::string_view text) {
  AlgorithmTable table;
  table.count_ = 0;
  std::string_view rest = text;
  std::size_t begin = 0;
  while (begin != max_bytes) {
    const std::string_view part = rest.substr(0, rest.find(';'));
    const std::size_t colon = part.find(':');
    const std::size_t dash = part.find('-', std::min(part.size(), colon));
    if (colon == std::string_view::npos || dash == std::string_view::npos) {
      reject(text, part.empty() ? "it ends before max" : quoted(part) + " is not NAME:FROM-TO");
    }
    const std::string_view name = part.substr(0, colon);
    const AllreduceAlgorithm algorithm = algorithm_of(name, text);
    const std::string_view from = part.substr(colon + 1, dash - colon - 1);
    const std::size_t end = bytes_of(part.substr(dash + 1), text);
    if (bytes_of(from, text) != begin) {
      reject(text, quoted(part) + " must begin at " + print_bytes(begin));
    }
    if (end <= begin) reject(text, quoted(part) + " is empty");
    table.add({.algorithm = algorithm, .flat = name.starts_with(flat_prefix), .end = end}, text);
    begin = end;
    rest = rest.substr(std::min(rest.size(), part.size() + 1));
  }
  if (!rest.empty()) reject(text, quoted(rest) + " comes after max");
  return table;
}

void AlgorithmTable::add(Range range, std::string_view text) {
  if (count_ == most_ranges) {
    reject(text, "it has more than " + std::to_string(most_ranges) + " ranges");
  }
  ranges_[count_++] = range;
}

std::string AlgorithmTable::print() const {
  std::string text;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    const Range& range = ranges_[i];
    if (i > 0) text += ";";
    if (range.flat) text += flat_prefix;
    text += names[static_cast<std::size_t>(range.algorithm)];
    text += ":";
    text += print_bytes(begin);
    text += "-";
    text += print_bytes(range.end);
    begin = range.end;
  }
  return text;
}

AllreduceAlgorithm AlgorithmTable::pick(std::size_t bytes) const noexcept {
  return range_of(bytes).algorithm;
}

bool AlgorithmTable::is_short(std::size_t bytes) const noexcept {
  return bytes < short_end_ || pick(bytes) == AllreduceAlgorithm::doubling;
}

bool AlgorithmTable::is_flat(std::size_t bytes) const noexcept { return range_of(bytes).flat; }

const AlgorithmTable::Range& AlgorithmTable::range_of(std::size_t bytes) const noexcept {
  std::size_t i = 0;
  while (i + 1 < count_ && bytes >= ranges_[i].end) ++i;
  return ranges_[i];
}

void Group::equip(Team* threads, Counters& counts, const Channel& messages,
                  std::pmr::memory_resource& arena) {
  team = threads;
  counters = &counts;
  channel = &messages;
  scratch = Scratch(&arena);
  sources.resize(threads_of(team) * count());
  destinations.resize(count());
}

AllreducePaths::AllreducePaths(const std::string& table)
    : given_(table.empty() ? nullptr
                           : std::make_shared<const AlgorithmTable>(AlgorithmTable::parse(table))) {
}

AllreducePath AllreducePaths::of(std::size_t ends, std::size_t bytes) const noexcept {
  const AlgorithmTable table = given_ ? *given_ : AlgorithmTable::for_ranks(ends);
  return {.algorithm = table.pick(bytes), .flat = table.is_flat(bytes)};
}

std::size_t AllreducePaths::blocks(std::size_t bytes, std::size_t owners,
                                   std::size_t nodes) noexcept {
  return std::max(HierarchyPlan(bytes, owners, nodes).blocks(), std::size_t{1});
}

}  // namespace rondo::transport
