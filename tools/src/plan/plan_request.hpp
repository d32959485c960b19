#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <rondo/train/compute_costs.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/plan.hpp>

namespace rondo::tools {

/// What `rondo plan` is asked.
struct PlanRequest {
  std::filesystem::path config = {};
  std::vector<std::string> settings = {};
  std::string strategy = "all";
  std::string format = "table";
  train::PlanOptions plan = {};
  std::optional<double> alpha = {};
  std::optional<double> bandwidth = {};
  std::optional<double> node_alpha = {};
  std::optional<double> node_bandwidth = {};
  std::filesystem::path tuning = {};  ///< what `rondo bench tune --format json` wrote
  int threads = 0;                    ///< of kernels that are measured; 0: as configured
  int measurements = 200;             ///< of shapes, by --strategy best
  std::string scaling = {};           ///< "FIRST:LAST"; empty: grids are asked for
  std::string scheme = {};            ///< empty: as configured
  std::int64_t batch_per_rank = 0;
  bool fixed_global_batch = false;
  double tau = 0.0;
  std::filesystem::path metrics = {};
};

void add_options(CLI::App& app, PlanRequest& request);

/// What messages cost: as measured by --tuning, but for what options say; where nothing does, as
/// train::LinkCost says. A job on one node says nothing of others, and the reverse: both levels are
/// then alike. Throws UsageError where the file cannot be used.
void set_links(const PlanRequest& request, train::PlanOptions& plan);

/// Threads of a rank whose kernels are measured.
[[nodiscard]] int measured_threads(const PlanRequest& request, const train::Experiment& experiment);

/// Where measured times are kept: $XDG_CACHE_HOME/rondo, else ~/.cache/rondo; empty without either.
[[nodiscard]] std::filesystem::path times_file();

}  // namespace rondo::tools
