#include "bench/header.hpp"

#include <fmt/format.h>

#include <cstdio>

#include <rondo/transport/world.hpp>

#include "bench/injected.hpp"
#include "launch/placement.hpp"
#include "machine/machine.hpp"

namespace rondo::tools {
namespace {

std::string_view text_of(BufferUse use) {
  if (use == BufferUse::untouched) return "untouched";
  return use == BufferUse::rewritten ? "rewritten" : "rewritten and read back";
}

std::string what_is_measured(const Bench& bench) {
  std::string text(bench.kind->name);
  if (!bench.kind->sizes.empty()) text += fmt::format(" of {}", name_of(bench.type));
  if (bench.kind->reduces) text += fmt::format(", {}", name_of(bench.reduction));
  if (!bench.kind->sizes.empty()) text += fmt::format(", buffers {}", text_of(bench.use));
  if (bench.kind->ranks == BenchRanks::groups) text += fmt::format(", {} groups", bench.groups);
  if (bench.both_ways) text += ", both ways";
  return text;
}

}  // namespace

void print_header(const transport::World& world, const Bench& bench, const std::string& wait,
                  int threads) {
  fmt::print(stderr, "# rondo {}: {}\n", RONDO_VERSION, what_is_measured(bench));
  print_world(world, wait, threads);
}

void print_world(const transport::World& world, const std::string& wait, int threads) {
  fmt::print(stderr, "# {} rank{} on {} node{}, {} thread{} each, wait {}{}\n", world.size(),
             world.size() == 1 ? "" : "s", world.nodes(), world.nodes() == 1 ? "" : "s", threads,
             threads == 1 ? "" : "s", wait, world.oversubscribed() ? ", more ranks than CPUs" : "");
  fmt::print(stderr, "# inside a node: shm; between nodes: {}\n", world.route());
  const std::string injected = injected_delays();
  if (!injected.empty()) fmt::print(stderr, "# delays are injected between nodes: {}\n", injected);
  fmt::print(stderr, "# rank 0 may use {}\n", describe(read_machine().cores));
}

}  // namespace rondo::tools
