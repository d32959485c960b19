// Takes the measurements of a bench: for each size, kind of memory and form (in place or not) an
// operation is made, checked, timed, and checked again.
//
// An iteration's time is that of its slowest rank. Ranks wait for each other at the starting line
// before each timed region, so that no rank's time contains the lateness of another. With a limit,
// operation and limit are measured in turn, because the speed of memory drifts.
//
// The report says what the measurements were made with (stderr), gives the numbers (stdout), and
// says what is wrong with them (stderr, and the exit status).

#include "bench/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory_resource>
#include <span>
#include <stdexcept>
#include <string_view>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/links.hpp>
#include <rondo/transport/world.hpp>

#include "bench/shared_block.hpp"
#include "machine.hpp"
#include "say.hpp"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

// In which operation and limit take turns.
constexpr int most_rounds = 5;

// Large messages take long and vary little: fewer iterations are enough.
int iterations_for(std::size_t bytes, const Bench& bench) {
  if (bench.iterations > 0) return bench.iterations;
  constexpr std::size_t kibibyte = 1024;
  if (bytes < 64 * kibibyte) return most_iterations;
  return bytes < 4 * kibibyte * kibibyte ? 300 : least_iterations;
}

// Iterations before so many, that do not count.
int warm_up_for(int iterations, const Bench& bench) {
  return bench.warm_up < 0 ? iterations / 10 + 2 : bench.warm_up;
}

// Pages of ordinary memory that the arena adopts.
class AdoptedPages final : public std::pmr::memory_resource {
 public:
  explicit AdoptedPages(transport::World& world) : world_(world) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* pages = std::pmr::new_delete_resource()->allocate(bytes, std::max(alignment, page));
    adopted_.emplace(pages, world_.adopt({static_cast<std::byte*>(pages), bytes}));
    return pages;
  }
  void do_deallocate(void* pages, std::size_t bytes, std::size_t alignment) override {
    adopted_.erase(pages);
    std::pmr::new_delete_resource()->deallocate(pages, bytes, std::max(alignment, page));
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  static constexpr std::size_t page = 4096;
  transport::World& world_;
  std::map<void*, transport::AdoptedMemory> adopted_;
};

// Takes measurements. All ranks call the same.
class Sampler {
 public:
  Sampler(transport::World& world, StartingLine& line) : world_(world), line_(line) {}

  // Appends the time of each iteration in microseconds, of one call, that of the slowest rank.
  // Ranks wait at the starting line before each timed region.
  void sample(BenchOperation& operation, int iterations, int warm_up, BufferUse use,
              std::vector<double>& times) {
    // A run may post several operations, where one alone is shorter than a look at the clock.
    const int calls = operation.facts().calls;
    own_.clear();
    own_.reserve(static_cast<std::size_t>(iterations));
    // Iterations before zero do not count: caches, pages and connections warm up.
    for (int i = -warm_up; i < iterations; ++i) {
      if (use != BufferUse::untouched) operation.rewrite();
      line_.wait();
      const auto start = Clock::now();
      operation.run();
      if (use == BufferUse::read_back) operation.read_back();
      const Microseconds time = Clock::now() - start;
      if (i >= 0) own_.push_back(time.count() / calls);
    }
    // Once for all iterations, outside of the timed regions: the maximum over ranks of each.
    world_.communicator().allreduce(std::span(own_), transport::ReduceOp::max).wait();
    times.insert(times.end(), own_.begin(), own_.end());
  }

  // Runs it once on buffers that were wrong before; the wrong elements of all ranks.
  [[nodiscard]] std::int64_t check(BenchOperation& operation) {
    // Else a result that was right before would hide an operation that does nothing.
    operation.spoil();
    operation.rewrite();
    line_.wait();
    operation.run();
    std::array<std::int64_t, 1> wrong = {operation.count_wrong()};
    world_.communicator().allreduce(std::span<std::int64_t>(wrong)).wait();
    return wrong[0];
  }

 private:
  transport::World& world_;
  StartingLine& line_;
  std::vector<double> own_ = {};
};

// The ranks that an operation runs on.
struct Team {
  transport::Communicator* ranks = nullptr;
  std::vector<int> members = {};
  std::optional<transport::Communicator> group = {};
};

// Rank r is in group r modulo the number of groups; without groups all are one team.
void form(Team& team, transport::World& world, const Bench& bench) {
  const bool several = bench.kind->ranks == BenchRanks::groups;
  const int step = several ? bench.groups : 1;
  if (several) team.group = world.communicator().split(world.rank() % step);
  team.ranks = several ? &*team.group : &world.communicator();
  for (int rank = world.rank() % step; rank < world.size(); rank += step) {
    team.members.push_back(rank);
  }
}

BenchSetting setting_of(const Bench& bench, const Team& team, transport::World& world) {
  BenchSetting setting;
  setting.ranks = team.ranks;
  setting.members = team.members;
  setting.type = bench.type;
  setting.reduction = bench.reduction;
  setting.first = bench.first;
  setting.second = bench.peer < 0 ? world.size() - 1 : bench.peer;
  setting.both_ways = bench.both_ways;
  return setting;
}

// Groups may differ in size, and a rank alone moves nothing. All ranks must have the same row, and
// with it one verdict: the largest factor is that of the largest group.
double largest_factor(transport::World& world, double own) {
  std::array<double, 1> factor = {own};
  world.communicator().allreduce(std::span<double>(factor), transport::ReduceOp::max).wait();
  return factor[0];
}

// Takes the measurements of one row.
BenchRow measure_row(transport::World& world, StartingLine& line, const Bench& bench,
                     const BenchSetting& setting) {
  const auto operation = bench.kind->make(setting);
  const BenchFacts facts = operation->facts();
  const int iterations = iterations_for(facts.bytes * static_cast<std::size_t>(facts.calls), bench);
  Sampler sampler(world, line);

  BenchRow row;
  row.wrong = sampler.check(*operation);
  std::vector<double> times;
  if (bench.limit) {
    const auto limit = make_one_pass(*line.memory(), setting);
    std::vector<double> limits;
    // Every round warms up anew, because the other operation has used the caches meanwhile.
    for (const int share : rounds_of(iterations)) {
      sampler.sample(*operation, share, warm_up_for(share, bench), bench.use, times);
      sampler.sample(*limit, share, warm_up_for(share, bench), bench.use, limits);
    }
    row.wrong += sampler.check(*limit);
    row.limit_us = summarize(std::move(limits)).median_us;
  } else {
    sampler.sample(*operation, iterations, warm_up_for(iterations, bench), bench.use, times);
  }
  // Checked again after the timed iterations: an operation may go wrong only when it is repeated.
  row.wrong += sampler.check(*operation);
  row.time = summarize(std::move(times));
  row.bytes = facts.bytes;
  row.count = facts.count;
  row.bus_factor = largest_factor(world, facts.bus_factor);
  row.ranks = world.size();
  if (world.nodes() > 1) row.injected = injected_delays();
  return row;
}

// Names a row for tables; operations without data have no type and no memory.
void name(BenchRow& row, const Bench& bench, BenchMemory memory, bool in_place) {
  const bool has_data = !bench.kind->sizes.empty();
  row.type = has_data ? name_of(element_types, bench.type) : "none";
  row.op = bench.kind->reduces ? name_of(reductions, bench.reduction) : "none";
  row.memory = memory == BenchMemory::arena     ? "arena"
               : memory == BenchMemory::adopted ? "adopted"
                                                : "private";
  row.place = in_place ? "in" : "out";
  if (!has_data) row.memory = row.place = "none";
}

// "0" and "0.0" inject nothing.
std::string amount(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && std::strtod(text, nullptr) > 0.0 ? text : "";
}

// As the header says it.
std::string_view text_of(BufferUse use) {
  if (use == BufferUse::untouched) return "untouched";
  return use == BufferUse::rewritten ? "rewritten" : "rewritten and read back";
}

// "allreduce of f32, sum, buffers rewritten"
std::string what_is_measured(const Bench& bench) {
  std::string text(bench.kind->name);
  if (!bench.kind->sizes.empty()) text += fmt::format(" of {}", name_of(element_types, bench.type));
  if (bench.kind->reduces) text += fmt::format(", {}", name_of(reductions, bench.reduction));
  if (!bench.kind->sizes.empty()) text += fmt::format(", buffers {}", text_of(bench.use));
  if (bench.kind->ranks == BenchRanks::groups) text += fmt::format(", {} groups", bench.groups);
  if (bench.both_ways) text += ", both ways";
  return text;
}

// " (version 1.13.1)" of the plug-in that joins the nodes.
std::string version_of(const std::string& route) {
  for (const transport::LinkFacts& link : transport::links()) {
    if (route.starts_with(link.name + ":") && !link.facts.empty()) {
      return fmt::format(" ({})", link.facts.front());
    }
  }
  return {};
}

// Delays are named, so that nobody takes a slowed link for a slow one.
void print_links(const transport::World& world) {
  const bool several = world.nodes() > 1;
  say("# inside a node: shm; between nodes: {}{}\n", world.route(),
      several ? version_of(world.route()) : "");
  const std::string injected = injected_delays();
  if (!several || injected.empty()) return;
  say("# delays are injected between nodes: {}\n", injected);
}

// A column has the same name for people and programs.
Column named(const char* name, int decimals = 0) {
  return {.name = name, .heading = name, .decimals = decimals};
}

}  // namespace

// The environment has them for every rank alike.
std::string injected_delays() {
  const std::string latency = amount("RONDO_LATENCY_US");
  const std::string bandwidth = amount("RONDO_BANDWIDTH_GBS");
  std::string text;
  if (!latency.empty()) text += latency + "us";
  if (!latency.empty() && !bandwidth.empty()) text += "+";
  if (!bandwidth.empty()) text += bandwidth + "GB/s";
  return text;
}

std::vector<int> rounds_of(int iterations) {
  const int rounds = std::min(iterations, most_rounds);
  std::vector<int> shares;
  for (int left = rounds; left > 0; --left) {
    shares.push_back(iterations / left);
    iterations -= shares.back();
  }
  return shares;
}

// The median is the mean of the two middle values where there are two. p99 is a value that was
// measured, and not interpolated: the least that 99 % of the values do not exceed.
Summary summarize(std::vector<double> microseconds) {
  if (microseconds.empty()) throw std::invalid_argument("there are no samples");
  std::ranges::sort(microseconds);
  const std::size_t count = microseconds.size();
  const double median = (microseconds[(count - 1) / 2] + microseconds[count / 2]) / 2.0;
  const std::size_t p99 = (count * 99 + 99) / 100 - 1;
  return {microseconds.front(), median, microseconds[p99]};
}

double BenchRow::algorithm_gb_per_second() const noexcept {
  return static_cast<double>(bytes) / time.median_us / 1e3;
}

double BenchRow::bus_gb_per_second() const noexcept {
  return algorithm_gb_per_second() * bus_factor;
}

double BenchRow::percent() const noexcept {
  return limit_us ? 100.0 * *limit_us / time.median_us : 0.0;
}

// Sizes are the outer loop, so that the forms and memories of one size are measured close to each
// other.
std::vector<BenchRow> measure(transport::World& world, const Bench& bench) {
  const std::size_t limit_bytes = bench.limit ? std::ranges::max(bench.sizes) : 0;
  const bool messages = bench.kind->ranks == BenchRanks::pair || bench.kind->name == "halo";
  // One block of shared memory for all rows, as large as the largest of them wants.
  StartingLine line(world, limit_bytes, messages);
  Team team;
  form(team, world, bench);
  BenchSetting setting = setting_of(bench, team, world);
  AdoptedPages adopted(world);
  std::vector<BenchRow> rows;
  for (const std::size_t bytes : bench.sizes) {
    for (const BenchMemory memory : bench.memories) {
      for (const bool in_place : bench.in_place) {
        setting.bytes = bytes;
        setting.in_place = in_place;
        setting.memory = std::pmr::new_delete_resource();
        if (memory == BenchMemory::arena) setting.memory = &world.arena();
        if (memory == BenchMemory::adopted) setting.memory = &adopted;
        rows.push_back(measure_row(world, line, bench, setting));
        name(rows.back(), bench, memory, in_place);
      }
    }
  }
  return rows;
}

// One column for each number, with units in the names, so that CSV needs no explanation.
Table table_of(const std::vector<BenchRow>& rows) {
  using Row = BenchRow;
  TableOf table(rows);
  table.add(named("bytes"), &Row::bytes)
      .add(named("count"), &Row::count)
      .add(named("type"), &Row::type)
      .add(named("op"), &Row::op)
      .add(named("ranks"), &Row::ranks)
      .add(named("memory"), &Row::memory)
      .add(named("place"), &Row::place)
      .add(named("min_us", 2), [](const Row& row) { return row.time.min_us; })
      .add(named("median_us", 2), [](const Row& row) { return row.time.median_us; })
      .add(named("p99_us", 2), [](const Row& row) { return row.time.p99_us; })
      .add(named("algbw_GBs", 2), &Row::algorithm_gb_per_second)
      .add(named("busbw_GBs", 2), &Row::bus_gb_per_second)
      .add(named("wrong"), &Row::wrong);
  // A value that only some benches have is a column of its own only there.
  if (std::ranges::any_of(rows, [](const Row& row) { return row.limit_us.has_value(); })) {
    table.add(named("limit_us", 2), &Row::limit_us).add(named("percent", 1), &Row::percent);
  }
  if (std::ranges::any_of(rows, [](const Row& row) { return !row.injected.empty(); })) {
    table.add(named("injected"), &Row::injected);
  }
  return table;
}

std::vector<std::string> complaints(const std::vector<BenchRow>& rows,
                                    double least_bus_gb_per_second) {
  std::vector<std::string> lines;
  for (const BenchRow& row : rows) {
    const std::string where =
        fmt::format("{} bytes, memory {}, place {}: ", row.bytes, row.memory, row.place);
    if (row.wrong > 0) lines.push_back(where + fmt::format("{} elements are wrong", row.wrong));
    const double found = row.bus_gb_per_second();
    if (found < least_bus_gb_per_second) {
      lines.push_back(where + fmt::format("the bus bandwidth of {:.3f} GB/s is below {} GB/s",
                                          found, least_bus_gb_per_second));
    }
  }
  return lines;
}

// To stderr: a table that is piped into a file keeps what it was measured with on the terminal.
void print_header(const transport::World& world, const Bench& bench, const std::string& wait,
                  int threads) {
  say("# rondo {}: {}\n", RONDO_VERSION, what_is_measured(bench));
  say("# {} on {}, {} each, wait {}{}\n", counted(world.size(), "rank"),
      counted(world.nodes(), "node"), counted(threads, "thread"), wait,
      world.oversubscribed() ? ", more ranks than CPUs" : "");
  print_links(world);
  say("# rank 0 may use {}\n", describe(read_machine().cores));
}

}  // namespace rondo::tools
