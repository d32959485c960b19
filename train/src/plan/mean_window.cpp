#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include <rondo/train/scaling.hpp>

namespace rondo::train {

double mean_window(const std::filesystem::path& metrics) {
  std::ifstream file(metrics);
  if (!file) throw std::runtime_error(metrics.string() + ": cannot be read");
  double iterations = 0.0;
  double windows = 0.0;
  for (std::string line; std::getline(file, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object() || event.value("event", "") != "window") continue;
    iterations += event.value("iterations", 0.0);
    windows += 1.0;
  }
  if (iterations < 1.0) {
    throw std::runtime_error(metrics.string() +
                             ": has no windows; it must be of a run with the lazy scheme");
  }
  return iterations / windows;
}

}  // namespace rondo::train
