// `rondo bench bootstrap`: what it costs to start thousands of ranks, without having so many.
//
// The transport plays the ranks over loopback against a real store in a process of its own, because
// only that shows how the time and the memory of the store grow with the ranks. Rows go from few
// ranks to the number asked for, and each says what a rank costs that the row before had not.

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <rondo/transport/rehearsal.hpp>

#include "command.hpp"
#include "failure.hpp"
#include "options.hpp"
#include "table.hpp"

namespace rondo::tools {
namespace {

using transport::BootstrapCost;

struct BootstrapOptions {
  int ranks = 4096;
  int ranks_per_node = 64;
  double seconds = 60.0;
  Format format = Format::text;
};

struct BootstrapRow {
  BootstrapCost cost = {};
  std::optional<double> seconds_per_rank = {};  // of those that the row before had not
  std::optional<double> bytes_per_rank = {};
};

// 64, 512, 4096, ... and the number asked for.
std::vector<int> rank_counts(int most) {
  std::vector<int> counts;
  for (int count = 64; count < most; count *= 8) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

std::vector<BootstrapRow> measure_rows(const BootstrapOptions& options) {
  const auto limit =
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(options.seconds));
  std::vector<BootstrapRow> rows;
  for (const int ranks : rank_counts(options.ranks)) {
    BootstrapRow row{.cost = transport::rehearse_bootstrap(ranks, options.ranks_per_node, limit)};
    if (!rows.empty()) {
      const BootstrapCost& before = rows.back().cost;
      const double more = row.cost.ranks - before.ranks;
      row.seconds_per_rank = (row.cost.seconds - before.seconds) / more;
      row.bytes_per_rank =
          (static_cast<double>(row.cost.store_bytes) - static_cast<double>(before.store_bytes)) /
          more;
    }
    rows.push_back(row);
  }
  return rows;
}

Table table_of(const std::vector<BootstrapRow>& rows) {
  using Row = BootstrapRow;
  constexpr double mebibyte = 1.0 / (1 << 20);
  return TableOf(rows)
      .add({"ranks", "ranks"}, [](const Row& row) { return row.cost.ranks; })
      .add({"nodes", "nodes"}, [](const Row& row) { return row.cost.nodes; })
      .add({"join_seconds", "joined s", Align::right, 3},
           [](const Row& row) { return row.cost.join_seconds; })
      .add({"seconds", "all s", Align::right, 3}, [](const Row& row) { return row.cost.seconds; })
      .add({"seconds_per_rank", "us a rank more", Align::right, 0, 1e6}, &Row::seconds_per_rank)
      .add({"store_bytes", "store MiB", Align::right, 1, mebibyte},
           [](const Row& row) { return static_cast<double>(row.cost.store_bytes); })
      .add({"bytes_per_rank", "KiB a rank more", Align::right, 1, 1.0 / 1024}, &Row::bytes_per_rank)
      .add({"sent_bytes", "sent MiB", Align::right, 1, mebibyte},
           [](const Row& row) { return static_cast<double>(row.cost.received_bytes); });
}

int run_bootstrap(const BootstrapOptions& options) {
  fmt::print("{}", table_of(measure_rows(options)).in(options.format));
  return exit_done;
}

}  // namespace

void add_bench_bootstrap(Command& bench) {
  Command command = bench.add(
      "bootstrap", "Measure how long it takes ranks to find each other, and rank 0's memory");
  auto options = std::make_shared<BootstrapOptions>();
  command.option("--ranks P", options->ranks, "Play 64, 512, 4096, ... up to so many ranks")
      .range(1, 16384)
      .with_default();
  command.option("--ranks-per-node L", options->ranks_per_node, "So many of them share a node")
      .range(1, 4096)
      .with_default();
  command.option("--seconds S", options->seconds, "Fail when a row takes longer")
      .positive()
      .with_default();
  add_format_option(command, options->format, table_csv_or_json,
                    "table, csv, or json: an array of objects");
  command.footer(
      R"(The ranks are connections of one process over loopback; the store is the real one, in a
process of its own, and its memory is the most that it had.)");
  command.does([options](const CommandLine& /*line*/) { return run_bootstrap(*options); });
}

}  // namespace rondo::tools
