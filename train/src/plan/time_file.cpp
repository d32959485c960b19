#include "plan/time_file.hpp"

#include <unistd.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace rondo::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int format = 1;

// JSON knows no infinity.
Json to_json(double seconds) {
  return seconds == std::numeric_limits<double>::infinity() ? Json(nullptr) : Json(seconds);
}

double from_json(const Json& seconds) {
  return seconds.is_null() ? std::numeric_limits<double>::infinity() : seconds.get<double>();
}

}  // namespace

std::map<std::string, WorkSeconds> read_times(const std::filesystem::path& file) {
  std::map<std::string, WorkSeconds> times;
  std::ifstream in(file);
  try {
    const Json object = Json::parse(in);
    if (object.at("format") != format) return {};
    for (const auto& [key, seconds] : object.at("seconds").items()) {
      times[key] = {.forward = from_json(seconds.at(0)),
                    .backward_weights = from_json(seconds.at(1)),
                    .backward_data = from_json(seconds.at(2))};
    }
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return times;
}

void write_times(const std::filesystem::path& file,
                 const std::map<std::string, WorkSeconds>& times) {
  Json seconds = Json::object();
  for (const auto& [key, work] : times) {
    seconds[key] = {to_json(work.forward), to_json(work.backward_weights),
                    to_json(work.backward_data)};
  }
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  const std::filesystem::path aside = file.string() + "." + std::to_string(getpid());
  std::ofstream out(aside);
  out << Json{{"format", format}, {"seconds", seconds}}.dump(1) << "\n";
  out.close();
  if (!out) throw std::runtime_error(aside.string() + ": cannot be written");
  std::filesystem::rename(aside, file);
}

}  // namespace rondo::train
