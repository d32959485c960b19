// `rondo bench`: a subcommand for each operation, with the options that make sense for it, besides
// those that measure a model or tune links.
//
// Mistakes are found before ranks start, so that they are reported once. The same command line then
// runs again as every rank.
//
// The measurements of an operation are in bench/: collectives.cpp and point_to_point.cpp say what
// is posted and what must come out, measure.cpp how it is timed. An operation is a line in the list
// of operation.cpp; it gets its subcommand, and the options that fit it, from there.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/transport/allreduce_paths.hpp>
#include <rondo/transport/world.hpp>

#include "bench/measure.hpp"
#include "bench/operation.hpp"
#include "failure.hpp"
#include "launch/environment.hpp"
#include "launch/joined_rank.hpp"
#include "launch/launcher.hpp"
#include "options.hpp"
#include "say.hpp"
#include "world.hpp"

namespace rondo::tools {
namespace {

using transport::ElementType;
using transport::ReduceOp;

const Choices<BufferUse> uses = {{"untouched", BufferUse::untouched},
                                 {"rewritten", BufferUse::rewritten},
                                 {"read-back", BufferUse::read_back}};
// Where buffers lie, and in which order they are measured.
const Choices<std::vector<BenchMemory>> memories = {
    {"arena", {BenchMemory::arena}},
    {"private", {BenchMemory::private_memory}},
    {"adopted", {BenchMemory::adopted}},
    {"both", {BenchMemory::arena, BenchMemory::private_memory}}};

// The options of the command line.
struct BenchOptions {
  LaunchRequest launch = {};
  Bench bench = {.memories = {BenchMemory::arena, BenchMemory::private_memory}};
  std::string sizes = {};
  transport::Waiting waiting = transport::Waiting::automatic;
  Format format = Format::text;
  std::string algorithms = {};
  bool in_place = false;
  bool out_of_place = false;
  double least_bus_gb_per_second = 0.0;
};

// For operations that have data.
void add_data_options(Command& command, const OperationKind& kind, BenchOptions& options) {
  Bench& bench = options.bench;
  command.option("-m,--sizes MIN:MAX", options.sizes,
                 fmt::format("Bytes: MIN, 4 MIN, ... MAX (default: {})", kind.sizes));
  command.choice("--type TYPE", bench.type, element_types, names_of(element_types));
  command.choice("--memory WHERE", bench.memories, memories,
                 "Where buffers lie: " + names_of(memories));
  command.choice("--buffers USE", bench.use, uses,
                 "Between calls: untouched, rewritten before the timed region, or read-back: also "
                 "read within it");
  if (kind.reduces) {
    command.choice("--op OP", bench.reduction, reductions, names_of(reductions));
  }
  if (kind.places == BenchPlaces::both) {
    // Each form takes a measurement of its own, so that both may be asked for.
    command.flag("--in-place", options.in_place, "Input and output are one array (default)");
    command.flag("--out-of-place", options.out_of_place,
                 "They are not; with --in-place: measure both");
  }
  command
      .option("--min-busbw X", options.least_bus_gb_per_second,
              "Fail when a bus bandwidth is below so many GB/s")
      .positive();
}

// Empty: nothing is wrong with it.
std::string problem_of_table(const std::string& table) {
  try {
    static_cast<void>(transport::AllreducePaths(table));
    return {};
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

// For single operations.
void add_special_options(Command& command, const OperationKind& kind, BenchOptions& options) {
  Bench& bench = options.bench;
  if (kind.name == "allreduce") {
    command.flag("--limit", bench.limit,
                 "Also measure, in turn, what one pass over shared memory costs at the least");
  }
  if (kind.name == "allreduce" || kind.name == "segmented") {
    command
        .option("--algorithms TABLE", options.algorithms,
                "Between nodes, which one for how many bytes, as in rd:0-16k;ring:16k-max")
        .check(problem_of_table);
  }
  if (kind.ranks == BenchRanks::pair) {
    command.option("--peer RANK", bench.peer, "Rank 0 talks to this one (default: the last)")
        .range(1, 4095);
  }
  if (kind.ranks == BenchRanks::groups) {
    command.option("--groups K", bench.groups, "Rank r is in group r modulo K")
        .range(1, 4096)
        .with_default();
  }
  if (kind.name == "bandwidth") {
    command.flag("--bidirectional", bench.both_ways,
                 "Both ways at once; busbw counts both, algbw one");
  }
}

// All options of one operation. The help of each operation lists only what it can do.
void add_options(Command& command, const OperationKind& kind, BenchOptions& options) {
  if (!kind.sizes.empty()) add_data_options(command, kind, options);
  add_special_options(command, kind, options);
  command
      .option("--iterations I", options.bench.iterations,
              fmt::format("Per size (default: {} to {})", most_iterations, least_iterations))
      .range(1, 1'000'000);
  command
      .option("--warm-up I", options.bench.warm_up,
              "Iterations before, that do not count (default: a tenth, and 2)")
      .range(0, 1'000'000);
  command.choice("--wait HOW", options.waiting, waitings, "How ranks wait: " + names_of(waitings));
  add_format_option(command, options.format, table_csv_or_json,
                    "table, csv, or json: one array of objects");
  const bool pair = kind.ranks == BenchRanks::pair;
  add_placement_options(command, options.launch.placement, pair ? "2" : "one per NUMA domain");
  add_fabric_options(command, options.launch.fabric);
  add_flight_record_option(command, options.launch.flight_record, "nowhere");
  command.footer(
      R"(Times are those of the slowest rank in each iteration. Every element is checked. Ends with
status 1 when one is wrong, or when --min-busbw is missed.)");
}

// The default range begins with a single element of four bytes; larger ones need more.
std::string sizes_of(const OperationKind& kind, const BenchOptions& options) {
  if (!options.sizes.empty()) return options.sizes;
  const std::string range(kind.sizes);
  const bool one_of_eight = transport::size_of(options.bench.type) == 8;
  return one_of_eight && range.starts_with("4:") ? "8" + range.substr(1) : range;
}

// The measurement that the options ask for. Throws UsageError.
Bench bench_of(const OperationKind& kind, const BenchOptions& options) {
  Bench bench = options.bench;
  bench.kind = &kind;
  if (kind.sizes.empty()) {
    // One row without data: nothing has a type, a size or a place.
    bench.sizes = {0};
    bench.memories = {BenchMemory::private_memory};
    bench.in_place = {true};
    return bench;
  }
  bench.sizes = byte_sizes(sizes_of(kind, options), transport::size_of(bench.type));
  const bool has_in = kind.places != BenchPlaces::out;
  if (has_in && (options.in_place || !options.out_of_place)) bench.in_place.push_back(true);
  if (!has_in || options.out_of_place) bench.in_place.push_back(false);
  return bench;
}

// Refuses what the ranks cannot do.
[[noreturn]] void refuse(const std::string& what) { throw UsageError(what); }

// The limit is a pass over shared memory of one node, and it adds floats.
void check_limit(const Bench& bench, const FabricRequest& fabric, int ranks) {
  if (!bench.limit) return;
  // The one-pass kernel is written for one case, which is the one of gradients.
  if (bench.type != ElementType::f32 || bench.reduction != ReduceOp::sum) {
    refuse("--limit adds floats; leave out --type and --op");
  }
  if (fake_nodes_of(fabric, ranks) > 1) {
    refuse("--limit compares with shared memory inside a node; leave out --fake-nodes");
  }
}

// Refuses what the transport would refuse only when ranks post it.
void check_reduction(const Bench& bench) {
  if (!bench.kind->reduces) return;
  const bool bits = bench.reduction == ReduceOp::bit_and || bench.reduction == ReduceOp::bit_or ||
                    bench.reduction == ReduceOp::bit_xor;
  if (bits && !transport::is_integer(bench.type)) {
    refuse(fmt::format("--op {} is for integers; give --type i32, or another of them",
                       name_of(reductions, bench.reduction)));
  }
  const bool running = bench.kind->name == "scan" || bench.kind->name == "exscan";
  if (running && bench.reduction == ReduceOp::avg) {
    refuse("--op avg is no running reduction; take sum, and divide by the rank");
  }
}

// The bench for this many ranks. Throws UsageError for what they cannot do.
Bench checked_bench(const OperationKind& kind, const BenchOptions& options, int ranks) {
  Bench bench = bench_of(kind, options);
  if (kind.most_bytes > 0 && std::ranges::max(bench.sizes) > kind.most_bytes) {
    refuse(
        fmt::format("{} takes up to {} bytes; ask for less with -m", kind.name, kind.most_bytes));
  }
  if (kind.ranks == BenchRanks::pair && ranks < 2) {
    refuse(fmt::format("{} needs two ranks; give -n 2", kind.name));
  }
  if (bench.peer >= ranks) {
    refuse(fmt::format("there is no rank {} among {}; give --peer less, or -n more", bench.peer,
                       ranks));
  }
  if (kind.ranks == BenchRanks::groups && bench.groups > ranks) {
    refuse(fmt::format("{} groups need at least as many ranks, but there are {}", bench.groups,
                       ranks));
  }
  check_reduction(bench);
  check_limit(bench, options.launch.fabric, ranks);
  return bench;
}

// All ranks get the same rows, and so the same status; rank 0 prints.
int measure_as_rank(const Bench& bench, const BenchOptions& options) {
  // Ranks with several threads let the transport use them in large reductions, as the trainer does.
  transport::WorldOptions wanted = world_options();
  wanted.waiting = options.waiting;
  wanted.fabric.allreduce = options.algorithms;
  wanted.dump_folder = own_records_in(options.launch.flight_record);
  JoinedRank self = join_as_rank(std::move(wanted), options.launch.placement);
  transport::World& world = self.world;
  if (bench.limit && world.nodes() > 1) {
    refuse("--limit compares with shared memory inside a node; these ranks are on several");
  }
  const bool prints = world.rank() == 0;
  world.communicator().barrier().wait();  // the first lines say that all ranks are there
  if (prints) print_header(world, bench, name_of(waitings, options.waiting), self.threads);
  const auto rows = measure(world, bench);
  if (prints) fmt::print("{}", table_of(rows).in(options.format));
  // Every rank decides from the same numbers, so the job has one status.
  const auto lines = complaints(rows, options.least_bus_gb_per_second);
  for (const std::string& line : lines) {
    if (prints) say("rondo: {}\n", line);
  }
  return lines.empty() ? exit_done : exit_failed;
}

// The same command line comes here twice: as the launcher, which checks it and starts ranks, and as
// each rank, which measures.
int run_operation(const OperationKind& kind, BenchOptions options, const CommandLine& line) {
  let_speak(Speaker::first_of_host);
  PlacementRequest& request = options.launch.placement;
  if (is_rank()) {
    refuse_other_job(request.ranks, options.launch.fabric);
    return measure_as_rank(checked_bench(kind, options, size_from_environment()), options);
  }
  // Two ranks rather than none where two are needed.
  if (kind.ranks == BenchRanks::pair && request.ranks == 0) request.ranks = 2;
  const Placement placement = place(read_machine(), request);
  // Checked here only for the mistake: the ranks make the bench again from the command line.
  static_cast<void>(checked_bench(kind, options, placement.ranks()));
  return launch_again(line, placement, options.launch);
}

}  // namespace

void add_bench(Command& root) {
  Command bench = root.add("bench", "Measure what this machine gives");
  bench.wants_subcommand();
  for (const OperationKind& kind : operation_kinds()) {
    Command command = bench.add(std::string(kind.name), std::string(kind.summary));
    // The options live as long as the command, whose callback fills and reads them.
    auto options = std::make_shared<BenchOptions>();
    add_options(command, kind, *options);
    command.does(
        [&kind, options](const CommandLine& line) { return run_operation(kind, *options, line); });
  }
  add_bench_tune(bench);
  add_bench_model(bench);
  add_bench_data(bench);
  add_bench_bootstrap(bench);
}

}  // namespace rondo::tools
