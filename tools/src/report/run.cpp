// The folder of a run as a report shows it: events, keys of the configuration, curves.
//
// Files of other versions and of runs that were killed must not end a report, so everything is
// optional: what is absent is left out, what is damaged is skipped and named.
//
// Events count steps. A reader may ask for epochs, for seconds of training, or for what was
// communicated, so every point gets all of these: the latter lie on lines between the ends of
// epochs, where they are known.

#include "report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "failure.hpp"
#include "files.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::json;

// More points than a screen has columns say nothing, and make a page slow.
constexpr std::size_t most_points = 1500;

// An event's fields that a report cannot do without; nothing for others.
const char* needed_field(std::string_view kind) {
  if (kind == "step" || kind == "window" || kind == "round") return "total_step";
  if (kind == "epoch") return "epoch";
  if (kind == "push") return "samples";
  return nullptr;
}

constexpr std::size_t most_damaged = 5;  // lines that are named; a file may be another's

class EventReader {
 public:
  EventReader(const fs::path& file, ReportedRun& run) : file_(file), run_(run) {}

  void read() {
    for_each_event(
        file_, [this](const Json& event) { add(event); },
        [this](std::size_t line) { damaged(line); });
    if (damaged_ > most_damaged) {
      problem(fmt::format("{} more lines are no JSON objects", damaged_ - most_damaged));
    }
    if (!run_.start.is_object()) problem("there is no start event; it says what was run");
    if (!run_.end.is_object())
      problem("there is no end event: the run still goes on, or was killed");
  }

 private:
  void problem(const std::string& text) {
    run_.problems.push_back(fmt::format("{}: {}", file_.string(), text));
  }

  void damaged(std::size_t line) {
    ++damaged_;
    if (damaged_ > most_damaged) return;
    run_.problems.push_back(
        fmt::format("{}:{}: skipped: this line is no JSON object", file_.string(), line));
  }

  // An event of a later version is kept under its kind, and no curve asks for it.
  void add(const Json& event) {
    ++events_;
    const std::string kind = text_in(event, "event");
    if (kind.empty()) return skip("it has no field 'event'");
    const char* needed = needed_field(kind);
    if (needed != nullptr && !number_in(event, needed)) {
      return skip(fmt::format("the {} event has no number '{}'", kind, needed));
    }
    if (kind == "start") {
      run_.start = event;
      run_.parts = {event};
    } else if (kind == "resume") {
      resume(event);
    } else if (kind == "end") {
      run_.end = event;
    } else {
      run_.events[kind].push_back(event);
    }
  }

  void resume(const Json& event) {
    overlay_resume(run_.start, event);
    if (run_.start.is_object()) run_.parts.push_back(run_.start);
  }

  // Damaged lines may lie between, so the line is counted from both.
  void skip(const std::string& why) {
    run_.problems.push_back(
        fmt::format("{}:{}: skipped: {}", file_.string(), events_ + damaged_, why));
  }

  fs::path file_;
  ReportedRun& run_;
  std::size_t events_ = 0;
  std::size_t damaged_ = 0;
};

// The parts of a run in a start event, and the keys that name them in a configuration.
constexpr std::array<std::pair<const char*, const char*>, 3> parts = {
    {{"data", "data.name"}, {"model", "model.name"}, {"scheme", "update.scheme"}}};

// metrics.jsonl takes precedence: it has the configuration of the run's last part.
void read_keys(ReportedRun& run) {
  std::string config = text_in(run.start, "config");
  if (config.empty()) config = read_file(run.folder / "config.toml");
  if (config.empty()) {
    run.problems.push_back(fmt::format("{}: there is no config.toml, and no start event with one",
                                       run.folder.string()));
  }
  // As texts: keys of later versions are compared and shown like all others.
  for (auto& [key, value] : keys_of(config)) run.keys[key] = value;
  // The launcher chose the threads; these two are not part of a configuration.
  for (const char* name : {"ranks", "nodes"}) {
    const auto count = number_in(run.start, name);
    if (count) run.keys[name] = fmt::format("{:g}", *count);
  }
  // A program may train with parts of its own, which its configuration does not name.
  for (const auto& [name, key] : parts) {
    const std::string part = text_in(run.start, name);
    const auto configured = run.keys.find(key);
    const bool is_own = configured == run.keys.end() || configured->second != '"' + part + '"';
    if (!part.empty() && is_own) run.keys[name] = part;
  }
}

// The costs of a run up to the end of a step.
class EpochClock {
 public:
  explicit EpochClock(const ReportedRun& run)
      : steps_per_epoch_(number_in(run.start, "steps_per_epoch").value_or(0.0)),
        total_steps_(total_steps_of(run)),
        marks_({Mark{.step = run.record.steps_elsewhere}}) {
    Mark mark = marks_.front();
    for (const Json& epoch : events_of(run, "epoch")) {
      mark.step = end_of(*number_in(epoch, "epoch"));
      mark.seconds += number_in(epoch, "seconds").value_or(0.0);
      mark.reductions += number_in(epoch, "global_reductions").value_or(NAN);
      mark.bytes += number_in(epoch, "bytes_sent").value_or(NAN);
      marks_.push_back(mark);
    }
    if (marks_.size() == 1) add_first_mark(run);
  }

  // The step with which an epoch ends: the last one may be cut short.
  [[nodiscard]] double end_of(double epoch) const {
    return steps_per_epoch_ > 0.0 ? std::min(epoch * steps_per_epoch_, total_steps_) : epoch;
  }
  [[nodiscard]] double epoch_of(double step) const {
    return steps_per_epoch_ > 0.0 ? step / steps_per_epoch_ : step;
  }

  // A mark in this folder's part of the run: all but the step is 0 where the part begins.
  struct Mark {
    double step = 0.0;
    double seconds = 0.0;
    double reductions = 0.0;
    double bytes = 0.0;
  };

  // Behind the last mark as fast as before it. Not a number where that is not known.
  [[nodiscard]] double at(double step, double Mark::* spent) const {
    if (marks_.size() < 2) return NAN;
    const auto behind = std::ranges::lower_bound(marks_, step, {}, &Mark::step);
    const std::size_t to = std::clamp<std::size_t>(
        static_cast<std::size_t>(behind - marks_.begin()), 1, marks_.size() - 1);
    const Mark& before = marks_[to - 1];
    const Mark& after = marks_[to];
    if (after.step <= before.step) return after.*spent;
    return before.*spent +
           (step - before.step) * (after.*spent - before.*spent) / (after.step - before.step);
  }

  static const std::vector<Json>& events_of(const ReportedRun& run, const char* kind) {
    static const std::vector<Json> none;
    const auto found = run.events.find(kind);
    return found == run.events.end() ? none : found->second;
  }

 private:
  // No epoch has ended: the last step event tells how fast the run is.
  void add_first_mark(const ReportedRun& run) {
    const std::vector<Json>& steps = events_of(run, "step");
    const auto batch = number_in(run.start, "global_batch");
    if (steps.empty() || !batch) return;
    const auto rate = number_in(steps.back(), "images_per_second");
    const double step = *number_in(steps.back(), "total_step");
    if (!rate || *rate <= 0.0) return;
    marks_.push_back({step, (step - marks_.front().step) * *batch / *rate, NAN, NAN});
  }

  // Where the last part does not say how far the run goes, its end does.
  static double total_steps_of(const ReportedRun& run) {
    const auto planned = number_in(run.start, "total_steps");
    return planned ? *planned : number_in(run.end, "steps").value_or(HUGE_VAL);
  }

  double steps_per_epoch_;
  double total_steps_;
  std::vector<Mark> marks_;
};

// A push counts samples since the warm-up. Cyclic ranks take no common steps; the samples that were
// pushed are as many steps of the global batch.
double step_of_push(const ReportedRun& run, const Json& push) {
  const double batch = number_in(run.start, "global_batch").value_or(1.0);
  const auto warm_up = run.keys.find("update.warmup_epochs");
  double epochs = 0.0;
  if (warm_up != run.keys.end()) epochs = std::strtod(warm_up->second.c_str(), nullptr);
  epochs = std::max(epochs, 0.0);  // -1: as usual for the scheme, which is none
  const double per_epoch = number_in(run.start, "steps_per_epoch").value_or(0.0);
  return std::round(epochs * per_epoch) + *number_in(push, "samples") / std::max(batch, 1.0);
}

// On the axis of steps each kind of event has its place by another field.
double step_of(const ReportedRun& run, const EpochClock& clock, const Json& event) {
  const std::string kind = text_in(event, "event");
  if (kind == "push") return step_of_push(run, event);
  if (kind == "epoch") return clock.end_of(*number_in(event, "epoch"));
  return *number_in(event, "total_step");
}

}  // namespace

// Each text once: hosts repeat where several ranks run on one.
std::string list_in(const Json& event, const char* name) {
  if (!event.is_object()) return {};
  const auto found = event.find(name);
  if (found == event.end() || !found->is_array()) return {};
  std::vector<std::string> texts;
  for (const Json& entry : *found) {
    if (entry.is_string()) texts.push_back(entry.get<std::string>());
  }
  std::ranges::sort(texts);
  texts.erase(std::ranges::unique(texts).begin(), texts.end());
  return fmt::format("{}", fmt::join(texts, ", "));
}

ReportedRun read_reported_run(const fs::path& folder) {
  ReportedRun run{.folder = folder, .name = fs::absolute(folder).lexically_normal().string()};
  while (run.name.size() > 1 && run.name.ends_with('/')) run.name.pop_back();
  run.name = fs::path(run.name).filename().string();
  const fs::path metrics = folder / "metrics.jsonl";
  // A run that has not begun has a config.toml alone.
  const bool has_metrics = is_there(metrics);
  if (!has_metrics && !is_there(folder / "config.toml")) {
    throw UsageError(
        fmt::format("{} is no run directory: it has neither metrics.jsonl nor "
                    "config.toml; name the directory that rondo train wrote",
                    folder.string()));
  }
  if (has_metrics) {
    try {
      EventReader(metrics, run).read();
      run.record = read_run_record(metrics);
    } catch (const train::DataError& error) {
      run.problems.emplace_back(error.what());
    }
  } else {
    run.problems.push_back(metrics.string() + ": there is no such file, so there are no curves");
  }
  read_keys(run);
  return run;
}

const std::vector<CurveKind>& curve_kinds() {
  static const std::vector<CurveKind> kinds = {
      {"Test accuracy", "%", "epoch", "accuracy", "On the test set, after each epoch.", false},
      {"Training loss", "", "step", "loss", "Mean over the samples since the point before.", false},
      {"Test loss", "", "epoch", "test_loss", "On the test set, after each epoch.", false},
      {"Training accuracy", "%", "step", "training_accuracy",
       "Of the training samples since the point before, as they were seen.", false},
      {"Learning rate", "", "step", "learning_rate", "Of the step."},
      {"Images per second", "", "epoch", "images_per_second",
       "Of all ranks, without evaluation, for each epoch."},
      {"Communication share", "%", "epoch", "communication_share",
       "Share of the training time inside transport calls after the last rank had arrived.", true,
       100.0},
      {"Wait share", "%", "epoch", "wait_share",
       "Share of the training time inside transport calls before the last rank had arrived.", true,
       100.0},
      {"Data sent in an epoch", "MiB", "epoch", "bytes_sent", "Between all ranks, for training.",
       true, 1.0 / (1 << 20)},
      {"Tau", "iterations", "window", "tau", "lazy: the length of the next window."},
      {"Displacement", "", "round", "displacement",
       "k_step and hierarchical: how far the mean of the ranks moved in a round."},
      {"Staleness", "versions", "push", "staleness",
       "cyclic: versions that other workers made since the worker's last pull."},
  };
  return kinds;
}

Json curve_of(const ReportedRun& run, const CurveKind& kind) {
  const std::vector<Json>& events = EpochClock::events_of(run, kind.event);
  const EpochClock clock(run);
  // Points are left out evenly, and the last one stays.
  const std::size_t every = (events.size() + most_points - 1) / most_points;
  Json steps = Json::array();
  Json epochs = Json::array();
  Json seconds = Json::array();
  Json reductions = Json::array();
  Json bytes = Json::array();
  Json values = Json::array();
  bool any = false;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (i % every != 0 && i + 1 != events.size()) continue;
    const double step = step_of(run, clock, events[i]);
    const auto value = number_in(events[i], kind.field);
    any = any || value;
    steps.push_back(step);
    // Several numbers of one point, so that the reader changes the axis without a new page.
    epochs.push_back(clock.epoch_of(step));
    seconds.push_back(clock.at(step, &EpochClock::Mark::seconds));
    reductions.push_back(clock.at(step, &EpochClock::Mark::reductions));
    bytes.push_back(clock.at(step, &EpochClock::Mark::bytes));
    values.push_back(value ? Json(*value * kind.scale) : Json());
  }
  if (!any) return {};
  return {{"step", steps},  {"epoch", epochs}, {"seconds", seconds}, {"reductions", reductions},
          {"bytes", bytes}, {"y", values},     {"every", every}};
}

}  // namespace rondo::tools
