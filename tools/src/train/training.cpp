// One run of `rondo train` on this machine: what is asked for, which cores its ranks get, the name
// of its folder, the job that starts them, and what people are shown of it. `rondo compare` makes
// many.
//
// Rank 0 shows a line that follows the training, a line for each epoch, and at the end a table of
// what communication has cost.

#include "train/training.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "failure.hpp"
#include "files.hpp"
#include "say.hpp"
#include "table.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

// 0 where there is no such file.
std::uintmax_t bytes_of(const fs::path& file) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(file, error);
  return error ? 0 : bytes;
}

// Two runs may begin in the same second.
fs::path new_run_folder(const train::Experiment& experiment) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const std::string name = fmt::format("{:%Y%m%d-%H%M%S}-{}-{}", fmt::localtime(now),
                                       experiment.model.name, experiment.data.name);
  fs::path folder = fs::path("runs") / name;
  for (int copy = 2; is_there(folder); ++copy) {
    folder = fs::path("runs") / fmt::format("{}-{}", name, copy);
  }
  return folder;
}

using Clock = std::chrono::steady_clock;

// Often enough to look alive, seldom enough to cost nothing.
constexpr std::chrono::milliseconds refresh_interval{100};

// 80 columns where the terminal does not say.
std::size_t terminal_width(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// "1:02" or "1:00:02"; "?" before anything is known.
std::string format_time(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  if (whole >= 3600)
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string format_share(double share) { return fmt::format("{:.1f} %", 100 * share); }

// 0 where there is nothing to compare with.
double percent(double part, double whole) { return whole > 0.0 ? 100.0 * part / whole : 0.0; }

std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

// "40 % less than synchronous". What is as much as synchronous is said so, and not as "0.00 %
// less".
std::string against(std::uint64_t used, std::uint64_t synchronous) {
  const auto mine = static_cast<double>(used);
  const auto theirs = static_cast<double>(synchronous);
  if (used == synchronous || synchronous == 0) return "as synchronous";
  if (used < synchronous) return fmt::format("{:.2f} % less", percent(theirs - mine, theirs));
  return fmt::format("{:.2f} % more", percent(mine - theirs, theirs));
}

// A line of the summary.
struct Cost {
  std::string name;
  std::string own;
  std::string synchronous;
  std::string difference;
};

std::string number(auto count) { return fmt::format("{}", count); }

Cost cost_in_bytes(std::string name, std::uint64_t own, std::uint64_t synchronous) {
  return {std::move(name), mebibytes(own), mebibytes(synchronous), against(own, synchronous)};
}

// Lines about local reductions and lazy layers are there only for schemes that have them.
std::vector<Cost> costs_of(const train::RunSummary& summary) {
  const std::uint64_t synchronous = summary.synchronous_reductions;
  std::string difference = against(summary.global_reductions, synchronous);
  if (summary.global_reductions < synchronous) {
    difference += fmt::format(", {} avoided", synchronous - summary.global_reductions);
  }
  std::vector<Cost> costs = {
      {"global reductions", number(summary.global_reductions), number(synchronous), difference}};
  if (summary.local_reductions > 0) {
    costs.push_back({"local reductions", number(summary.local_reductions), "0", ""});
  }
  // Lazy layers are reduced at the end of a window alone.
  if (summary.lazy_iterations > 0) {
    const auto iterations = static_cast<double>(summary.lazy_iterations);
    const double saved = iterations - static_cast<double>(summary.lazy_reductions);
    costs.push_back({"of lazy layers", number(summary.lazy_reductions),
                     number(summary.lazy_iterations),
                     fmt::format("{:.2f} % saved", percent(saved, iterations))});
  }
  costs.push_back(cost_in_bytes("bytes reduced", summary.global_bytes + summary.local_bytes,
                                summary.synchronous_bytes));
  costs.push_back(cost_in_bytes("bytes sent", summary.bytes_sent, summary.synchronous_bytes_sent));
  return costs;
}

}  // namespace

fs::path run_folder_for(const fs::path& folder, const train::Experiment& experiment) {
  return folder.empty() ? new_run_folder(experiment) : folder;
}

// A run that is resumed from a checkpoint goes on in the folder of that checkpoint, unless --out
// says otherwise.
fs::path folder_asked_for(const TrainRequest& request) {
  if (!request.folder.empty() || request.resume.empty()) return request.folder;
  if (request.resume == "auto") {
    throw UsageError("--resume auto needs the run's folder; give it with --out");
  }
  if (is_there(request.resume / "checkpoints")) return request.resume;
  // A path to one checkpoint: RUN/checkpoints/step-N, or a link to it.
  std::error_code error;
  fs::path path = fs::weakly_canonical(request.resume, error);
  if (error) path = fs::absolute(request.resume);
  if (!path.has_filename()) path = path.parent_path();
  const fs::path above = path.parent_path();
  return above.filename() == "checkpoints" ? above.parent_path() : fs::path();
}

void refuse_setting(const TrainRequest& request, std::string_view key, std::string_view advice) {
  for (const std::string_view setting : request.settings) {
    std::string_view own = setting.substr(0, setting.find('='));
    while (own.ends_with(' ')) own.remove_suffix(1);
    while (own.starts_with(' ')) own.remove_prefix(1);
    if (own == key) throw UsageError(fmt::format("--set {}: {}", key, advice));
  }
}

// Options about links and memory become keys, so that config.toml repeats the run without them.
std::vector<std::string> all_settings(const TrainRequest& request) {
  std::vector<std::string> settings = request.settings;
  const FabricRequest& fabric = request.launch.fabric;
  const auto set = [&](const char* key, const auto& value, const char* quote) {
    if (value) settings.push_back(fmt::format("transport.{}={}{}{}", key, quote, *value, quote));
  };
  // Strings need quotes, so that TOML does not read a name as something else.
  set("fake_nodes", fabric.fake_nodes, "");
  set("fabric", fabric.fabric, "'");
  set("interface", fabric.interface, "'");
  set("latency_us", fabric.latency_us, "");
  set("bandwidth_gbs", fabric.bandwidth_gbs, "");
  if (request.memory_limit) {
    settings.push_back(fmt::format("train.memory_limit={}", *request.memory_limit));
  }
  return settings;
}

int threads_asked_for(const TrainRequest& request, const train::Experiment& experiment) {
  return request.launch.placement.threads > 0 ? request.launch.placement.threads
                                              : static_cast<int>(experiment.train.threads);
}

// A named pipe may be written to again and again, once for each that reads it.
void refuse_what_is_read_once(const fs::path& config) {
  std::error_code error;
  const bool is_device = fs::is_character_file(config, error);
  const std::string path = fs::absolute(config, error).lexically_normal().string();
  // Even a file is left at its end by the launcher.
  const bool is_open =
      path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
  if (!is_open && !is_device) return;
  throw UsageError(fmt::format(
      "{}: every rank reads the configuration, and this can be read only once; write it to a file",
      config.string()));
}

// Threads come from the command line, else from [train]; the placement decides when neither says.
Training plan_training(const TrainRequest& request, train::Experiment experiment,
                       const Machine& machine) {
  PlacementRequest places = request.launch.placement;
  places.threads = threads_asked_for(request, experiment);
  Training training{std::move(experiment), place(machine, places), request.launch.fabric};
  training.experiment.train.threads = training.placement.threads;
  // The configuration has it from the file, or from the option by all_settings().
  const auto nodes = static_cast<int>(training.experiment.transport.fake_nodes);
  if (nodes > 0) training.fabric.fake_nodes = nodes;
  return training;
}

// The ranks get the resolved folder and threads; settings go to them as they were given.
Job training_job(const TrainRequest& request, const Training& training, const fs::path& folder) {
  std::vector<std::string> arguments = {"train", "--out", folder.string(), "--format",
                                        name_of(text_or_json, request.format)};
  for (const std::string& setting : all_settings(request)) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  if (!request.resume.empty()) {
    arguments.insert(arguments.end(), {"--resume", request.resume.string()});
  }
  // The placement has decided; a rank sees only the cores that it is bound to.
  arguments.insert(arguments.end(), {"--threads", std::to_string(training.placement.threads)});
  if (request.launch.placement.oversubscribe) arguments.emplace_back("--oversubscribe");
  if (request.sweep) arguments.emplace_back("--sweep");
  if (request.profile) arguments.emplace_back("--profile");
  if (!request.profile_steps.empty()) {
    arguments.insert(arguments.end(), {"--profile-steps", request.profile_steps});
  }
  const auto records = request.launch.flight_record.empty() ? folder : request.launch.flight_record;
  arguments.insert(arguments.end(), {"--flight-record", records.string(), "--recorded"});
  // Last, because its name may begin with a hyphen.
  arguments.insert(arguments.end(), {"--", request.config.string()});
  return {.command = own_command(arguments),
          .placement = training.placement,
          .fabric = training.fabric,
          .flight_record = records,
          .has_refused = [metrics = folder / "metrics.jsonl",
                          bytes = bytes_of(folder / "metrics.jsonl")](int status) {
            // A run that begins, or goes on, writes its first line there.
            return (status == exit_usage || status == exit_data) && bytes_of(metrics) == bytes;
          }};
}

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
  // The most important part is the leftmost, and no part is cut in two.
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

namespace {

// A terminal that is called dumb cannot erase a line.
bool rewrites_lines(std::FILE* stream) {
  const char* const kind = std::getenv("TERM");
  return isatty(fileno(stream)) == 1 && !(kind != nullptr && std::string_view(kind) == "dumb");
}

}  // namespace

ProgressLine::ProgressLine(std::FILE* stream, std::int64_t every)
    : stream_(stream), every_(every), terminal_(rewrites_lines(stream)) {}

ProgressLine::~ProgressLine() { clear(); }

// On a terminal the line is rewritten a few times in a second. Elsewhere a line is due whenever the
// step has passed another multiple of `every_`: steps may be reported in jumps.
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
  put(stream_, fmt::format("\r{}\x1b[K", format_progress(progress, width)));
  live_ = true;
}

void ProgressLine::print(const std::string& line) {
  clear();
  put(stream_, line + "\n");
}

// Removes the live line, so that what is printed next begins at the left.
void ProgressLine::clear() {
  if (!live_) return;
  put(stream_, "\r\x1b[K");
  live_ = false;
}

// Beside each cost stands that of synchronous updates in the same steps: the saving is what other
// schemes are chosen for.
std::string format_summary(const train::RunSummary& summary) {
  const std::vector<Cost> costs = costs_of(summary);
  std::string text = TableOf(costs)
                         .add({.heading = "communication", .align = Align::left}, &Cost::name)
                         .add({.heading = summary.scheme}, &Cost::own)
                         .add({.heading = "synchronous"}, &Cost::synchronous)
                         .add({.heading = "difference", .align = Align::left}, &Cost::difference)
                         .text("  ");
  text += fmt::format(
      "  of {:.1f} s of training {:.1f} s ({:.1f} %) were communication and {:.1f} s ({:.1f} %) "
      "waiting",
      summary.training_seconds, summary.communication_seconds,
      percent(summary.communication_seconds, summary.training_seconds), summary.wait_seconds,
      percent(summary.wait_seconds, summary.training_seconds));
  if (!summary.injected.empty()) {
    text += fmt::format("\n  injected delays: {}", fmt::join(summary.injected, "; "));
  }
  return text;
}

}  // namespace rondo::tools
