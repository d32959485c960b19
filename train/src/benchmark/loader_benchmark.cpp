// How fast a Loader prepares images by itself, for `rondo bench data`: what a run can train at the
// most if its images are to be there in time.
//
// Batches are announced as a run announces them, so that the decoders always have work, and are
// taken as soon as they are ready. A round begins with some batches that do not count, and ends
// when all that were announced have been taken, so that no loader works in the round of another
// one. The processor time is that of the whole process: it also has what the threads spend on each
// other.

#include <rondo/train/loader_benchmark.hpp>

#include <time.h>

#include <algorithm>
#include <memory>
#include <vector>

#include <rondo/train/dataset.hpp>
#include <rondo/train/loader.hpp>
#include <rondo/train/model.hpp>

#include "data/augmentations.hpp"

namespace rondo::train {
namespace {

constexpr int rounds = 5;
constexpr std::int64_t largest_range = 64;  // so that few decoders do not wait for a long batch

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// One number of decoders. Its loader lives through all rounds, and goes on where the last one
// ended.
class Subject {
 public:
  Subject(const Dataset& dataset, LoaderOptions options)
      : decoders_(options.decoders), loader_(dataset, options), size_(options.largest_range) {}

  void measure(std::chrono::duration<double> round) {
    // Behind them one that the decoders have begun, but not much more than that.
    for (int waiting = 0; waiting <= loader_.ahead(); ++waiting) take();
    LoaderTime time{.decoders = decoders_};
    const double cpu_before = cpu_seconds();
    const auto began = Clock::now();
    std::chrono::duration<double> took{};
    do {
      time.images += take();
      took = Clock::now() - began;
    } while (took < round);
    time.images_per_second = static_cast<double>(time.images) / took.count();
    time.images_per_cpu_second = static_cast<double>(time.images) / (cpu_seconds() - cpu_before);
    times_.push_back(time);
    take_announced();
  }

  [[nodiscard]] LoaderTime median() {
    const auto middle = times_.begin() + rounds / 2;
    std::ranges::nth_element(times_, middle, {}, &LoaderTime::images_per_second);
    return *middle;
  }

 private:
  // Parts of at most `size_` samples, step after step.
  [[nodiscard]] SampleRange range(std::int64_t number) const {
    const std::int64_t parts = (loader_.samples(0) + size_ - 1) / size_;
    const std::int64_t step = number / parts % loader_.steps();
    const std::int64_t samples = loader_.samples(step);
    return {.epoch = number / parts / loader_.steps(),
            .step = step,
            .first = std::min(samples, number % parts * size_),
            .last = std::min(samples, (number % parts + 1) * size_)};
  }

  std::int64_t take() {
    const std::int64_t samples = loader_.load(range(next_)).samples;
    for (int ahead = 1; ahead <= loader_.ahead(); ++ahead) loader_.prefetch(range(next_ + ahead));
    ++next_;
    return samples;
  }

  void take_announced() {
    for (int i = 0; i < loader_.ahead(); ++i) static_cast<void>(loader_.load(range(next_++)));
  }

  int decoders_;
  Loader loader_;
  std::int64_t size_;
  std::int64_t next_ = 0;
  std::vector<LoaderTime> times_ = {};
};

}  // namespace

LoaderTimes measure_loader(const Experiment& experiment, std::span<const int> decoders,
                           std::chrono::duration<double> round) {
  const Model model = model_of(experiment);
  const Dataset dataset = load_dataset(experiment.data, model.input, model.classes);
  return measure_loader(dataset, loader_options(experiment, dataset), decoders, round);
}

LoaderTimes measure_loader(const Dataset& dataset, LoaderOptions options,
                           std::span<const int> decoders, std::chrono::duration<double> round) {
  std::vector<std::unique_ptr<Subject>> subjects;
  options.largest_range = std::min(options.global_batch, largest_range);
  for (const int count : decoders) {
    options.decoders = count;
    subjects.push_back(std::make_unique<Subject>(dataset, options));
  }
  for (int turn = 0; turn < rounds; ++turn) {
    for (const auto& subject : subjects) subject->measure(round);
  }
  LoaderTimes result{.data = dataset.name, .image = dataset.training.shape.with_n(1)};
  for (const auto& subject : subjects) result.times.push_back(subject->median());
  return result;
}

}  // namespace rondo::train
