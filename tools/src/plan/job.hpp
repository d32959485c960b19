#pragma once

// The request to `rondo plan`, the job that a configuration makes of it, and the answers.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/plan.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/transport/team.hpp>

#include "options.hpp"

namespace rondo::tools {

/// The request to `rondo plan`.
struct PlanRequest {
  std::filesystem::path config = {};
  std::vector<std::string> settings = {};
  std::string strategy = "all";
  Format format = Format::text;
  train::PlanOptions plan = {};
  std::optional<int> ranks = {};
  std::optional<std::uint64_t> memory_limit = {};  // bytes of a rank; 0: none
  std::optional<double> alpha = {};
  std::optional<double> bandwidth = {};
  std::optional<double> node_alpha = {};
  std::optional<double> node_bandwidth = {};
  std::filesystem::path tuning = {};  // what `rondo bench tune --format json` wrote
  int threads = 0;                    // of kernels that are measured; 0: as configured
  int measurements = 200;             // of shapes, by --strategy best
  std::string scaling = {};           // "FIRST:LAST"; empty: grids are asked for
  std::string scheme = {};            // empty: as configured
  std::int64_t batch_per_rank = 0;
  bool fixed_global_batch = false;
  double tau = 0.0;
  std::filesystem::path metrics = {};
};

/// A job: what is asked, and what the configuration says of it.
struct PlanJob {
  const PlanRequest& request;
  train::Experiment experiment;
  train::Model model;
  train::PlanOptions plan;
  std::unique_ptr<transport::Team> team = {};  // of updates that are measured; null: one thread
};

/// Reads the configuration, and adds what it says to what was asked. Throws UsageError, and
/// train::ConfigError when it is the configuration's fault.
[[nodiscard]] PlanJob job_of(const PlanRequest& request);

/// Measured times of kernels; those that are in the user's file are not measured again. Throws
/// UsageError where the job's precision cannot be computed.
[[nodiscard]] train::ComputeTable table_of(const PlanJob& job);

/// Prints all closed forms, or the one that was asked for, usable grids first.
void plan_by_forms(const PlanJob& job);

/// Prints the best grids. Ends with the [grid] section that makes a run train so.
void plan_best(const PlanJob& job);

/// Prints the predicted scaling; people are also told what it was made for.
void predict_scaling(const PlanJob& job);

}  // namespace rondo::tools
