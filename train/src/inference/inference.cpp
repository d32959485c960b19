// Models that have been trained: exported, evaluated on a test set, and asked what is on an image.
//
// What all three need is a model with the weights of a file, and what the images of the model are
// normalised with. Checkpoints and files that Rondo has written say the latter; for others, and for
// checkpoints of older programs, the data set is read.

#include <rondo/train/inference.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/image.hpp>
#include <rondo/train/loader.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/train/predictor.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/train/weights.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "checkpoint/resume.hpp"
#include "checkpoint/storage.hpp"
#include "data/augmentations.hpp"
#include "data/dataset_type.hpp"
#include "data/image_writer.hpp"
#include "trainer/agreement.hpp"
#include "trainer/meters.hpp"
#include "trainer/prepare.hpp"
#include "weights/checksum.hpp"
#include "weights/model_weights.hpp"

namespace rondo::train {
namespace {

struct LoadedModel {
  Model model = {};
  Dataset dataset = {};  // without images, where they were not asked for
  ModelWeights weights = {};
  tensor::ConvolutionAlgorithm convolution = tensor::ConvolutionAlgorithm::direct;
};

enum class TestSet { read, left };

// As models say them: names of folders need not be UTF-8.
std::string in_utf8(const std::string& name) {
  return nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A label stands for the same class as in training only where the names are the same.
void expect_same_classes(const std::vector<std::string>& of_model,
                         const std::vector<std::string>& of_data,
                         const std::filesystem::path& data) {
  const std::size_t classes = std::min(of_model.size(), of_data.size());
  for (std::size_t label = 0; label < classes; ++label) {
    const std::string of_image = in_utf8(of_data[label]);
    const std::string expected = in_utf8(of_model[label]);
    if (of_image == expected) continue;
    fail_on_file(
        data,
        fmt::format("its class {} is {}, and that of the model is {}", label, of_image, expected),
        "give images of the classes that the model was trained on, by the same names");
  }
}

// A model goes on seeing images as it saw them in training.
void see_as_in_training(const Dataset& training, TestSet test_set,
                        const std::filesystem::path& data, Dataset& dataset) {
  if (training.mean.size() == dataset.mean.size()) {
    dataset.mean = training.mean;
    dataset.stddev = training.stddev;
  }
  if (training.class_names.empty()) return;
  if (test_set == TestSet::read) {
    expect_same_classes(training.class_names, dataset.class_names, data);
  }
  dataset.class_names = training.class_names;
}

Dataset dataset_for(const Experiment& experiment, const SafetensorsFile& file, TestSet test_set,
                    const OwnParts& own) {
  std::optional<Dataset> described = images_described_by(file);
  if (described && test_set == TestSet::left) return *std::move(described);
  const Model usual = own.model != nullptr ? *own.model : model_of(experiment);
  Dataset dataset = own.dataset != nullptr
                        ? *own.dataset
                        : load_dataset(experiment.data, usual.input, usual.classes);
  if (described) see_as_in_training(*described, test_set, experiment.data.path, dataset);
  return dataset;
}

// The data set that a checkpoint is of, without images. Nothing where an older program wrote it.
std::optional<Dataset> images_described_by(const Manifest& manifest) {
  if (!manifest.images) return std::nullopt;
  Dataset dataset{.name = manifest.images->name,
                  .classes = manifest.images->classes,
                  .mean = manifest.mean,
                  .stddev = manifest.stddev,
                  .class_names = manifest.class_names};
  const auto [h, w, c] = manifest.images->hwc;
  dataset.training.shape = {0, h, w, c};
  return dataset;
}

// A checkpoint is of one configuration: with another one its numbers would mean something else.
LoadedModel load_checkpoint(const Experiment& experiment, const std::filesystem::path& folder,
                            TestSet test_set, const OwnParts& own) {
  const Manifest manifest = read_manifest(folder);
  expect_same_training(experiment_of(manifest), experiment);
  std::optional<Dataset> described = images_described_by(manifest);
  const bool enough = described && test_set == TestSet::left;
  PreparedRun run = load_run(experiment, enough ? &*described : own.dataset, own.model);
  expect_same_layers(manifest, run.model);
  LoadedModel trained{.model = std::move(run.model), .dataset = *run.dataset};
  see_as_in_training(
      {.mean = manifest.mean, .stddev = manifest.stddev, .class_names = manifest.class_names},
      test_set, experiment.data.path, trained.dataset);
  trained.weights = weights_of_checkpoint(folder, manifest, trained.model);
  expect_finite(folder, layout_of(trained.model), trained.weights);
  return trained;
}

LoadedModel load_file(const Experiment& experiment, const std::filesystem::path& file,
                      TestSet test_set, const OwnParts& own) {
  // The data set first: a model takes its input and its classes from it.
  Dataset dataset = dataset_for(experiment, SafetensorsFile(file), test_set, own);
  TrainedModel trained = load_trained(load_run(experiment, &dataset, own.model).model, file);
  return {.model = std::move(trained.model),
          .dataset = std::move(dataset),
          .weights = {std::move(trained.parameters), std::move(trained.statistics)}};
}

LoadedModel load_model(const Experiment& experiment, const std::filesystem::path& source,
                       TestSet test_set, const OwnParts& own = {}) {
  std::error_code ignored;
  const bool is_checkpoint = std::filesystem::is_directory(source, ignored);
  LoadedModel trained = is_checkpoint ? load_checkpoint(experiment, source, test_set, own)
                                      : load_file(experiment, source, test_set, own);
  trained.convolution = experiment.train.convolution;
  return trained;
}

ModelState state_of(ModelWeights& weights) {
  return {.parameters = weights.parameters, .statistics = weights.statistics};
}

}  // namespace

void export_weights(const Experiment& experiment, const std::filesystem::path& from,
                    const std::filesystem::path& to, const OwnParts& own) {
  const LoadedModel trained = load_model(experiment, from, TestSet::left, own);
  save_weights(to, trained.model, trained.dataset, trained.weights);
}

namespace {

// Grey is the luma of ITU-R BT.601, as PIL and libjpeg have it.
std::vector<std::uint8_t> grey_of(const std::vector<std::uint8_t>& colours) {
  std::vector<std::uint8_t> grey;
  grey.reserve(colours.size() / 3);
  for (std::size_t i = 0; i + 2 < colours.size(); i += 3) {
    const int sum = 299 * colours[i] + 587 * colours[i + 1] + 114 * colours[i + 2];
    grey.push_back(static_cast<std::uint8_t>((sum + 500) / 1000));
  }
  return grey;
}

// The share of an original's shorter side that a test image of these data has. Only images of a
// folder are cut; those of other data sets are whole.
double test_crop(const Experiment::Data& data) {
  return data.name == "folder" ? data.centre_crop : 1.0;
}

// The centre of the image in `file`, decoded as a Loader decodes a test image: its shorter side is
// the share `crop` of the original's.
std::vector<std::uint8_t> pixels_for(const std::filesystem::path& file, const tensor::Shape& input,
                                     double crop) {
  const tensor::Shape wanted = {1, input.h, input.w, 3};
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(wanted.size()));
  const Framing centre = [&](std::int64_t height, std::int64_t width) {
    return centre_window(height, width, crop, wanted.h, wanted.w);
  };
  decode_image(read_file(file), file.string(), centre, {pixels.data(), wanted});
  // A decoded file always has three channels.
  if (input.c == wanted.c) return pixels;
  if (input.c == 1) return grey_of(pixels);
  fail_on_file(file, "gives red, green and blue, and the model takes images of another kind",
               "give images as the model was trained on to a program of your own");
}

}  // namespace

// One image at a time: whoever has many in a row can make them a data set.
class Classifier::Impl {
 public:
  Impl(const LoadedModel& trained, double crop, int threads)
      : model_(trained.model),
        writer_(trained.dataset.mean, trained.dataset.stddev),
        engine_(threads, std::pmr::get_default_resource(), trained.convolution),
        predictor_(engine_,
                   {.model = trained.model,
                    .parameters = trained.weights.parameters,
                    .statistics = trained.weights.statistics},
                   1),
        class_names_(trained.dataset.class_names),
        crop_(crop),
        image_(static_cast<std::size_t>(trained.model.input.image())) {}

  [[nodiscard]] const Model& model() const noexcept { return model_; }
  [[nodiscard]] const std::vector<std::string>& class_names() const noexcept {
    return class_names_;
  }

  std::vector<float> logits(const std::filesystem::path& file) {
    const tensor::Shape& input = model_.input;
    const std::vector<std::uint8_t> pixels = pixels_for(file, input, crop_);
    writer_.write(pixels.data(), input.h * input.w, image_.data());
    const std::span<const float> logits = predictor_.logits(image_, 1);
    return {logits.begin(), logits.end()};
  }

 private:
  Model model_;  // as it was trained; it runs with fewer layers
  ImageWriter writer_;
  tensor::Engine engine_;
  Predictor predictor_;
  std::vector<std::string> class_names_;
  double crop_;
  std::vector<float> image_;  // normalised
};

Classifier::Classifier(const Experiment& experiment, const std::filesystem::path& weights,
                       int threads)
    : impl_(std::make_unique<Impl>(load_model(experiment, weights, TestSet::left),
                                   test_crop(experiment.data), threads)) {}

Classifier::~Classifier() = default;

const Model& Classifier::model() const noexcept { return impl_->model(); }

const std::vector<std::string>& Classifier::class_names() const noexcept {
  return impl_->class_names();
}

std::vector<float> Classifier::logits(const std::filesystem::path& file) {
  return impl_->logits(file);
}

namespace {

std::string digest_of_images(const Images& images) {
  if (images.source) return images.source->digest();
  return checksum_of(std::as_bytes(std::span(images.pixels)));
}

std::vector<Fact> facts_of_files(const LoadedModel& trained) {
  const ModelWeights& weights = trained.weights;
  const Dataset& dataset = trained.dataset;
  return {
      {"the digest of the weights", hash_of({weights.parameters, weights.statistics})},
      {"the digest of the test images", digest_of_images(dataset.test)},
      {"the digest of the labels of test images",
       checksum_of(std::as_bytes(std::span(dataset.test.labels)))},
      {"the digest of mean and deviation of the images", hash_of({dataset.mean, dataset.stddev})}};
}

// More images at once make it no faster, and one rank may evaluate what many have trained.
constexpr std::int64_t largest_batch = 64;

// As many images at once as the run trained on so many ranks, so that their memory will do.
std::int64_t evaluation_batch(const Experiment& experiment, int ranks, Range share) {
  const std::int64_t trained = experiment.train.global_batch / ranks / experiment.train.accumulate;
  const std::int64_t most = std::min(largest_batch, share.size());
  return std::clamp<std::int64_t>(trained, 1, std::max<std::int64_t>(most, 1));
}

LoaderOptions test_options(const Experiment& experiment, const Dataset& dataset) {
  LoaderOptions options = loader_options(experiment, dataset);
  options.largest_range = 0;
  return options;
}

// The result of a rank's share of the test set.
struct ShareResult {
  LossSums sums = {};
  double not_finite = 0.0;  // images for which a logit is NaN or Inf
};

std::int64_t rows_not_finite(std::span<const float> logits, std::int64_t images) {
  if (images == 0) return 0;
  const std::size_t classes = logits.size() / static_cast<std::size_t>(images);
  std::int64_t rows = 0;
  for (; !logits.empty(); logits = logits.subspan(classes)) {
    const auto is_finite = [](float logit) { return std::isfinite(logit); };
    if (!std::ranges::all_of(logits.first(classes), is_finite)) ++rows;
  }
  return rows;
}

ShareResult evaluate_share(LoadedModel& trained, const LoaderOptions& options, Range share,
                           std::int64_t batch, int threads) {
  ShareResult result;
  if (share.size() == 0) return result;
  tensor::Engine engine(threads, std::pmr::get_default_resource(), trained.convolution);
  // Every rank holds the whole model, whatever grid trained it, and evaluates its share of the
  // images.
  Executor executor(engine, trained.model, state_of(trained.weights), {.evaluation_batch = batch});
  Loader loader(trained.dataset, options);
  for (std::int64_t first = share.first; first < share.last; first += batch) {
    const std::int64_t last = std::min(first + batch, share.last);
    const Range next{last, std::min(last + batch, share.last)};
    result.sums.add(executor.evaluate(loader.load_test(first, last, next),
                                      trained.weights.parameters, trained.weights.statistics),
                    last - first);
    result.not_finite += static_cast<double>(rows_not_finite(executor.logits(), last - first));
  }
  return result;
}

}  // namespace

TestResult evaluate(transport::World& world, const Experiment& experiment,
                    const std::filesystem::path& weights, int threads,
                    const std::function<void(const std::string& problem)>& on_broken) {
  LoadedModel trained;
  agree_on(world, [&] { trained = load_model(experiment, weights, TestSet::read); });
  // Ranks that evaluated with other weights, or other images, would give a mean of nothing.
  expect_same_files(world, [&] { return facts_of_files(trained); }, "");
  const auto began = std::chrono::steady_clock::now();
  const Range share = even_range(trained.dataset.test.shape.n, world.size(), world.rank());
  ShareResult own;
  agree_on(world, [&] {
    LoaderOptions options = test_options(experiment, trained.dataset);
    options.on_broken = on_broken;
    own = evaluate_share(trained, options, share, evaluation_batch(experiment, world.size(), share),
                         threads);
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  // The evaluation has taken as long as its slowest rank.
  std::array slowest{took.count()};
  world.communicator().allreduce(std::span<double>(slowest), transport::ReduceOp::max).wait();
  // Sums, not means, are added up: shares of the test set may differ by an image.
  const auto [loss, correct, samples, not_finite] = sum_over_ranks(
      world, std::array{own.sums.loss, own.sums.correct, own.sums.samples, own.not_finite});
  if (not_finite > 0.0) {
    throw NumericError(
        fmt::format("{}: the model gives NaN or Inf for {} of {} test images: its weights are "
                    "much too large; rondo inspect shows them",
                    weights.string(), not_finite, samples));
  }
  const LossSums all{loss, correct, samples};
  return {.images = trained.dataset.test.shape.n,
          .loss = all.mean_loss(),
          .accuracy = all.accuracy(),
          .seconds = slowest[0]};
}

}  // namespace rondo::train
