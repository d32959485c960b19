// From a data set to batches. Each of the two sets has a queue that prepares announced ranges: it
// notes which samples a range has, then its threads bring each image into the buffer of the batch
// (image_stream.hpp). Where images are mixed, a rank also prepares the partners of its samples,
// wherever in the global batch they are: nothing is exchanged, and the mixture is the same for any
// number of ranks.
//
// A rank of a grid may compute on some rows and columns only. Images are read and varied whole,
// since an augmentation may look at all of an image. The rank's part alone is normalised and
// stored.
//
// Images are decoded or copied by the threads of the queue, never by the thread that trains; load()
// waits if they are late. Only the order of an epoch is a state, and it is made again when another
// epoch begins.

#include <rondo/train/loader.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/transport/usable_cpus.hpp>

#include "data/image_stream.hpp"
#include "data/prefetch_queue.hpp"
#include "data/random.hpp"

namespace rondo::train {
namespace {

void require_data(bool fact, const char* what) {
  if (!fact) throw std::invalid_argument(std::string("loader: ") + what);
}

void check(const Images& images) {
  const tensor::Shape& shape = images.shape;
  require_data(shape.n >= 0 && shape.h > 0 && shape.w > 0 && shape.c > 0, "images have no extent");
  const std::int64_t in_memory = images.source ? 0 : shape.size();
  require_data(images.pixels.size() == static_cast<std::size_t>(in_memory) &&
                   images.labels.size() == static_cast<std::size_t>(shape.n),
               "shape, pixels and labels of the images do not agree");
}

void check(const std::vector<Augmentation>& augmentations) {
  for (const Augmentation& own : augmentations) {
    require_data(own.apply != nullptr || own.frame != nullptr || own.mix != nullptr,
                 "an augmentation without a function");
    const auto same = [&](const Augmentation& other) { return other.name == own.name; };
    require_data(std::ranges::count_if(augmentations, same) == 1,
                 "two augmentations have the same name");
  }
  const auto frames = [](const Augmentation& one) { return one.frame != nullptr; };
  require_data(std::ranges::count_if(augmentations, frames) <= 1,
               "two augmentations choose a part of the original");
  const auto mixes = [](const Augmentation& one) { return one.mix != nullptr; };
  require_data(std::ranges::count_if(augmentations, mixes) <= 1, "two augmentations mix images");
}

// Before any member is made from them: a wrong size would be an access outside of the pixels.
const Dataset& checked(const Dataset& dataset, const LoaderOptions& options) {
  check(dataset.training);
  check(dataset.test);
  const tensor::Shape& shape = dataset.training.shape;
  require_data(dataset.test.shape.with_n(shape.n) == shape, "test images have another shape");
  const auto channels = static_cast<std::size_t>(shape.c);
  require_data(dataset.mean.size() == channels && dataset.stddev.size() == channels,
               "mean and stddev need one value per channel");
  const auto is_finite = [](float value) { return std::isfinite(value); };
  require_data(std::ranges::all_of(dataset.mean, is_finite), "a mean is no finite number");
  const auto is_positive = [](float value) { return std::isfinite(value) && value > 0.0F; };
  require_data(std::ranges::all_of(dataset.stddev, is_positive),
               "a stddev is not above 0, so that pixels cannot be divided by it");
  require_data(options.global_batch >= 1, "the global batch begins at 1");
  require_data(options.largest_range >= 0, "the largest range is negative");
  require_data(options.centre_crop > 0.0 && options.centre_crop <= 1.0,
               "the centre crop is no share of an image");
  require_data(options.ahead >= 0 && options.decoders >= 0,
               "a number of threads or ranges is negative");
  check(options.augmentations);
  return dataset;
}

// How many ranges are ahead, and how many threads prepare them.
PrefetchQueue::Options queue_options(const Images& images, const LoaderOptions& options) {
  const bool decoded = images.source != nullptr;
  PrefetchQueue::Options queue{.ahead = static_cast<std::size_t>(options.ahead),
                               .workers = static_cast<std::size_t>(options.decoders),
                               .cpus = options.decoder_cpus};
  if (queue.ahead == 0) queue.ahead = decoded ? decoded_ahead : copied_ahead;
  transport::UsableCpus usable = transport::usable_cpus();
  // CPUs that a user has named may be others than this thread's, under the same quota.
  if (!queue.cpus.empty()) usable.cpus = queue.cpus;
  // Threads inherit the one core to which OpenMP has bound this thread.
  if (usable.bound_by_openmp) queue.cpus = usable.cpus;
  if (queue.workers > 0) return queue;
  // Copying needs a fraction of a core; decoding may need all that there are.
  queue.workers = decoded ? static_cast<std::size_t>(usable.threads()) : 1;
  return queue;
}

// The part that a rank reads of a batch, by the number of the batch's samples.
using ReadParts = std::map<std::int64_t, Box>;

// The part that a rank reads of a batch of so many samples: all of it, unless `parts` says else.
Box read_of(const ReadParts& parts, std::int64_t samples, const ImageStream& stream) {
  const auto found = parts.find(samples);
  if (found == parts.end()) return whole(stream.shape().with_n(samples));
  Box part = found->second;
  part.c = {0, stream.shape().c};
  if (stream.reads_all_samples()) part.n = {0, samples};
  return part;
}

// The memory of a batch, and what it shall hold.
struct Buffer {
  std::vector<float> images = {};
  std::vector<std::int32_t> labels = {};
  std::vector<std::int32_t> other_labels = {};
  std::vector<std::int64_t> samples = {};   // which they are
  std::vector<std::int64_t> partners = {};  // what they are mixed with
  double share = 1.0;                       // of the samples themselves
  std::optional<std::int64_t> epoch = {};
  Box part = {};  // of the images
  std::atomic<std::int64_t> stand_ins = 0;

  // Makes room for this part of the images of `count` samples.
  void begin(std::int64_t count, const Box& of_images) {
    part = of_images;
    stand_ins = 0;
    images.resize(std::max(images.size(), static_cast<std::size_t>(part.size())));
    if (static_cast<std::size_t>(count) <= labels.size()) return;
    labels.resize(static_cast<std::size_t>(count));
    samples.resize(static_cast<std::size_t>(count));
    other_labels.resize(static_cast<std::size_t>(count));
    partners.resize(static_cast<std::size_t>(count));
  }

  [[nodiscard]] bool is_mixed() const noexcept { return share < 1.0; }

  // The place of a sample whose image is in the part.
  [[nodiscard]] float* image(std::int64_t sample) {
    return images.data() + (sample - part.n.first) * part.shape().image();
  }

  [[nodiscard]] Batch batch(std::int64_t count) const {
    const auto samples_here = static_cast<std::size_t>(count);
    return {.samples = count,
            .images = std::span(images).first(static_cast<std::size_t>(part.size())),
            .labels = std::span(labels).first(samples_here),
            .other_labels = std::span(other_labels).first(is_mixed() ? samples_here : 0),
            .share = share,
            .part = part};
  }
};

// Buffers, the threads that fill them, and the memory of each for one image.
class BatchQueue {
 public:
  // Writes the numbers of a range's samples.
  using List = std::function<void(const SampleRange& range, Buffer& buffer)>;

  // `mixes`: may it be asked for batches whose images have partners?
  BatchQueue(ImageStream& stream, const PrefetchQueue::Options& options, bool mixes, List list)
      : stream_(stream),
        list_(std::move(list)),
        // One more than the ranges ahead: the caller holds the last one that it took.
        buffers_(options.ahead + 1),
        workers_(options.workers) {
    for (Worker& worker : workers_) {
      worker.pixels.resize(static_cast<std::size_t>(stream.image()));
      if (mixes) worker.partner.resize(worker.pixels.size());
    }
    queue_.emplace(PrefetchQueue::Work{
                       .begin =
                           [this](const SampleRange& range, std::size_t buffer) {
                             const std::int64_t samples = range.last - range.first;
                             buffers_[buffer].begin(samples, read_of(parts_, samples, stream_));
                             list_(range, buffers_[buffer]);
                             return samples;
                           },
                       .prepare =
                           [this](std::size_t buffer, std::int64_t part, std::size_t worker) {
                             prepare(buffers_[buffer], part, workers_[worker]);
                           }},
                   options);
  }

  void read_only(ReadParts parts) { parts_ = std::move(parts); }

  void announce(const SampleRange& range) { queue_->announce(range); }

  Batch take(const SampleRange& range) {
    const Buffer& buffer = buffers_[queue_->take(range)];
    skipped_ += buffer.stand_ins;
    return buffer.batch(range.last - range.first);
  }

  // Counts only batches that were taken: others may never be.
  [[nodiscard]] std::int64_t skipped() const noexcept { return skipped_; }

 private:
  // The memory of a thread.
  struct Worker {
    std::vector<std::uint8_t> pixels = {};
    std::vector<float> partner = {};  // normalised
  };

  void prepare(Buffer& buffer, std::int64_t number, Worker& worker) {
    const auto entry = static_cast<std::size_t>(number);
    // On a grid the ranks of a replica need all labels, but only the images of their own part.
    if (!buffer.part.n.contains({number, number + 1})) {
      buffer.labels[entry] = stream_.label_of(buffer.samples[entry]);
      if (buffer.is_mixed()) buffer.other_labels[entry] = stream_.label_of(buffer.partners[entry]);
      return;
    }
    float* const image = buffer.image(number);
    const auto write = [&](std::int64_t sample, float* out) {
      const auto written = stream_.write(sample, buffer.epoch, buffer.part, worker.pixels, out);
      if (written.is_stand_in) ++buffer.stand_ins;
      return written.label;
    };
    buffer.labels[entry] = write(buffer.samples[entry], image);
    if (!buffer.is_mixed()) return;
    buffer.other_labels[entry] = write(buffer.partners[entry], worker.partner.data());
    mix(worker.partner.data(), static_cast<float>(buffer.share), buffer.part.shape().image(),
        image);
  }

  static void mix(const float* partner, float share, std::int64_t count, float* image) {
    for (std::int64_t i = 0; i < count; ++i) {
      image[i] = share * image[i] + (1.0F - share) * partner[i];
    }
  }

  ImageStream& stream_;
  List list_;
  ReadParts parts_;
  std::vector<Buffer> buffers_;
  std::vector<Worker> workers_;
  std::int64_t skipped_ = 0;
  std::optional<PrefetchQueue> queue_;  // last: its threads end before what they use
};

}  // namespace

class Loader::Impl {
 public:
  Impl(const Dataset& dataset, const LoaderOptions& options)
      : dataset_(checked(dataset, options)),
        options_(options),
        training_options_(queue_options(dataset.training, options)),
        training_(dataset, dataset.training, options_),
        test_(dataset, dataset.test, options_),
        order_(dataset.training.shape.n, options.seed),
        batches_(training_, training_options_, training_.mixer() != nullptr,
                 [this](const SampleRange& range, Buffer& buffer) { list(range, buffer); }) {}

  [[nodiscard]] std::int64_t steps() const noexcept {
    return (total() + options_.global_batch - 1) / options_.global_batch;
  }

  [[nodiscard]] std::int64_t samples(std::int64_t step) const noexcept {
    if (step < 0 || step >= steps()) return 0;
    return std::min(options_.global_batch, total() - step * options_.global_batch);
  }

  [[nodiscard]] int ahead() const noexcept { return static_cast<int>(training_options_.ahead); }

  [[nodiscard]] std::size_t batch_bytes(std::int64_t test_batch) const {
    const auto bytes_of = [&](const ImageStream& stream, std::int64_t samples) {
      const auto images = static_cast<std::size_t>(read_of(parts_, samples, stream).size());
      return images * sizeof(float) + static_cast<std::size_t>(samples) * sizeof(std::int32_t);
    };
    const std::int64_t largest = std::min(options_.largest_range, samples(0));
    std::size_t training = bytes_of(training_, largest);
    // The rank's part of fewer samples may be the larger one.
    for (const auto& [samples, part] : parts_) {
      if (samples <= largest) training = std::max(training, bytes_of(training_, samples));
    }
    const std::size_t test = test_batch > 0 ? bytes_of(test_, test_batch) : 0;
    return (training_options_.ahead + 1) * training + (dataset_.test.source ? 2 : 1) * test;
  }
  [[nodiscard]] std::int64_t test_samples() const noexcept { return dataset_.test.shape.n; }

  void read_only(ReadParts parts) {
    for (const auto& [samples, part] : parts) {
      require_data(whole(dataset_.training.shape.with_n(samples)).contains(part),
                   "a part lies outside of the images");
    }
    parts_ = std::move(parts);
    batches_.read_only(parts_);
  }

  void prefetch(const SampleRange& range) {
    if (check(range) > 0) batches_.announce(range);
  }

  Batch load(const SampleRange& range) {
    if (check(range) == 0) return {};
    return batches_.take(range);
  }

  Batch load_test(std::int64_t first, std::int64_t last, Range next) {
    const std::int64_t all = dataset_.test.shape.n;
    require_data(0 <= first && first <= last && last <= all, "the range lies outside the test set");
    require_data(Range{0, all}.contains(next) && next.size() <= last - first,
                 "the next range lies outside the test set, or is longer");
    if (first == last) return {};
    if (!dataset_.test.source) return copy_test(first, last);
    if (!test_batches_) make_test_queue();
    const SampleRange range{.first = first, .last = last};
    test_batches_->announce(range);
    Batch batch = test_batches_->take(range);
    if (!next.empty()) test_batches_->announce({.first = next.first, .last = next.last});
    return batch;
  }

  // Both sets have threads of their own as soon as the test set was asked for.
  [[nodiscard]] std::size_t thread_bytes(bool loads_test) const {
    const auto image = static_cast<std::size_t>(training_.image());
    std::size_t bytes = 0;
    if (training_.mixer() != nullptr) bytes += training_options_.workers * image * sizeof(float);
    for (const Images* images : {&dataset_.training, &dataset_.test}) {
      if (!images->source || (images == &dataset_.test && !loads_test)) continue;
      const std::size_t workers = queue_options(*images, options_).workers;
      bytes += workers * (image + images->source->bytes_per_thread());
    }
    return bytes;
  }

  [[nodiscard]] std::int64_t skipped() const noexcept {
    return batches_.skipped() + (test_batches_ ? test_batches_->skipped() : 0);
  }

 private:
  [[nodiscard]] std::int64_t total() const noexcept { return dataset_.training.shape.n; }

  std::int64_t check(const SampleRange& range) const {
    require_data(range.epoch >= 0 && range.step >= 0 && range.step < steps() && 0 <= range.first &&
                     range.first <= range.last && range.last <= samples(range.step),
                 "the range lies outside the epoch");
    require_data(range.last - range.first <= options_.largest_range,
                 "the range is longer than largest_range");
    return range.last - range.first;
  }

  // One at a time, on whatever thread of the queue.
  void list(const SampleRange& range, Buffer& buffer) {
    // Does nothing while the epoch is the same.
    order_.begin(range.epoch);
    const std::int64_t start = range.step * options_.global_batch;
    const std::int64_t count = samples(range.step);
    for (std::int64_t i = range.first; i < range.last; ++i) {
      const auto entry = static_cast<std::size_t>(i - range.first);
      buffer.samples[entry] = order_[start + i];
      buffer.partners[entry] = order_[start + count - 1 - i];
    }
    buffer.epoch = range.epoch;
    buffer.share = share_of(range);
  }

  // The same for all ranges of a step.
  [[nodiscard]] double share_of(const SampleRange& range) const {
    const Augmentation* const mixer = training_.mixer();
    if (mixer == nullptr) return 1.0;
    SampleRandom random(options_.seed, range.epoch, range.step, stream_of(mixer->name));
    const double share = mixer->mix(random);
    if (share >= 0.0 && share <= 1.0) return share;
    throw std::invalid_argument("loader: the augmentation \"" + mixer->name +
                                "\" mixes with a share of " + std::to_string(share) +
                                "; give one from 0 to 1");
  }

  // On the calling thread: images in memory need no threads, and an evaluation no prefetching.
  Batch copy_test(std::int64_t first, std::int64_t last) {
    test_buffer_.begin(last - first, read_of(parts_, last - first, test_));
    const Box& part = test_buffer_.part;
    std::vector<std::uint8_t> none;
    for (std::int64_t i = 0; i < last - first; ++i) {
      if (part.n.contains({i, i + 1})) {
        static_cast<void>(test_.write(first + i, {}, part, none, test_buffer_.image(i)));
      }
      test_buffer_.labels[static_cast<std::size_t>(i)] = test_.label_of(first + i);
    }
    return test_buffer_.batch(last - first);
  }

  void make_test_queue() {
    PrefetchQueue::Options options = queue_options(dataset_.test, options_);
    options.ahead = 1;
    test_batches_.emplace(test_, options, false, [](const SampleRange& range, Buffer& buffer) {
      for (std::int64_t i = range.first; i < range.last; ++i) {
        buffer.samples[static_cast<std::size_t>(i - range.first)] = i;
      }
    });
    test_batches_->read_only(parts_);
  }

  const Dataset& dataset_;
  LoaderOptions options_;
  PrefetchQueue::Options training_options_;
  ImageStream training_;
  ImageStream test_;
  EpochOrder order_;
  BatchQueue batches_;
  std::optional<BatchQueue> test_batches_;  // of a source, from the first load_test() on
  Buffer test_buffer_;                      // of images in memory
  ReadParts parts_;                         // that this rank reads
};

Loader::Loader(const Dataset& dataset, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(dataset, options)) {}
Loader::~Loader() = default;

std::int64_t Loader::steps() const noexcept { return impl_->steps(); }
std::int64_t Loader::samples(std::int64_t step) const noexcept { return impl_->samples(step); }
void Loader::read_only(std::map<std::int64_t, Box> parts) { impl_->read_only(std::move(parts)); }
int Loader::ahead() const noexcept { return impl_->ahead(); }
std::size_t Loader::batch_bytes(std::int64_t test) const { return impl_->batch_bytes(test); }
std::size_t Loader::thread_bytes(bool test) const noexcept { return impl_->thread_bytes(test); }
std::int64_t Loader::skipped() const noexcept { return impl_->skipped(); }
void Loader::prefetch(const SampleRange& range) { impl_->prefetch(range); }
Batch Loader::load(const SampleRange& range) { return impl_->load(range); }
Batch Loader::load_test(std::int64_t first, std::int64_t last) {
  return load_test(first, last, {last, std::min(2 * last - first, impl_->test_samples())});
}
Batch Loader::load_test(std::int64_t first, std::int64_t last, Range next) {
  return impl_->load_test(first, last, next);
}

}  // namespace rondo::train
