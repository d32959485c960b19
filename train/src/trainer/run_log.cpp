// The reports of a run: events to the observer of rank 0, and as lines of metrics.jsonl. A line is
// written through at once, so that a run that is killed leaves whole lines.
//
// docs/metrics.md says what each field means; a test compares the two. Only rank 0 has a file; the
// other ranks call the same functions, which do nothing there.

#include "trainer/run_log.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/output_file.hpp>

#include "schemes/cyclic.hpp"
#include "trainer/run_state.hpp"

namespace rondo::train {
namespace {

using Json = nlohmann::ordered_json;

std::string reason_of_last_failure() {
  return errno == 0 ? "unknown reason" : std::generic_category().message(errno);
}

/// One line; a number that JSON cannot hold (NaN, Inf) becomes null, text that is not UTF-8 is
/// mended.
std::string line_of(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The length of a file; 0 when there is none.
std::uint64_t length_of(const std::filesystem::path& file) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file, error);
  return error ? 0 : static_cast<std::uint64_t>(bytes);
}

/// Leaves the first so many bytes of a file.
void cut_file(const std::filesystem::path& file, std::uint64_t length) {
  if (length_of(file) <= length) return;
  std::error_code error;
  std::filesystem::resize_file(file, length, error);
  if (error) throw DataError(file.string() + ": cannot be cut: " + error.message());
}

// Where lines of a log go that cannot be read.
std::filesystem::path damaged_file(const std::filesystem::path& log) {
  return std::filesystem::path(log).concat(".damaged");
}

[[noreturn]] void fail_to_write(const std::filesystem::path& file) {
  throw DataError(file.string() + ": cannot be written: " + reason_of_last_failure() +
                  "; give the run a folder that can be written to, with enough space");
}

}  // namespace

// With ios::app every line goes behind what is there, also after the file was cut. Opened before
// training begins: a folder that cannot be written is an error then, and not after an epoch.
MetricsFile::MetricsFile(std::filesystem::path file) : path_(std::move(file)) { open(); }

void MetricsFile::open() {
  errno = 0;
  stream_.open(path_, std::ios::app);
  if (!stream_) fail_to_write(path_);
  identity_ = identity_of(path_);
  if (!identity_) fail_to_write(path_);
}

// What is written into a file that has lost its name is lost when the run ends. One that was only
// cut, as logs are when they are rotated, is the same file.
void MetricsFile::expect_in_place() const {
  const auto named = identity_of(path_);
  if (named && named == identity_) return;
  throw DataError(path_.string() + ": the file or its folder was " +
                  (named ? "replaced" : "removed or renamed") +
                  " while the run was writing; put it back, and go on with --resume auto");
}

std::uint64_t MetricsFile::bytes() const {
  expect_in_place();
  return length_of(path_);
}

void MetricsFile::cut(std::uint64_t length) const { cut_file(path_, length); }

void MetricsFile::replace(std::string_view text) {
  expect_in_place();
  stream_.close();
  OutputFile whole(path_, "give the run a folder that can be written to, with enough space");
  whole.write(std::as_bytes(std::span(text)));
  whole.finish();
  open();
}

namespace {

Json fields_of(const StartEvent& event) {
  return {{"version", RONDO_VERSION},
          {"config", event.config},
          {"ranks", event.ranks},
          {"threads", event.threads},
          {"hosts", event.hosts},
          {"nodes", event.nodes},
          {"route", event.route},
          {"global_batch", event.global_batch},
          {"rank_batches", event.rank_batches},
          {"data", event.data},
          {"training_images", event.training_images},
          {"test_images", event.test_images},
          {"model", event.model},
          {"parameters", event.parameters},
          {"seed", event.seed},
          {"steps_per_epoch", event.steps_per_epoch},
          {"total_steps", event.total_steps},
          {"scheme", event.scheme},
          {"lazy_layers", event.lazy_layers},
          {"injected", event.injected},
          {"instruction_set", tensor::instruction_set()},
          {"onednn", tensor::onednn_version()}};
}

}  // namespace

void MetricsFile::write(const StartEvent& event) {
  Json line = {{"event", "start"}};
  line.update(fields_of(event));
  write_line(line_of(line));
}

void MetricsFile::write(const StepEvent& event) {
  write_line(line_of({{"event", "step"},
                      {"epoch", event.epoch},
                      {"step", event.step},
                      {"total_step", event.total_step},
                      {"loss", event.loss},
                      {"training_accuracy", event.training_accuracy},
                      {"learning_rate", event.learning_rate},
                      {"images_per_second", event.images_per_second}}));
}

void MetricsFile::write(const EpochMetrics& event) {
  Json line = {{"event", "epoch"}};
  visit_figures(event, [&](const char* name, const auto& number) { line[name] = number; });
  line["injected"] = event.injected;
  line["parameter_hash"] = event.parameter_hash;
  write_line(line_of(line));
}

void MetricsFile::write(const sync::LazyWindow& event) {
  write_line(line_of({{"event", "window"},
                      {"total_step", event.step + 1},
                      {"iterations", event.iterations},
                      {"tau", event.interval},
                      {"angle", event.angle},
                      {"magnitude", event.magnitude}}));
}

void MetricsFile::write(const sync::Round& event) {
  write_line(line_of({{"event", "round"},
                      {"total_step", event.last_step + 1},
                      {"round", event.index + 1},
                      {"steps", event.steps},
                      {"samples", event.samples},
                      {"displacement", event.displacement}}));
}

void MetricsFile::write(const ResumeEvent& event) {
  Json line = {{"event", "resume"},
               {"epoch", event.epoch},
               {"total_step", event.total_step},
               {"checkpoint", event.checkpoint}};
  line.update(fields_of(event.part));
  write_line(line_of(line));
}

void MetricsFile::write(const sync::Push& event) {
  write_line(line_of({{"event", "push"},
                      {"worker", event.turn.worker},
                      {"kind", name_of(event.turn.kind)},
                      {"minibatches", event.turn.minibatches},
                      {"version", event.version},
                      {"samples", event.samples},
                      {"staleness", event.staleness},
                      {"seconds", event.seconds}}));
}

void MetricsFile::write(const RunSummary& event) {
  write_line(line_of({{"event", "end"},
                      {"reason", event.reason},
                      {"scheme", event.scheme},
                      {"seconds", event.seconds},
                      {"epochs", event.epochs},
                      {"steps", event.steps},
                      {"samples", event.samples},
                      {"final_accuracy", event.final_accuracy},
                      {"best_accuracy", event.best_accuracy},
                      {"training_seconds", event.training_seconds},
                      {"communication_seconds", event.communication_seconds},
                      {"wait_seconds", event.wait_seconds},
                      {"global_reductions", event.global_reductions},
                      {"local_reductions", event.local_reductions},
                      {"synchronous_reductions", event.synchronous_reductions},
                      {"global_bytes", event.global_bytes},
                      {"local_bytes", event.local_bytes},
                      {"synchronous_bytes", event.synchronous_bytes},
                      {"bytes_sent", event.bytes_sent},
                      {"synchronous_bytes_sent", event.synchronous_bytes_sent},
                      {"lazy_iterations", event.lazy_iterations},
                      {"lazy_reductions", event.lazy_reductions},
                      {"peak_bytes", event.peak_bytes},
                      {"injected", event.injected}}));
}

void MetricsFile::write_line(const std::string& line) {
  expect_in_place();
  errno = 0;
  stream_ << line << '\n' << std::flush;
  if (!stream_) fail_to_write(path_);
}

bool has_completed(const std::filesystem::path& run_folder) {
  if (run_folder.empty()) return false;  // and not what lies in the current folder
  LineReader file(run_folder / "metrics.jsonl");
  std::string last;
  for (std::string line; file.next(line);) last = std::move(line);
  const Json event = Json::parse(last, nullptr, false);
  if (!event.is_object() || event.value("event", Json()) != "end") return false;
  const Json reason = event.value("reason", Json());
  return reason == "completed" || reason == "max_steps";
}

RunLog::RunLog(const TrainerOptions& options, int rank)
    : active_(rank == 0), observer_(options.observer) {
  if (!active_ || options.run_folder.empty()) return;
  std::error_code failure;
  std::filesystem::create_directories(options.run_folder, failure);
  if (failure) {
    throw ConfigError(options.run_folder.string() +
                      ": the run folder cannot be made: " + failure.message());
  }
  lock_.emplace(DirectoryLock::wait(options.run_folder));
  file_.emplace(options.run_folder / "metrics.jsonl");
  token_trace_ = options.run_folder / "token_trace.jsonl";
}

void RunLog::continue_metrics(const LogPart& part) {
  if (!file_) return;
  const std::uint64_t bytes = file_->bytes();
  if (bytes < part.bytes) {
    note(fmt::format("metrics.jsonl has {} of {} bytes: events up to step {} are missing", bytes,
                     part.bytes, part.step));
  } else if (is_whole(file_->path(), part)) {
    return file_->cut(part.bytes);
  }
  const SortedLog sorted = sort_lines(file_->path(), part);
  if (!sorted.damaged.empty()) {
    set_damaged_aside(sorted.damaged);
    note(fmt::format("metrics.jsonl is damaged: {} cannot be read, and was moved to {}",
                     text_of_lines(sorted.damaged_lines), damaged_file(file_->path()).string()));
  } else if (bytes >= part.bytes) {
    note(
        "metrics.jsonl was changed since the checkpoint: all its lines can be read, but what they "
        "say may be wrong");
  }
  file_->replace(sorted.events);
}

// Behind what was set aside before.
void RunLog::set_damaged_aside(const std::string& lines) const {
  const std::filesystem::path path = damaged_file(file_->path());
  const std::string all = contents_of(path) + lines;
  OutputFile aside(path, "give the run a folder that can be written to, with enough space");
  aside.write(std::as_bytes(std::span(all)));
  aside.finish();
}

void RunLog::resume(std::uint64_t trace_bytes) {
  undecided_ = false;
  if (file_) cut_file(token_trace_, trace_bytes);
}

void RunLog::expect_token_trace(std::uint64_t bytes) const {
  if (file_ && length_of(token_trace_) < bytes) break_token_trace("it was cut or removed");
}

// The turns that follow would seem to be those of another run.
void RunLog::break_token_trace(const std::string& why) const {
  std::error_code ignored;
  std::filesystem::remove(token_trace_, ignored);
  append_token_gap(token_trace_);
  note(token_trace_.string() + ": " + why +
       "; without the turns up to the checkpoint it serves no replay");
}

void RunLog::copy_token_trace(const std::filesystem::path& from, std::uint64_t bytes) const {
  if (!file_ || bytes == 0) return;
  std::error_code failure;
  std::filesystem::copy_file(from, token_trace_, std::filesystem::copy_options::overwrite_existing,
                             failure);
  const bool is_whole = !failure && length_of(token_trace_) >= bytes;
  if (is_whole) std::filesystem::resize_file(token_trace_, bytes, failure);
  if (is_whole && !failure) return;
  break_token_trace(
      from.string() + " cannot be copied: " +
      (failure ? failure.message() : "it is shorter than when the checkpoint was made"));
}

void RunLog::begin_anew() {
  undecided_ = false;
  if (!file_) return;
  file_->cut(0);
  std::error_code ignored;
  std::filesystem::remove(token_trace_, ignored);
  std::filesystem::remove(damaged_file(file_->path()), ignored);
}

double RunLog::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

std::vector<std::filesystem::path> RunLog::files() const {
  if (!file_) return {};
  return {file_->path(), token_trace_};
}

std::uint64_t RunLog::metrics_bytes() const { return file_ ? file_->bytes() : 0; }

std::string RunLog::metrics_checksum(std::uint64_t bytes) const {
  return file_ ? checksum_of_beginning(file_->path(), bytes) : std::string();
}

// As write() writes it: the first line, where nothing is damaged.
bool RunLog::has_start() const {
  if (!file_) return false;
  LineReader file(file_->path());
  for (std::string line; file.next(line);) {
    if (line.starts_with(R"({"event":"start")")) return true;
  }
  return false;
}

std::uint64_t RunLog::trace_bytes() const { return file_ ? length_of(token_trace_) : 0; }

void RunLog::note(const std::string& line) const {
  if (active_ && observer_.on_note) observer_.on_note(line);
}

void RunLog::start(const Experiment& experiment) const {
  if (active_ && observer_.on_start) observer_.on_start(experiment);
}

void RunLog::progress(const Progress& progress) const {
  if (active_ && observer_.on_progress) observer_.on_progress(progress);
}

void RunLog::epoch(const EpochMetrics& metrics) {
  if (file_) file_->write(metrics);
  if (active_ && observer_.on_epoch) observer_.on_epoch(metrics);
}

// Every turn goes to both files: for people as an event, for a replay as a line of the trace. A
// push at the run's end is an event alone.
void RunLog::pushes(const std::vector<sync::Push>& events) {
  if (!file_) return;
  for (const sync::Push& event : events) file_->write(event);
  append_token_trace(token_trace_, events);
}

void RunLog::end(const RunSummary& summary, bool by_error) {
  // A run that could not be resumed has not touched the files of the earlier one.
  if (file_ && !undecided_) file_->write(summary);
  if (active_ && !by_error && observer_.on_end) observer_.on_end(summary);
}

}  // namespace rondo::train
