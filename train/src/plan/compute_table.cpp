// How long a rank computes a layer: measured here once per shape, kept in a file under the name of
// the machine, and estimated by the rates of similar layers where nothing was measured.
//
// Measuring every split of every layer would take hours. So a layer is measured for as many samples
// as are quick to compute, and scaled to the real number; a split that was never measured is
// estimated by the fastest rate that its layer has shown; and the planner measures only the splits
// that its best plan uses, until it uses nothing else.

#include "plan/compute_table.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <ios>
#include <limits>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <rondo/sync/optimizer.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/train/compute_costs.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/train/scaling.hpp>
#include <rondo/transport/team.hpp>

#include "benchmark/model_benchmark.hpp"
#include "layers/layer_type.hpp"
#include "schemes/make_scheme.hpp"

namespace rondo::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int format = 1;

// A kernel that was refused has no time: another version of oneDNN, or of Rondo, may have one, so
// it is asked for again each time.
bool is_possible(const WorkSeconds& work) { return std::isfinite(work.total()); }

// JSON knows no infinity: older programs wrote null for one.
double from_json(const Json& seconds) {
  return seconds.is_null() ? std::numeric_limits<double>::infinity() : seconds.get<double>();
}

}  // namespace

std::map<std::string, WorkSeconds> read_times(const std::filesystem::path& file) {
  std::map<std::string, WorkSeconds> times;
  std::ifstream in(file);
  try {
    const Json object = Json::parse(in);
    // A file of another version, or one that is broken, is no error: its times are measured again.
    if (object.at("format") != format) return {};
    for (const auto& [key, seconds] : object.at("seconds").items()) {
      const WorkSeconds work{.forward = from_json(seconds.at(0)),
                             .backward_weights = from_json(seconds.at(1)),
                             .backward_data = from_json(seconds.at(2))};
      if (is_possible(work)) times[key] = work;
    }
  } catch (const nlohmann::json::exception&) {
    return {};
  } catch (const std::ios_base::failure&) {  // a folder in its place, of which write_times() speaks
    return {};
  }
  return times;
}

namespace {

// The error, if there was one; nothing if the file is written.
std::error_code write_new_file(const std::filesystem::path& file, const std::string& text) {
  errno = 0;
  std::ofstream out(file);
  out << text;
  out.close();
  if (out) return {};
  return {errno == 0 ? EIO : errno, std::generic_category()};
}

}  // namespace

void write_times(const std::filesystem::path& file,
                 const std::map<std::string, WorkSeconds>& times) {
  Json seconds = Json::object();
  for (const auto& [key, work] : times) {
    if (is_possible(work)) seconds[key] = {work.forward, work.backward_weights, work.backward_data};
  }
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  // Written aside and renamed, so that two planners at a time, or two threads of one, leave a whole
  // file.
  static std::atomic<int> count{0};
  const std::filesystem::path aside = fmt::format("{}.{}.{}", file.string(), getpid(), ++count);
  const Json whole = {{"format", format}, {"seconds", seconds}};
  if (!error) error = write_new_file(aside, whole.dump(1) + "\n");
  if (!error) std::filesystem::rename(aside, file, error);
  if (!error) return;
  std::error_code ignored;
  std::filesystem::remove(aside, ignored);
  throw std::runtime_error(file.string() + ": cannot be written: " + error.message());
}

namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace

std::string key_of(const LocalWork& work) {
  return fmt::format("{} on {}x{}x{}x{}{}", work.kind->text(), work.input.n, work.input.h,
                     work.input.w, work.input.c, work.input_gradient ? "" : " without dx");
}

// Times are of a processor, a number of threads and the kernels that it has; one file may hold
// those of many.
std::string machine_key(int threads) {
  return fmt::format("{}, {}, {} threads: ", tensor::kernel_set(), processor(), threads);
}

ComputeCosts::~ComputeCosts() = default;

double pass_flops(const LocalWork& work) { return work.kind->flops(work.input); }

FlopRate::FlopRate(double flops) : flops_(flops) {
  if (!(flops > 0.0)) throw std::invalid_argument("flop rate: must be greater than 0");
}

WorkSeconds FlopRate::seconds(const LocalWork& work) const {
  const double pass = pass_flops(work) / flops_;
  return {
      .forward = pass, .backward_weights = pass, .backward_data = work.input_gradient ? pass : 0.0};
}

double FlopRate::update_seconds(std::size_t /*parameters*/) const { return 0.0; }

namespace {

constexpr double most_flops = 1e9;  // of a pass that is measured
constexpr double most_elements = 4e6;
constexpr std::int64_t least_connected = 32;  // fewer samples do not fill a matrix product
constexpr std::size_t most_parameters = 1 << 22;

// The quantity with which a layer's time grows.
double amount_of(const LocalWork& work) {
  const double flops = pass_flops(work);
  return flops > 0.0 ? flops : static_cast<double>(work.input.size());
}

// The same layer for as many samples as are measured.
LocalWork sample_of(LocalWork work) {
  if (work.input.n == 0) return work;
  const double most = pass_flops(work) > 0.0 ? most_flops : most_elements;
  const double per_sample = amount_of(work) / static_cast<double>(work.input.n);
  auto samples = static_cast<std::uint64_t>(std::max(most / std::max(per_sample, 1.0), 1.0));
  // A power of two, so that many splits of a layer are the same measurement.
  samples = std::bit_floor(samples);
  if (work.kind->traits().weights == Weights::outputs) {
    samples = std::max<std::uint64_t>(samples, least_connected);
  }
  work.input.n = std::min(work.input.n, static_cast<std::int64_t>(samples));
  return work;
}

WorkSeconds fastest(const WorkSeconds& a, const WorkSeconds& b) {
  return {.forward = std::min(a.forward, b.forward),
          .backward_weights = std::min(a.backward_weights, b.backward_weights),
          .backward_data = std::min(a.backward_data, b.backward_data)};
}

WorkSeconds sum_of(const std::vector<KernelTime>& kernels) {
  WorkSeconds seconds;
  for (const KernelTime& kernel : kernels) {
    double& part = kernel.direction == "forward"            ? seconds.forward
                   : kernel.direction == "backward_weights" ? seconds.backward_weights
                                                            : seconds.backward_data;
    part += 1e-6 * kernel.microseconds;
  }
  return seconds;
}

WorkSeconds run(tensor::Engine& engine, const LocalWork& work, tensor::DataType type) {
  const LayerSpec spec{
      .name = work.layer, .kind = work.kind, .inputs = {work.input_gradient ? 1U : 0U}};
  try {
    return sum_of(measure_layer(engine, spec, work.input, type));
  } catch (const std::runtime_error&) {
    // oneDNN has no fast kernel for such a part: a plan that has it is never the fastest.
    constexpr double forever = std::numeric_limits<double>::infinity();
    return {.forward = forever, .backward_weights = forever, .backward_data = forever};
  }
}

}  // namespace

std::filesystem::path kernel_times_file() {
  const auto folder = [](const char* variable) {
    const char* path = std::getenv(variable);
    // Relative paths in these variables are to be ignored (XDG Base Directory Specification).
    return path != nullptr && *path == '/' ? std::filesystem::path(path) : std::filesystem::path();
  };
  std::filesystem::path cache = folder("XDG_CACHE_HOME");
  if (cache.empty() && !folder("HOME").empty()) cache = folder("HOME") / ".cache";
  return cache.empty() ? cache : cache / "rondo" / "kernel-times.json";
}

ComputeTable::ComputeTable(int threads, std::filesystem::path file, tensor::DataType type,
                           UpdateBenchmark update)
    : threads_(threads),
      type_(type),
      update_(std::move(update)),
      file_(std::move(file)),
      machine_(machine_key(threads)) {
  tensor::require_computable(type);
  if (!file_.empty()) times_ = read_times(file_);
}

ComputeTable::~ComputeTable() = default;

std::string ComputeTable::key_of(const LocalWork& work) const {
  const char* const type = type_ == tensor::DataType::f32 ? "" : "bf16 ";
  return machine_ + type + train::key_of(sample_of(work));
}

// The time of the pass follows from the kind of optimizer, and not from its rates. A parameter of a
// small model takes less time, as caches have all of it.
std::string ComputeTable::update_key() const {
  return fmt::format("{}update of {} parameters by {}, team of {}", machine_, updated_,
                     name_of(update_.optimizer.name),
                     update_.team != nullptr ? update_.team->size() : 1);
}

WorkSeconds ComputeTable::seconds(const LocalWork& work) const {
  if (work.input.size() == 0) return {};
  const auto found = times_.find(key_of(work));
  if (found != times_.end()) {
    return in_a_step(work) * amount_of(work) / amount_of(sample_of(work)) * found->second;
  }
  const auto rate = rates_.find(work.layer);
  return rate == rates_.end() ? WorkSeconds{} : in_a_step(work) * amount_of(work) * rate->second;
}

double ComputeTable::update_seconds(std::size_t parameters) const {
  const auto found = times_.find(update_key());
  return found == times_.end() ? 0.0 : found->second.forward * static_cast<double>(parameters);
}

bool ComputeTable::knows(const LocalWork& work) const {
  return work.input.size() == 0 || times_.contains(key_of(work));
}

void ComputeTable::measure(const LocalWork& work) {
  if (work.input.size() == 0) return;
  if (!knows(work)) {
    if (!engine_)
      engine_ = std::make_unique<tensor::Engine>(threads_, std::pmr::get_default_resource(),
                                                 usual_convolutions);
    times_[key_of(work)] = run(*engine_, sample_of(work), type_);
    ++measurements_;
  }
  const WorkSeconds rate = 1 / (in_a_step(work) * amount_of(work)) * seconds(work);
  const auto [known, is_new] = rates_.try_emplace(work.layer, rate);
  if (!is_new) known->second = fastest(known->second, rate);
}

void ComputeTable::measure_update(std::size_t parameters) {
  updated_ = std::min(parameters, most_parameters);
  if (times_.contains(update_key())) return;
  // One matrix of weights.
  const ParameterLayout layout{.parameters = {{.shape = {1, static_cast<std::int64_t>(updated_)}}},
                               .parameter_count = updated_};
  const auto optimizer = make_optimizer(update_.optimizer, layout, update_.team);
  times_[update_key()].forward =
      1e-6 * update_microseconds(*optimizer) / static_cast<double>(updated_);
  ++measurements_;
}

double ComputeTable::in_a_step(const LocalWork& work) const {
  return std::max(1.0, per_sample_ + fixed_ / static_cast<double>(work.input.n));
}

// A step without its update, to the sum of its layers alone.
double ComputeTable::step_to_layers(const Model& model, std::int64_t samples) {
  double layers = 0.0;
  std::string key = fmt::format("{}{}step of {} {}", machine_,
                                type_ == tensor::DataType::f32 ? "" : "bf16 ", samples, model.name);
  for (const LocalWork& work : unsplit_work(model, samples)) {
    measure(work);
    layers += seconds(work).total();
    key += "; " + train::key_of(work);
  }
  key += "; " + update_key();
  if (!times_.contains(key)) {
    const StepTime step = train::measure_step(model, samples, threads_, type_, update_);
    times_[key].forward = 1e-6 * step.microseconds;
    ++measurements_;
  }
  const double rest = times_[key].forward - update_seconds(layout_of(model).parameter_count);
  return std::isfinite(layers) && layers > 0.0 ? rest / layers : 1.0;
}

void ComputeTable::measure_step(const Model& model, std::int64_t samples,
                                std::int64_t most_samples) {
  measure_update(layout_of(model).parameter_count);
  per_sample_ = 1.0;
  fixed_ = 0.0;
  const double few = step_to_layers(model, samples);
  const std::int64_t more = std::min(4 * samples, most_samples);
  if (more <= samples) {
    per_sample_ = few;
    return;
  }
  const double many = step_to_layers(model, more);
  fixed_ = std::max(
      0.0, (few - many) / (1.0 / static_cast<double>(samples) - 1.0 / static_cast<double>(more)));
  per_sample_ = many - fixed_ / static_cast<double>(more);
}

void ComputeTable::save() const {
  if (file_.empty() || measurements_ == 0) return;
  // Read again: another planner may have added times meanwhile.
  std::map<std::string, WorkSeconds> all = read_times(file_);
  for (const auto& [key, seconds] : times_) all[key] = seconds;
  write_times(file_, all);
}

}  // namespace rondo::train
