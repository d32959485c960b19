#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace rondo::test {

/// A run that never ran: its folder with the metrics.jsonl that it would have left.
struct MadeUpRun {
  std::string scheme = "synchronous";
  int seed = 1;
  std::vector<double> accuracies = {50.0, 70.0};  ///< percent, by epoch
  double seconds = 2.0;                           ///< of an epoch
  double bytes_sent = 1024.0;                     ///< of an epoch
  std::string more_keys = {};                     ///< lines of [update]
  bool ended = true;
  std::string own_scheme = {};  ///< as a program's own names itself; not in the configuration
  std::string own_data = {};    ///< the same
  std::string hosts = R"(["a","a"])";  ///< as JSON
};

/// A configuration as the start event has it: a key a line, quotes and line ends escaped.
inline std::string config_of(const MadeUpRun& run) {
  return R"([data]\nname = \"synthetic\"\n[model]\nname = \"lenet5\"\n[train]\nseed = )" +
         std::to_string(run.seed) + R"(\n[update]\nscheme = \")" + run.scheme + R"(\"\n)" +
         run.more_keys;
}

/// Writes `run` into `folder`: an epoch of ten steps, with a step event after five.
inline void write_run(const std::filesystem::path& folder, const MadeUpRun& run) {
  std::filesystem::create_directories(folder);
  std::ofstream file(folder / "metrics.jsonl");
  file << R"({"event":"start","ranks":2,"threads":1,"nodes":1,"steps_per_epoch":10,)"
       << R"("total_steps":)" << 10 * run.accuracies.size()
       << R"(,"global_batch":16,"model":"lenet5","data":")"
       << (run.own_data.empty() ? "synthetic" : run.own_data) << R"(","hosts":)" << run.hosts
       << R"(,"seed":)" << run.seed << R"(,"scheme":")"
       << (run.own_scheme.empty() ? run.scheme : run.own_scheme) << R"(","config":")"
       << config_of(run) << "\"}\n";
  for (std::size_t epoch = 1; epoch <= run.accuracies.size(); ++epoch) {
    file << R"({"event":"step","epoch":)" << epoch << R"(,"step":5,"total_step":)" << 10 * epoch - 5
         << R"(,"loss":1.5,"training_accuracy":40.0,"learning_rate":0.1,)"
         << R"("images_per_second":80.0})" << "\n"
         << R"({"event":"epoch","epoch":)" << epoch << R"(,"accuracy":)"
         << run.accuracies[epoch - 1] << R"(,"test_loss":1.0,"seconds":)" << run.seconds
         << R"(,"images_per_second":80.0,"communication_share":0.25,"wait_share":0.125,)"
         << R"("global_reductions":10,"bytes_sent":)" << run.bytes_sent << "}\n";
  }
  if (!run.ended) return;
  file << R"({"event":"end","reason":"completed","samples":)" << 160 * run.accuracies.size()
       << R"(,"training_seconds":)" << run.seconds * static_cast<double>(run.accuracies.size())
       << "}\n";
}

}  // namespace rondo::test
