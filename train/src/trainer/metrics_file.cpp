#include "trainer/metrics_file.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/dataset.hpp>

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
                      {"evaluation_reductions", event.evaluation_reductions},
                      {"bytes_sent", event.bytes_sent},
                      {"parameter_hash", event.parameter_hash}}));
}

void MetricsFile::write(const EndEvent& event) {
  write_line(line_of({{"event", "end"},
                      {"reason", event.reason},
                      {"seconds", event.seconds},
                      {"epochs", event.epochs},
                      {"steps", event.steps},
                      {"final_accuracy", event.final_accuracy},
                      {"best_accuracy", event.best_accuracy}}));
}

void MetricsFile::write_line(const std::string& line) {
  errno = 0;
  stream_ << line << '\n' << std::flush;
  if (!stream_)
    throw DataError(path_.string() + ": cannot be written: " + reason_of_last_failure());
}

}  // namespace rondo::train
