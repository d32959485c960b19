#include "bench/header.hpp"

#include <fmt/format.h>

#include <cstdio>

#include <rondo/transport/links.hpp>
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

// " (version 1.13.1)" of the plug-in that joins the nodes.
std::string version_of(const std::string& route) {
  for (const transport::LinkFacts& link : transport::links()) {
    if (route.starts_with(link.name + ":") && !link.facts.empty()) {
      return fmt::format(" ({})", link.facts.front());
    }
  }
  return {};
}

void print_links(const transport::World& world) {
  const bool several = world.nodes() > 1;
  fmt::print(stderr, "# inside a node: shm; between nodes: {}{}\n", world.route(),
             several ? version_of(world.route()) : "");
  const std::string injected = injected_delays();
  if (!several || injected.empty()) return;
  fmt::print(stderr, "# delays are injected between nodes: {}\n", injected);
}

}  // namespace

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
