#include "plan/scaling_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace rondo::tools {

using train::ScalingPoint;

std::string scaling_as_json(const std::vector<ScalingPoint>& points) {
  auto array = nlohmann::ordered_json::array();
  for (const ScalingPoint& point : points) {
    array.push_back({{"ranks", point.ranks},
                     {"global_batch", point.global_batch},
                     {"step_seconds", point.step_seconds},
                     {"compute_seconds", point.compute_seconds},
                     {"exposed_seconds", point.exposed_seconds()},
                     {"images_per_second", point.images_per_second},
                     {"speedup", point.speedup},
                     {"efficiency", point.efficiency}});
  }
  return array.dump(2) + "\n";
}

std::string scaling_as_csv(const std::vector<ScalingPoint>& points) {
  std::string text =
      "ranks,global_batch,step_seconds,compute_seconds,exposed_seconds,images_per_second,speedup,"
      "efficiency\n";
  for (const ScalingPoint& point : points) {
    text += fmt::format("{},{},{},{},{},{},{},{}\n", point.ranks, point.global_batch,
                        point.step_seconds, point.compute_seconds, point.exposed_seconds(),
                        point.images_per_second, point.speedup, point.efficiency);
  }
  return text;
}

std::string scaling_as_table(const std::vector<ScalingPoint>& points) {
  std::string table =
      fmt::format("{:>6}{:>10}{:>12}{:>12}{:>12}{:>14}{:>12}{:>12}\n", "ranks", "batch", "step ms",
                  "compute ms", "exposed ms", "images/s", "speed-up", "efficiency");
  for (const ScalingPoint& point : points) {
    table += fmt::format("{:>6}{:>10}{:>12.3f}{:>12.3f}{:>12.3f}{:>14.1f}{:>12.2f}{:>12.3f}\n",
                         point.ranks, point.global_batch, 1e3 * point.step_seconds,
                         1e3 * point.compute_seconds, 1e3 * point.exposed_seconds(),
                         point.images_per_second, point.speedup, point.efficiency);
  }
  return table;
}

}  // namespace rondo::tools
