#include "train/metrics_echo.hpp"

#include <iterator>
#include <utility>

namespace rondo::tools {

MetricsEcho::MetricsEcho(std::filesystem::path file, std::FILE* stream)
    : path_(std::move(file)), stream_(stream) {}

void MetricsEcho::copy() {
  if (!file_.is_open()) file_.open(path_);
  if (!file_.is_open()) return;
  file_.clear();  // forget that the end was reached before
  rest_.append(std::istreambuf_iterator<char>(file_), {});
  const std::size_t end = rest_.rfind('\n');
  if (end == std::string::npos) return;
  std::fwrite(rest_.data(), 1, end + 1, stream_);
  std::fflush(stream_);
  rest_.erase(0, end + 1);
}

}  // namespace rondo::tools
