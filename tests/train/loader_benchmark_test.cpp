// `rondo bench data` counts batches that were decoded within its rounds, and no others.

#include <rondo/train/loader_benchmark.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/image.hpp>

namespace rondo::train::loader_benchmark_test {
namespace {

// Counts the images that it has decoded.
class CountingSource : public ImageSource {
 public:
  void read(std::int64_t /*image*/, const Framing& /*framing*/,
            tensor::View<std::uint8_t> out) const override {
    std::fill_n(out.data, out.shape.size(), std::uint8_t{1});
    ++decoded_;
  }
  [[nodiscard]] std::string digest() const override { return "counting"; }
  [[nodiscard]] std::int64_t decoded() const { return decoded_; }

 private:
  mutable std::atomic<std::int64_t> decoded_ = 0;
};

// Each of five rounds takes four batches before the clock starts, within no time at all one more
// that counts, and the three that were announced by then: nothing is left to be decoded while the
// other loader is measured.
TEST(LoaderBenchmarkTest, DecodesNothingOutsideOfItsRounds) {
  constexpr std::int64_t batch = 4;
  const auto source = std::make_shared<CountingSource>();
  Dataset dataset{.name = "counting", .classes = 1};
  for (Images* images : {&dataset.training, &dataset.test}) {
    images->shape = {512, 4, 4, 1};
    images->labels.assign(512, 0);
    images->source = source;
  }
  dataset.mean = {0.0F};
  dataset.stddev = {1.0F};

  const LoaderTimes times = measure_loader(dataset, LoaderOptions{.global_batch = batch},
                                           std::array{1, 2}, std::chrono::seconds(0));

  ASSERT_EQ(times.times.size(), 2U);
  for (const LoaderTime& time : times.times) EXPECT_EQ(time.images, batch);
  EXPECT_EQ(source->decoded(), 2 * 5 * (4 + 1 + 3) * batch);
}

}  // namespace
}  // namespace rondo::train::loader_benchmark_test
