// Where the time of a step goes: a trace for each rank, and a table of kernels.
//
// Spans come from the trainer and the executor. Collectives come from the transport's flight
// record, which knows when each was posted and ended, also while nobody waited for it. Both are put
// into one file in the format of Chrome's tracing, which ui.perfetto.dev shows.
//
// Kernels alone are measured after training, by all ranks at the same time, because ranks of a node
// share caches and memory. Repeated kernels find their data in the caches (warm); a kernel in a
// step finds there what the layers before it left. Cold caches are the other end: a step's kernels
// should lie between the two.

#include "train/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include <rondo/train/dataset.hpp>
#include <rondo/train/model.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "failure.hpp"
#include "files.hpp"
#include "table.hpp"
#include "world.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::json;
using Span = train::StepProfile::Span;

// Passes of a layer in the table, and the parts of a step and the measured directions they are of.
struct Pass {
  const char* name;
  std::vector<std::string> parts;
  std::vector<std::string> directions;
};
const std::vector<Pass> layer_passes = {
    {"forward", {"forward"}, {"forward"}},
    {"backward",
     {"backward_parameters", "backward_input", "add"},
     {"backward", "backward_weights", "backward_data"}},
};

const std::vector<std::pair<const char*, const char*>> other_parts = {
    {"pack", "packing of weights"},           {"load", "waiting for the loader"},
    {"make_ready", "waiting for parameters"}, {"exchange", "scheme and transport between layers"},
    {"sums", "sums over a replica's ranks"},  {"finish", "scheme at the end of the step"},
};

using Key = std::pair<std::string, std::string>;  // layer, part

struct Totals {
  std::map<Key, double> microseconds;
  std::map<Key, double> calls;
  std::vector<std::string> layers;  // in the order of forward
};

// Microseconds of a step on average, by layer and part.
Totals totals_of(const train::StepProfile& profile) {
  Totals totals;
  const double steps = static_cast<double>(std::max<std::int64_t>(profile.steps(), 1));
  for (const Span& span : profile.spans()) {
    const bool of_layer = std::string_view(span.part) == "forward";
    if (of_layer && !span.layer.empty() && std::ranges::count(totals.layers, span.layer) == 0) {
      totals.layers.push_back(span.layer);
    }
    // Other parts of a step are not of one layer: they are added up over all.
    const bool split = std::ranges::any_of(layer_passes, [&](const Pass& pass) {
      return std::ranges::count(pass.parts, span.part) > 0;
    });
    const Key key{split ? span.layer : "", span.part};
    totals.microseconds[key] += static_cast<double>(span.end_ns - span.begin_ns) / 1e3 / steps;
    totals.calls[key] += 1.0 / steps;
  }
  return totals;
}

double at(const std::map<Key, double>& values, const Key& key) {
  const auto found = values.find(key);
  return found == values.end() ? 0.0 : found->second;
}

// The optimizer's, which is called by its own name.
std::optional<double> update_alone(const std::vector<train::KernelTime>& kernels) {
  const auto found = std::ranges::find(kernels, "update", &train::KernelTime::direction);
  return found == kernels.end() ? std::nullopt : std::optional(found->microseconds);
}

// The time of a pass of a layer among kernels alone; nothing when it has no kernel.
std::optional<double> alone(const std::vector<train::KernelTime>& kernels, const std::string& layer,
                            const std::vector<std::string>& directions, double calls) {
  std::optional<double> sum;
  for (const train::KernelTime& kernel : kernels) {
    if (kernel.layer != layer || std::ranges::count(directions, kernel.direction) == 0) continue;
    sum = sum.value_or(0.0) + kernel.microseconds * calls;
  }
  return sum;
}

// A row for each layer and pass: what it takes in a step, and what its kernels take alone, as often
// as they are called in a step (once for each micro-batch).
void add_layer_rows(const Totals& totals, const std::vector<train::KernelTime>& warm,
                    const std::vector<train::KernelTime>& cold, std::vector<ProfileRow>& rows) {
  for (const std::string& layer : totals.layers) {
    for (const Pass& pass : layer_passes) {
      ProfileRow row{.layer = layer, .pass = pass.name, .step = 0.0};
      row.calls = at(totals.calls, {layer, pass.parts.front()});
      for (const std::string& part : pass.parts) {
        *row.step += at(totals.microseconds, {layer, part});
      }
      row.warm = alone(warm, layer, pass.directions, row.calls);
      row.cold = alone(cold, layer, pass.directions, row.calls);
      rows.push_back(std::move(row));
    }
  }
}

// Sums of the layers and the loss: first those that have kernels alone, so that the sum compares
// the same kernels in the step and alone, and then the others.
std::vector<ProfileRow> sums_of_layers(const std::vector<ProfileRow>& rows) {
  ProfileRow sum{.pass = "sum of these kernels", .calls = 1.0};
  ProfileRow others{.pass = "layers without kernels alone", .calls = 1.0};
  for (const ProfileRow& row : rows) {
    std::optional<double>& step = row.warm ? sum.step : others.step;
    step = step.value_or(0.0) + row.step.value_or(0.0);
    if (row.warm) sum.warm = sum.warm.value_or(0.0) + *row.warm;
    if (row.cold) sum.cold = sum.cold.value_or(0.0) + *row.cold;
  }
  return {sum, others};
}

Table table_of(const std::vector<ProfileRow>& rows) {
  const auto time = [](const char* name, const char* heading) {
    return Column{.name = name, .heading = heading, .decimals = 1};
  };
  return TableOf(rows)
      .add({"layer", "layer", Align::left}, &ProfileRow::layer)
      .add({"pass", "pass", Align::left}, &ProfileRow::pass)
      .add({.name = "calls", .heading = "calls", .decimals = 1}, &ProfileRow::calls)
      .add(time("step_us", "in the step us"), &ProfileRow::step)
      .add(time("warm_us", "alone, warm us"), &ProfileRow::warm)
      .add(time("cold_us", "alone, cold us"), &ProfileRow::cold);
}

// An event of Chrome's format that has a duration.
Json complete_event(const Span& span, int rank, std::int64_t origin_ns) {
  const std::string part = span.part;
  return {{"name", span.layer.empty() ? part : span.layer + " " + part},
          {"cat", part},
          {"ph", "X"},
          {"pid", rank},
          {"tid", 0},
          {"ts", static_cast<double>(span.begin_ns - origin_ns) / 1e3},
          {"dur", static_cast<double>(span.end_ns - span.begin_ns) / 1e3},
          {"args", {{"step", span.step}}}};
}

// "M" is metadata: the viewer shows ranks as processes, with training as thread 0 and collectives
// as thread 1.
Json named(const char* what, int rank, int thread, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

// The operations of a flight record that lie in the profiled steps, as pairs of events: they
// overlap each other, so they have no place in a stack of spans.
void add_collectives(const Json& record, const std::vector<Span>& spans, int rank,
                     std::int64_t origin_ns, Json& events) {
  if (!record.is_object() || spans.empty()) return;
  // The record counts from its own beginning, whose time of the system's clock it tells; spans are
  // in that clock, too.
  const double began = record.value("began_unix_us", 0.0) - static_cast<double>(origin_ns) / 1e3;
  const auto from = std::ranges::min(spans, {}, &Span::begin_ns).begin_ns;
  const auto to = std::ranges::max(spans, {}, &Span::end_ns).end_ns;
  int id = 0;
  for (const Json& communicator : record.value("communicators", Json::array())) {
    for (const Json& operation : communicator.value("operations", Json::array())) {
      // An operation that has not ended has no end to draw.
      const Json posted = operation.value("posted_us", Json());
      const Json ended = operation.value("ended_us", Json());
      if (!posted.is_number() || !ended.is_number()) continue;
      const double begin = began + posted.get<double>();
      const double end = began + ended.get<double>();
      if (begin < static_cast<double>(from - origin_ns) / 1e3) continue;
      if (end > static_cast<double>(to - origin_ns) / 1e3) continue;
      Json event = {{"name", operation.value("operation", "operation")},
                    {"cat", "collective"},
                    {"ph", "b"},
                    {"id", ++id},
                    {"pid", rank},
                    {"tid", 1},
                    {"ts", begin},
                    {"args",
                     {{"bytes", operation.value("bytes", Json())},
                      {"communicator", communicator.value("context", Json())}}}};
      events.push_back(event);
      // The same event as its own end: "b" and "e" with one id are an asynchronous operation.
      event["ph"] = "e";
      event["ts"] = end;
      events.push_back(std::move(event));
    }
  }
}

Json trace_of(const train::StepProfile& profile, const std::string& record, int rank,
              std::int64_t origin_ns) {
  Json events = Json::array({named("process_name", rank, 0, fmt::format("rank {}", rank)),
                             named("thread_name", rank, 0, "training")});
  for (const Span& span : profile.spans()) {
    events.push_back(complete_event(span, rank, origin_ns));
  }
  add_collectives(Json::parse(record, nullptr, false), profile.spans(), rank, origin_ns, events);
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
}

// Only the shapes of unsplit layers are known without lowering the model.
bool splits_layers(const train::Experiment& experiment, int ranks) {
  const auto& grid = experiment.grid;
  // The planner's choice is not known here.
  if (grid.plan != train::PlanChoice::given) return true;
  return grid.channel * grid.filter * grid.height * grid.width != 1 ||
         (grid.sample != 0 && grid.sample != ranks);
}

struct KernelsAlone {
  std::vector<train::KernelTime> warm = {};
  std::vector<train::KernelTime> cold = {};
};

// All ranks measure at the same time. On a grid kernels have other shapes, so nothing is measured.
KernelsAlone measure_alone(transport::World& world, const train::Experiment& experiment,
                           int threads, transport::Team* team) {
  if (splits_layers(experiment, world.size())) return {};
  const train::DatasetShape images = train::dataset_shape(experiment.data);
  const train::Model model = train::model_of(experiment, images.image, images.classes);
  // The micro-batch of one rank: kernels are measured in the size in which they run.
  const std::int64_t micro_batches = world.size() * experiment.train.accumulate;
  const std::int64_t batch =
      std::max<std::int64_t>(experiment.train.global_batch / micro_batches, 1);
  const train::UpdateBenchmark update{.optimizer = experiment.optimizer, .team = team};
  const auto measured = [&](train::KernelCaches caches) {
    return train::measure_primitives(model, batch, threads, experiment.train.precision, caches,
                                     update)
        .kernels;
  };
  world.communicator().barrier().wait();
  KernelsAlone times;
  times.warm = measured(train::KernelCaches::warm);
  times.cold = measured(train::KernelCaches::cold);
  return times;
}

std::string milliseconds(const std::optional<double>& microseconds) {
  return microseconds ? fmt::format("{:.2f} ms", *microseconds / 1e3) : "-";
}

// In words what the last rows say.
std::string sentence_of(const std::vector<ProfileRow>& rows, StepRange range, std::int64_t steps) {
  // The names are those that profile_rows() gives the rows.
  const auto row = [&](std::string_view pass) {
    return *std::ranges::find(rows, pass, &ProfileRow::pass);
  };
  const ProfileRow kernels = row("sum of these kernels");
  const std::string whole =
      fmt::format("Mean of {} steps ({} to {}) of rank 0: a step took {}.", steps, range.first,
                  range.last, milliseconds(row("whole step").step));
  if (!kernels.warm) return whole + " Its kernels were not measured alone.";
  return fmt::format(
      "{} Kernels that were also measured alone took {} of it; alone they take {} with warm caches "
      "and {} with cold ones.",
      whole, milliseconds(kernels.step), milliseconds(kernels.warm), milliseconds(kernels.cold));
}

}  // namespace

StepRange parse_steps(std::string_view text) {
  const char* const end = text.data() + text.size();
  StepRange range;
  const auto first = std::from_chars(text.data(), end, range.first);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == ':') {
    const auto last = std::from_chars(first.ptr + 1, end, range.last);
    const bool whole = last.ec == std::errc() && last.ptr == end;
    if (whole && range.first >= 1 && range.last >= range.first) return range;
  }
  throw UsageError(fmt::format(
      "--profile-steps: '{}' is no range of steps; write one like 11:20, counted from 1", text));
}

std::vector<ProfileRow> profile_rows(const train::StepProfile& profile,
                                     const std::vector<train::KernelTime>& warm,
                                     const std::vector<train::KernelTime>& cold) {
  const Totals totals = totals_of(profile);
  std::vector<ProfileRow> rows;
  add_layer_rows(totals, warm, cold, rows);
  rows.push_back({.pass = "loss",
                  .calls = at(totals.calls, {"", "loss"}),
                  .step = at(totals.microseconds, {"", "loss"}),
                  .warm = alone(warm, "loss", {"forward"}, at(totals.calls, {"", "loss"})),
                  .cold = alone(cold, "loss", {"forward"}, at(totals.calls, {"", "loss"}))});
  const double whole = at(totals.microseconds, {"", "step"});
  // Time that no part accounts for is shown, so that the rows add up to the step.
  double rest = whole;
  for (ProfileRow& sum : sums_of_layers(rows)) {
    rest -= sum.step.value_or(0.0);
    rows.push_back(std::move(sum));
  }
  for (const auto& [part, name] : other_parts) {
    const double time = at(totals.microseconds, {"", part});
    rest -= time;
    rows.push_back({.pass = name, .calls = at(totals.calls, {"", part}), .step = time});
  }
  rows.push_back({.pass = "optimizer, alone; in the step within the scheme",
                  .calls = 1.0,
                  .warm = update_alone(warm),
                  .cold = update_alone(cold)});
  rows.push_back({.pass = "not attributed", .calls = 1.0, .step = rest});
  rows.push_back({.pass = "whole step", .calls = 1.0, .step = whole});
  return rows;
}

RunProfile::RunProfile(transport::World& world, StepRange range, fs::path folder)
    : world_(world), range_(range), folder_(std::move(folder)), steps_(range.first, range.last) {}

// The record keeps the last operations only, so it is taken at once. A run that was resumed within
// the range has not recorded all of its steps.
void RunProfile::on_step() {
  if (record_.empty() && steps_.steps() > 0 && steps_.last_run() > range_.last) take_record();
}

constexpr const char* advice_on_room = "see whether there is room in the run folder";

void RunProfile::take_record() {
  const fs::path file = folder_ / fmt::format("profile-record-{}.json", world_.rank());
  try {
    world_.dump_flight_record(file);
  } catch (const std::system_error& error) {
    throw train::DataError(fmt::format("{}: the profile cannot be written: {}; {}", file.string(),
                                       error.code().message(), advice_on_room));
  }
  record_ = read_file(file);
  std::error_code ignored;
  fs::remove(file, ignored);
}

// Files of an earlier part of the run stay, where this part has profiled nothing.
std::string RunProfile::write(const train::Experiment& experiment, int threads,
                              transport::Team* team, RunEnd end) {
  const auto& spans = steps_.spans();
  const std::int64_t first =
      spans.empty() ? 0 : std::ranges::min(spans, {}, &Span::begin_ns).begin_ns;
  // Rank 0's first span is time zero in all traces, so that they fit together in a viewer.
  const std::int64_t origin = std::stoll(broadcast_text(world_, std::to_string(first)));
  if (origin == 0) {
    const std::string run =
        steps_.last_run() == 0
            ? "no step was run"
            : fmt::format("steps {} to {} were run", steps_.first_run(), steps_.last_run());
    return fmt::format(
        "no step was profiled: steps {} to {} were asked for, and {}; choose others with "
        "--profile-steps",
        range_.first, range_.last, run);
  }
  // The run ended before the last of them.
  if (record_.empty()) take_record();
  replace_file(folder_ / fmt::format("profile-rank-{}.json", world_.rank()),
               trace_of(steps_, record_, world_.rank(), origin).dump() + "\n", advice_on_room);
  // A user who stops a run does not wait for measurements.
  const KernelsAlone alone =
      end == RunEnd::complete ? measure_alone(world_, experiment, threads, team) : KernelsAlone{};
  if (world_.rank() != 0) return {};
  const std::vector<ProfileRow> rows = profile_rows(steps_, alone.warm, alone.cold);
  const Table table = table_of(rows);
  const std::string sentence = sentence_of(rows, range_, steps_.steps());
  const Json profile = {{"format", "rondo-profile-1"}, {"about", sentence},
                        {"first_step", range_.first},  {"last_step", range_.last},
                        {"steps", steps_.steps()},     {"kernels", Json::parse(table.json())}};
  replace_file(folder_ / "profile.json", profile.dump(1) + "\n", advice_on_room);
  return table.text() + sentence;
}

}  // namespace rondo::tools
