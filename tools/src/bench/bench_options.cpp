#include "bench/bench_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/byte_sizes.hpp"
#include "exit_status.hpp"

namespace rondo::tools {
namespace {

using transport::ElementType;
using transport::ReduceOp;

const std::map<std::string, ElementType> types = {
    {"f32", ElementType::f32}, {"f64", ElementType::f64}, {"bf16", ElementType::bf16},
    {"i32", ElementType::i32}, {"i64", ElementType::i64}, {"u8", ElementType::u8}};
const std::map<std::string, ReduceOp> reductions = {
    {"sum", ReduceOp::sum}, {"min", ReduceOp::min}, {"max", ReduceOp::max}};
const std::map<std::string, BufferUse> uses = {{"untouched", BufferUse::untouched},
                                               {"rewritten", BufferUse::rewritten},
                                               {"read-back", BufferUse::read_back}};

// The default range begins with a single element of four bytes; larger ones need more.
std::string sizes_of(const OperationKind& kind, const BenchOptions& options) {
  if (!options.sizes.empty()) return options.sizes;
  const std::string range(kind.sizes);
  const bool one_of_eight = transport::size_of(types.at(options.type)) == 8;
  return one_of_eight && range.starts_with("4:") ? "8" + range.substr(1) : range;
}

void add_data_options(CLI::App& command, const OperationKind& kind, BenchOptions& options) {
  command
      .add_option("-m,--sizes", options.sizes,
                  fmt::format("Bytes: MIN, 4 MIN, ... MAX (default: {})", kind.sizes))
      ->type_name("MIN:MAX");
  command.add_option("--type", options.type, "f32, f64, bf16, i32, i64, u8")
      ->check(CLI::IsMember(types))
      ->capture_default_str()
      ->type_name("TYPE");
  command.add_option("--memory", options.memory, "Where buffers lie: arena, private, both")
      ->check(CLI::IsMember({"arena", "private", "both"}))
      ->capture_default_str()
      ->type_name("WHERE");
  command
      .add_option("--buffers", options.buffers,
                  "Between calls: untouched, rewritten before the timed region, or read-back: also "
                  "read within it")
      ->check(CLI::IsMember(uses))
      ->capture_default_str()
      ->type_name("USE");
  if (kind.reduces) {
    command.add_option("--op", options.reduction, "sum, min, max")
        ->check(CLI::IsMember(reductions))
        ->capture_default_str()
        ->type_name("OP");
  }
  if (kind.places == BenchPlaces::both) {
    command.add_flag("--in-place", options.in_place, "Input and output are one array (default)");
    command.add_flag("--out-of-place", options.out_of_place,
                     "They are not; with --in-place: measure both");
  }
  command
      .add_option("--min-busbw", options.least_bus_gb_per_second,
                  "Fail when a bus bandwidth is below so many GB/s")
      ->check(CLI::PositiveNumber)
      ->type_name("X");
}

void add_special_options(CLI::App& command, const OperationKind& kind, BenchOptions& options) {
  if (kind.name == "allreduce") {
    command.add_flag("--limit", options.limit,
                     "Also measure, in turn, what one pass over shared memory costs at the least");
  }
  if (kind.name == "allreduce" || kind.name == "segmented") {
    command
        .add_option("--algorithms", options.algorithms,
                    "Between nodes, which one for how many bytes, as in rd:0-16k;ring:16k-max")
        ->type_name("TABLE");
  }
  if (kind.ranks == BenchRanks::pair) {
    command.add_option("--peer", options.peer, "Rank 0 talks to this one (default: the last)")
        ->check(CLI::Range(1, 4095))
        ->type_name("RANK");
  }
  if (kind.ranks == BenchRanks::groups) {
    command.add_option("--groups", options.groups, "Rank r is in group r modulo K")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str()
        ->type_name("K");
  }
  if (kind.name == "bandwidth") {
    command.add_flag("--bidirectional", options.both_ways,
                     "Both ways at once; busbw counts both, algbw one");
  }
}

void refuse(const std::string& what) { throw UsageError(what); }

void check_limit(const BenchOptions& options, int ranks) {
  if (!options.limit) return;
  if (options.type != "f32" || options.reduction != "sum") {
    refuse("--limit adds floats; leave out --type and --op");
  }
  if (fake_nodes_of(options.fabric, ranks) > 1) {
    refuse("--limit compares with shared memory inside a node; leave out --fake-nodes");
  }
}

}  // namespace

void add_bench_options(CLI::App& command, const OperationKind& kind, BenchOptions& options) {
  if (!kind.sizes.empty()) add_data_options(command, kind, options);
  add_special_options(command, kind, options);
  command
      .add_option("--iterations", options.iterations,
                  fmt::format("Per size (default: {} to {})", most_iterations, least_iterations))
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("I");
  command
      .add_option("--warm-up", options.warm_up,
                  "Iterations before, that do not count (default: a tenth, and 2)")
      ->check(CLI::Range(0, 1'000'000))
      ->type_name("I");
  command.add_option("--wait", options.wait, "How ranks wait: auto, spin, yield, block")
      ->check(CLI::IsMember({"auto", "spin", "yield", "block"}))
      ->capture_default_str()
      ->type_name("HOW");
  command.add_option("--format", options.format, "table, csv, or json: one array of objects")
      ->check(CLI::IsMember({"table", "csv", "json"}))
      ->capture_default_str()
      ->type_name("FORMAT");
  add_launch_options(command, options.request);
  add_fabric_options(command, options.fabric);
  add_flight_record_option(command, options.flight_record, "nowhere");
  command.footer(
      "Times are those of the slowest rank in each iteration. Every element is checked. Ends with\n"
      "status 1 when one is wrong, or when --min-busbw is missed.");
}

Bench bench_of(const OperationKind& kind, const BenchOptions& options) {
  Bench bench;
  bench.kind = &kind;
  bench.type = types.at(options.type);
  bench.reduction = reductions.at(options.reduction);
  bench.use = uses.at(options.buffers);
  bench.iterations = options.iterations;
  bench.warm_up = options.warm_up;
  bench.limit = options.limit;
  bench.peer = options.peer;
  bench.groups = options.groups;
  bench.both_ways = options.both_ways;
  if (kind.sizes.empty()) {
    bench.sizes = {0};
    bench.memories = {BenchMemory::private_memory};
    bench.in_place = {true};
    return bench;
  }
  bench.sizes = byte_sizes(sizes_of(kind, options), transport::size_of(bench.type));
  if (options.memory != "private") bench.memories.push_back(BenchMemory::arena);
  if (options.memory != "arena") bench.memories.push_back(BenchMemory::private_memory);
  const bool has_in = kind.places != BenchPlaces::out;
  if (has_in && (options.in_place || !options.out_of_place)) bench.in_place.push_back(true);
  if (!has_in || options.out_of_place) bench.in_place.push_back(false);
  return bench;
}

void check(const OperationKind& kind, const BenchOptions& options, int ranks) {
  const Bench bench = bench_of(kind, options);
  if (kind.most_bytes > 0 && std::ranges::max(bench.sizes) > kind.most_bytes) {
    refuse(
        fmt::format("{} takes up to {} bytes; ask for less with -m", kind.name, kind.most_bytes));
  }
  if (kind.ranks == BenchRanks::pair && ranks < 2) {
    refuse(fmt::format("{} needs two ranks; give -n 2", kind.name));
  }
  if (options.peer >= ranks) {
    refuse(fmt::format("there is no rank {} among {}; give --peer less, or -n more", options.peer,
                       ranks));
  }
  if (kind.ranks == BenchRanks::groups && options.groups > ranks) {
    refuse(fmt::format("{} groups need at least as many ranks, but there are {}", options.groups,
                       ranks));
  }
  check_limit(options, ranks);
}

}  // namespace rondo::tools
