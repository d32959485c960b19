#include "bench/bench.hpp"

#include <algorithm>
#include <memory_resource>
#include <numeric>
#include <optional>
#include <span>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "bench/injected.hpp"
#include "bench/one_pass_operation.hpp"
#include "bench/starting_line.hpp"

namespace rondo::tools {
namespace {

constexpr int rounds_in_turn = 5;

int iterations_for(std::size_t bytes, const Bench& bench) {
  if (bench.iterations > 0) return bench.iterations;
  constexpr std::size_t kibibyte = 1024;
  if (bytes < 64 * kibibyte) return most_iterations;
  return bytes < 4 * kibibyte * kibibyte ? 300 : least_iterations;
}

// The ranks that an operation runs on.
struct Team {
  transport::Communicator* ranks = nullptr;
  std::vector<int> members = {};
  std::optional<transport::Communicator> group = {};
};

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

// Takes the measurements of one row.
BenchRow measure_row(transport::World& world, StartingLine& line, const Bench& bench,
                     const BenchSetting& setting) {
  const auto operation = bench.kind->make(setting);
  const BenchFacts facts = operation->facts();
  const int iterations = iterations_for(facts.bytes * static_cast<std::size_t>(facts.calls), bench);
  const int warm_up = bench.warm_up < 0 ? iterations / 10 + 2 : bench.warm_up;
  Sampler sampler(world, line);

  BenchRow row;
  row.wrong = sampler.check(*operation);
  std::vector<double> times;
  if (bench.limit) {
    const auto limit = make_one_pass(*line.memory(), setting);
    std::vector<double> limits;
    const int per_round = std::max(1, iterations / rounds_in_turn);
    for (int round = 0; round < rounds_in_turn; ++round) {
      sampler.sample(*operation, per_round, per_round / 10 + 2, bench.use, times);
      sampler.sample(*limit, per_round, per_round / 10 + 2, bench.use, limits);
    }
    row.wrong += sampler.check(*limit);
    row.limit_us = summarize(std::move(limits)).median_us;
  } else {
    sampler.sample(*operation, iterations, warm_up, bench.use, times);
  }
  row.wrong += sampler.check(*operation);
  row.time = summarize(std::move(times));
  row.bytes = facts.bytes;
  row.count = facts.count;
  row.bus_factor = facts.bus_factor;
  row.ranks = world.size();
  if (world.nodes() > 1) row.injected = injected_delays();
  return row;
}

void name(BenchRow& row, const Bench& bench, BenchMemory memory, bool in_place) {
  const bool has_data = !bench.kind->sizes.empty();
  row.type = has_data ? name_of(bench.type) : "none";
  row.op = bench.kind->reduces ? name_of(bench.reduction) : "none";
  row.memory = memory == BenchMemory::arena ? "arena" : "private";
  row.place = in_place ? "in" : "out";
  if (!has_data) row.memory = row.place = "none";
}

}  // namespace

std::vector<BenchRow> measure(transport::World& world, const Bench& bench) {
  const std::size_t limit_bytes = bench.limit ? std::ranges::max(bench.sizes) : 0;
  const bool messages = bench.kind->ranks == BenchRanks::pair || bench.kind->name == "halo";
  StartingLine line(world, limit_bytes, messages);
  Team team;
  form(team, world, bench);
  BenchSetting setting = setting_of(bench, team, world);
  std::vector<BenchRow> rows;
  for (const std::size_t bytes : bench.sizes) {
    for (const BenchMemory memory : bench.memories) {
      for (const bool in_place : bench.in_place) {
        setting.bytes = bytes;
        setting.in_place = in_place;
        setting.memory = std::pmr::new_delete_resource();
        if (memory == BenchMemory::arena) setting.memory = &world.arena();
        rows.push_back(measure_row(world, line, bench, setting));
        name(rows.back(), bench, memory, in_place);
      }
    }
  }
  return rows;
}

std::string_view name_of(transport::ElementType type) {
  switch (type) {
    case transport::ElementType::f64:
      return "f64";
    case transport::ElementType::bf16:
      return "bf16";
    case transport::ElementType::i32:
      return "i32";
    case transport::ElementType::i64:
      return "i64";
    case transport::ElementType::u8:
      return "u8";
    default:
      return "f32";
  }
}

std::string_view name_of(transport::ReduceOp op) {
  if (op == transport::ReduceOp::min) return "min";
  return op == transport::ReduceOp::max ? "max" : "sum";
}

}  // namespace rondo::tools
