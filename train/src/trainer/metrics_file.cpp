#include "trainer/metrics_file.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/dataset.hpp>

#include "trainer/token_trace.hpp"

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

}  // namespace

MetricsFile::MetricsFile(std::filesystem::path file) : path_(std::move(file)) {
  errno = 0;
  stream_.open(path_, std::ios::trunc);
  if (!stream_)
    throw ConfigError(path_.string() + ": cannot be written: " + reason_of_last_failure());
}

void MetricsFile::write(const StartEvent& event) {
  write_line(line_of({{"event", "start"},
                      {"version", RONDO_VERSION},
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
                      {"onednn", tensor::onednn_version()}}));
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
  write_line(line_of({{"event", "epoch"},
                      {"epoch", event.epoch},
                      {"loss", event.loss},
                      {"accuracy", event.accuracy},
                      {"training_accuracy", event.training_accuracy},
                      {"test_loss", event.test_loss},
                      {"images_per_second", event.images_per_second},
                      {"seconds", event.seconds},
                      {"evaluation_seconds", event.evaluation_seconds},
                      {"communication_share", event.communication_share},
                      {"wait_share", event.wait_share},
                      {"global_reductions", event.global_reductions},
                      {"local_reductions", event.local_reductions},
                      {"global_bytes", event.global_bytes},
                      {"local_bytes", event.local_bytes},
                      {"evaluation_reductions", event.evaluation_reductions},
                      {"bytes_sent", event.bytes_sent},
                      {"injected", event.injected},
                      {"parameter_hash", event.parameter_hash}}));
}

void MetricsFile::write(const sync::LazyWindow& event) {
  write_line(line_of({{"event", "window"},
                      {"total_step", event.step + 1},
                      {"iterations", event.iterations},
                      {"tau", event.interval},
                      {"angle", event.angle},
                      {"magnitude", event.magnitude}}));
}

void MetricsFile::write(const RoundEvent& event) {
  write_line(line_of({{"event", "round"},
                      {"total_step", event.total_step},
                      {"round", event.round.index + 1},
                      {"steps", event.round.steps},
                      {"samples", event.round.samples},
                      {"displacement", event.round.displacement}}));
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
  errno = 0;
  stream_ << line << '\n' << std::flush;
  if (!stream_)
    throw DataError(path_.string() + ": cannot be written: " + reason_of_last_failure());
}

}  // namespace rondo::train
