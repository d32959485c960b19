// What `rondo bench` says about its measurements: what they were made with (stderr), the numbers
// (stdout), and what is wrong with them (stderr, and the exit status).

#include "bench/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include <rondo/transport/links.hpp>
#include <rondo/transport/world.hpp>

#include "launch/placement.hpp"
#include "machine.hpp"

namespace rondo::tools {
namespace {

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
  fmt::print(stderr, "# inside a node: shm; between nodes: {}{}\n", world.route(),
             several ? version_of(world.route()) : "");
  const std::string injected = injected_delays();
  if (!several || injected.empty()) return;
  fmt::print(stderr, "# delays are injected between nodes: {}\n", injected);
}

// A column has the same name for people and programs.
Column named(const char* name, int decimals = 0) {
  return {.name = name, .heading = name, .decimals = decimals};
}

}  // namespace

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
  // What only some benches have is a column of its own only there.
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

void print_header(const transport::World& world, const Bench& bench, const std::string& wait,
                  int threads) {
  fmt::print(stderr, "# rondo {}: {}\n", RONDO_VERSION, what_is_measured(bench));
  fmt::print(stderr, "# {} rank{} on {} node{}, {} thread{} each, wait {}{}\n", world.size(),
             world.size() == 1 ? "" : "s", world.nodes(), world.nodes() == 1 ? "" : "s", threads,
             threads == 1 ? "" : "s", wait, world.oversubscribed() ? ", more ranks than CPUs" : "");
  print_links(world);
  fmt::print(stderr, "# rank 0 may use {}\n", describe(read_machine().cores));
}

}  // namespace rondo::tools
