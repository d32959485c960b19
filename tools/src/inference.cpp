// `rondo eval` and `rondo predict`: what a model is worth that has been trained, and what it sees.
//
// `eval` starts ranks, which share out the test set. `predict` is one process, and takes the images
// one after the other.
//
// Neither makes kernels for training, so a model may be evaluated in less memory than it was
// trained in. Both find the model by a run directory, or by a configuration and a file of weights
// (train/trained.cpp).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <rondo/train/dataset.hpp>
#include <rondo/train/inference.hpp>
#include <rondo/transport/world.hpp>

#include "command.hpp"
#include "failure.hpp"
#include "launch/environment.hpp"
#include "launch/joined_rank.hpp"
#include "launch/launcher.hpp"
#include "options.hpp"
#include "table.hpp"
#include "train/trained.hpp"
#include "world.hpp"

namespace rondo::tools {
namespace {

struct EvalRequest {
  TrainedRequest trained = {};
  LaunchRequest launch = {};
  Format format = Format::text;
};

// A row: what was evaluated, and how.
struct Evaluation {
  Trained trained = {};
  int ranks = 1;
  train::TestResult result = {};
};

// A table of one row, so that text and JSON have the same fields.
Table table_of(const Evaluation& evaluation) {
  const auto of_result = [](auto member) {
    return [member](const Evaluation& row) { return row.result.*member; };
  };
  return TableOf(std::span(&evaluation, 1))
      .add({"model", "model", Align::left},
           [](const Evaluation& row) { return row.trained.experiment.model.name; })
      .add({"data", "data", Align::left},
           [](const Evaluation& row) { return row.trained.experiment.data.name; })
      .add({"weights", "weights", Align::left},
           [](const Evaluation& row) { return row.trained.weights.string(); })
      .add({"ranks", "ranks"}, &Evaluation::ranks)
      .add({"images", "images"}, of_result(&train::TestResult::images))
      .add({.name = "loss", .heading = "loss", .decimals = 4}, of_result(&train::TestResult::loss))
      .add({.name = "accuracy", .heading = "accuracy, %", .decimals = 2},
           of_result(&train::TestResult::accuracy))
      .add({.name = "seconds", .heading = "s", .decimals = 2},
           of_result(&train::TestResult::seconds));
}

// Every rank has the result, which is a sum over all of them; rank 0 prints it.
int evaluate_as_rank(const EvalRequest& request, const Trained& trained) {
  transport::WorldOptions options = world_options();
  options.dump_folder = own_records_in(request.launch.flight_record);
  JoinedRank self = join_as_rank(std::move(options), request.launch.placement);
  transport::World& world = self.world;
  const Evaluation evaluation{trained, world.size(),
                              train::evaluate(world, trained.experiment, trained.weights,
                                              self.threads, tell_of_broken_image)};
  if (world.rank() != 0) return exit_done;
  tell_of_weights(trained);
  const Table table = table_of(evaluation);
  fmt::print("{}", request.format == Format::json ? table.json_object() : table.text());
  return exit_done;
}

// A mistake is found before ranks start, and is said once.
int run_eval(const EvalRequest& request, const CommandLine& line) {
  let_speak(Speaker::first_of_host);
  const Trained trained = find_trained(request.trained);
  return launch_or_be_rank(line, request.launch, 1,
                           [&] { return evaluate_as_rank(request, trained); });
}

struct PredictRequest {
  TrainedRequest trained = {};
  std::vector<std::string> images = {};
  int top = 5;
  int threads = 1;
  Format format = Format::text;
};

// A class that an image may be of; a row of the table.
struct Guess {
  std::string image = {};
  std::int64_t place = 0;  // from 1; the likeliest
  std::int64_t number = 0;
  std::string name = {};  // empty where the file of weights says none
  double probability = 0.0;
  double logit = 0.0;
};

// Such logits have no order, and no probabilities.
void refuse_not_finite(const std::string& image, std::span<const float> logits) {
  if (std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) return;
  throw train::DataError(
      fmt::format("{}: the model gives NaN or Inf for it: its weights are much too large; rondo "
                  "inspect shows them",
                  image));
}

// The likeliest first; of equals the one with the lower number.
std::vector<Guess> guesses_of(const std::string& image, std::span<const float> logits) {
  refuse_not_finite(image, logits);
  std::vector<Guess> guesses;
  // Softmax; the largest logit is subtracted against overflow.
  const double largest = std::ranges::max(logits);
  double sum = 0.0;
  for (const float logit : logits) {
    const double weight = std::exp(logit - largest);
    sum += weight;
    guesses.push_back({.image = image,
                       .number = static_cast<std::int64_t>(guesses.size()),
                       .probability = weight,
                       .logit = logit});
  }
  std::ranges::sort(guesses, [](const Guess& a, const Guess& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.number < b.number;
  });
  for (std::size_t i = 0; i < guesses.size(); ++i) {
    guesses[i].place = static_cast<std::int64_t>(i) + 1;
    guesses[i].probability /= sum;
  }
  return guesses;
}

Table table_of(const std::vector<Guess>& guesses, bool with_names) {
  TableOf table(guesses);
  // Texts of whoever has named the file, or the classes.
  table.add({.name = "image"}, &Guess::image)
      .add({.heading = "image", .align = Align::left},
           [](const Guess& guess) { return printable(guess.image); })
      .add({"place", "place"}, &Guess::place)
      .add({"class", "class"}, &Guess::number);
  if (with_names) {
    table.add({.name = "name"}, &Guess::name)
        .add({.heading = "name", .align = Align::left},
             [](const Guess& guess) { return printable(guess.name); });
  }
  return table
      .add({.name = "probability", .heading = "probability", .decimals = 4}, &Guess::probability)
      .add({.name = "logit", .heading = "logit", .decimals = 4}, &Guess::logit);
}

// Shells name what is in a folder; no order of our own would be known to the user.
void refuse_folders(const std::vector<std::string>& images) {
  for (const std::string& image : images) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(image, ignored)) continue;
    throw UsageError(fmt::format("{}: is a folder; name the images in it, as in {}", image,
                                 (std::filesystem::path(image) / "*").string()));
  }
}

// Printed at the end, so that an image that cannot be read leaves no half of a table.
int run_predict(const PredictRequest& request) {
  refuse_folders(request.images);
  const Trained trained = find_trained(request.trained);
  tell_of_weights(trained);
  // Made once: the weights are read and the kernels made for all images.
  train::Classifier classifier(trained.experiment, trained.weights, request.threads);
  const std::vector<std::string>& names = classifier.class_names();
  std::vector<Guess> all;
  for (const std::string& image : request.images) {
    std::vector<Guess> guesses = guesses_of(image, classifier.logits(image));
    if (!names.empty()) {
      for (Guess& guess : guesses) guess.name = names[static_cast<std::size_t>(guess.number)];
    }
    // A model may have fewer classes than are asked for.
    guesses.resize(std::min(guesses.size(), static_cast<std::size_t>(request.top)));
    all.insert(all.end(), guesses.begin(), guesses.end());
  }
  fmt::print("{}", table_of(all, !names.empty()).in(request.format));
  return exit_done;
}

}  // namespace

void add_eval(Command& root) {
  Command command = root.add("eval", "Evaluate a trained model on the test set of its data");
  auto request = std::make_shared<EvalRequest>();
  add_trained_options(command, request->trained);
  add_format_option(command, request->format, table_or_json, "table, or json: one object");
  add_placement_options(command, request->launch.placement, "1");
  add_flight_record_option(command, request->launch.flight_record, "nowhere");
  command.footer("One rank unless -n says otherwise; several share out the test set.");
  command.does([request](const CommandLine& line) { return run_eval(*request, line); });
}

void add_predict(Command& root) {
  Command command = root.add("predict", "Say what a trained model sees on images");
  auto request = std::make_shared<PredictRequest>();
  add_trained_options(command, request->trained);
  command
      .option("images IMAGE...", request->images, "Images to look at: JPEG, PNG, binary PPM or PGM")
      .required();
  command.option("-k,--top K", request->top, "The likeliest classes to show of each image")
      .range(1, 65536)
      .with_default();
  command.option("-t,--threads T", request->threads, "Threads that compute")
      .range(1, 4096)
      .with_default();
  add_format_option(command, request->format, table_csv_or_json,
                    "table, csv, or json: an array of objects");
  command.does([request](const CommandLine& /*line*/) { return run_predict(*request); });
}

}  // namespace rondo::tools
