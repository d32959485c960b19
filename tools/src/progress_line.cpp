#include "progress_line.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Often enough to look alive, seldom enough to cost nothing.
constexpr std::chrono::milliseconds refresh_interval{100};

std::size_t terminal_width(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string format_time(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  if (whole >= 3600)
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string format_share(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

std::string format_progress(const train::Progress& progress, std::size_t width) {
  const std::vector<std::string> parts = {
      fmt::format("epoch {}/{}{}", progress.epoch, progress.epochs,
                  progress.injected ? " (delays injected)" : ""),
      progress.epoch_samples > 0
          ? fmt::format("samples {}/{}", progress.samples, progress.epoch_samples)
          : fmt::format("step {}/{}", progress.step, progress.steps),
      fmt::format("loss {:.4f}", progress.loss),
      fmt::format("accuracy {:.2f} %", progress.accuracy),
      fmt::format("{:.0f} images/s", progress.images_per_second),
      fmt::format("communication {}", format_share(progress.communication_share)),
      fmt::format("left {}", format_time(progress.seconds_left)),
  };
  std::string line;
  for (const std::string& part : parts) {
    const std::string_view gap = line.empty() ? "" : "  ";
    if (line.size() + gap.size() + part.size() > width) break;
    line.append(gap).append(part);
  }
  return line;
}

std::string format_epoch(const train::EpochMetrics& metrics, std::int64_t epochs) {
  return fmt::format(
      "epoch {}/{}: loss {:.4f}, test accuracy {:.2f} %, {:.0f} images/s, communication {}, "
      "waiting {}, {:.1f} s{}",
      metrics.epoch, epochs, metrics.loss, metrics.accuracy, metrics.images_per_second,
      format_share(metrics.communication_share), format_share(metrics.wait_share), metrics.seconds,
      metrics.injected ? " (delays injected)" : "");
}

ProgressLine::ProgressLine(std::FILE* stream, std::int64_t every)
    : stream_(stream), every_(every), terminal_(isatty(fileno(stream)) == 1) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::show(const train::Progress& progress) {
  constexpr std::size_t unlimited = 1000;
  if (!terminal_) {
    const std::int64_t mark = every_ > 0 ? progress.step / every_ : 0;
    if (mark > (progress.epoch == shown_epoch_ ? shown_mark_ : 0)) {
      print(format_progress(progress, unlimited));
      shown_mark_ = mark;
      shown_epoch_ = progress.epoch;
    }
    return;
  }
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + refresh_interval;
  // The last column stays free: some terminals wrap there.
  const std::size_t width = std::max<std::size_t>(terminal_width(fileno(stream_)), 2) - 1;
  fmt::print(stream_, "\r{}\x1b[K", format_progress(progress, width));
  std::fflush(stream_);
  live_ = true;
}

void ProgressLine::print(const std::string& line) {
  clear();
  fmt::print(stream_, "{}\n", line);
  std::fflush(stream_);
}

void ProgressLine::clear() {
  if (!live_) return;
  fmt::print(stream_, "\r\x1b[K");
  std::fflush(stream_);
  live_ = false;
}

}  // namespace rondo::tools
