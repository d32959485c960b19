// A step allocates nothing: counts every request to the engine's memory resource, and every
// operator new of the process but those that oneDNN makes inside its own calls (about 100 small
// ones a step with oneDNN 2.6, which offers no way to avoid them).

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/train/grid.hpp>
#include <rondo/train/partition.hpp>

#include "support/counting_resource.hpp"
#include "support/world.hpp"
#include "train/support/network.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<long> allocations{0};

bool made_by_onednn(const void* caller) {
  Dl_info library{};
  return dladdr(caller, &library) != 0 && library.dli_fname != nullptr &&
         std::string_view(library.dli_fname).find("libdnnl") != std::string_view::npos;
}

void* counted(std::size_t bytes, std::size_t alignment, const void* caller) {
  if (counting.load() && !made_by_onednn(caller)) allocations.fetch_add(1);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// NOLINTBEGIN(misc-new-delete-overloads): all that the library calls end in these. Inlined, free()
// would look to gcc as if it were called for what another operator new has given.
void* operator new(std::size_t bytes) {
  return counted(bytes, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/,
                                       std::align_val_t /*a*/) noexcept {
  std::free(memory);
}
// NOLINTEND(misc-new-delete-overloads)

namespace rondo::train {
namespace {

using rondo::test::CountingResource;

TEST(AllocationCounterTest, SeesWhatTheTestItselfAllocates) {
  counting = true;
  const std::vector<int> some(3);
  counting = false;
  EXPECT_EQ(allocations.exchange(0), 1);
}

class AllocationTest : public testing::TestWithParam<std::string> {};

TEST_P(AllocationTest, DoesNotHappenInAStep) {
  CountingResource memory;
  test::Network net(make_model(GetParam()), {.training_batches = {4, 2}}, 1, &memory);
  const test::Samples samples = test::make_samples(net.model, 4);
  net.train(samples.batch());  // what happens once is not part of a step
  const std::size_t requests = memory.allocations();

  counting = true;
  net.train(samples.batch());
  net.train(samples.part(0, 2));
  net.train({});
  counting = false;

  EXPECT_EQ(allocations.exchange(0), 0);
  EXPECT_EQ(memory.allocations() - requests, 0U);
}

TEST_P(AllocationTest, TakesTheMemoryOfAStepFromTheEngine) {
  CountingResource memory;
  const test::Network net(make_model(GetParam()), {.training_batches = {4}}, 1, &memory);
  EXPECT_GT(memory.allocations(), net.model.layers.size());
}

INSTANTIATE_TEST_SUITE_P(Zoo, AllocationTest, testing::ValuesIn(test::quick_models()),
                         [](const auto& tested) { return tested.param; });

// The same on four ranks, which are threads, each with a part of every layer.

/// The moments of 600 channels are more than travels in one small message.
Model two_convolutions() {
  ModelBuilder builder("two", {1, 8, 8, 4}, 8);
  ValueId x = builder.add("conv1", ConvolutionLayer{.filters = 8}, ModelBuilder::input);
  x = builder.add("conv2", ConvolutionLayer{.filters = 600}, x);
  x = builder.add("bn", BatchNormLayer{}, x);
  builder.add("fc", FullyConnectedLayer{.outputs = 8}, x);
  return builder.finish();
}

/// The objects that one rank of the replica needs for a step.
class Part {
 public:
  Part(transport::World& world, const Model& model, const LayerSplit& split)
      : splits_{split, split, {}, {.kind = SplitKind::channel, .channels = {1, world.size()}}},
        layout_(layout_of(model, splits_, world.size(), world.rank())),
        parameters_(layout_.parameter_count, 0.1F),
        gradients_(parameters_.size()),
        statistics_(layout_.statistic_count, 1.0F),
        executor_(engine_, model,
                  {.replica = &world.communicator(),
                   .splits = splits_,
                   .batch_norm = BatchNormScope::all,
                   .memory = &world.arena()},
                  {parameters_, gradients_, statistics_}, {.training_batches = {4}}) {}

  void train(const test::Samples& samples) { executor_.train(samples.batch(), silent_); }

 private:
  std::vector<LayerSplit> splits_;
  ParameterLayout layout_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<float> statistics_;
  test::Silent silent_;
  tensor::Engine engine_;
  Executor executor_;
};

class GridStepAllocationTest : public testing::TestWithParam<LayerSplit> {};

// The transport's stores grow in the first steps, and later when a peer is further ahead than ever
// before. A layer that allocated memory itself would do so in every step.
TEST_P(GridStepAllocationTest, DoesNotHappenInAStep) {
  const Model model = two_convolutions();
  const test::Samples samples = test::make_samples(model, 4);
  constexpr int ranks = 4;
  std::barrier<> all(ranks);
  long least = 1;

  rondo::test::World(ranks).run([&](transport::World& world) {
    Part part(world, model, GetParam());
    for (int step = 0; step < 40; ++step) {
      all.arrive_and_wait();
      counting = true;
      part.train(samples);
      all.arrive_and_wait();
      counting = false;
      if (world.rank() == 0) least = std::min(least, allocations.exchange(0));
    }
  });

  EXPECT_EQ(least, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Splits, GridStepAllocationTest,
    testing::Values(LayerSplit{.kind = SplitKind::sample},
                    LayerSplit{.kind = SplitKind::space, .h = 2, .w = 2},
                    LayerSplit{.kind = SplitKind::channel, .channels = {2, 2}},
                    LayerSplit{.kind = SplitKind::space_and_channel, .h = 2, .channels = {1, 2}},
                    LayerSplit{.kind = SplitKind::space_and_channel, .w = 2, .channels = {2, 1}}),
    [](const auto& tested) {
      const LayerSplit& split = tested.param;
      if (split.kind == SplitKind::sample) return std::string("samples");
      return "tiles" + std::to_string(split.h) + "x" + std::to_string(split.w) + "channels" +
             std::to_string(split.channels.channels) + "x" + std::to_string(split.channels.filters);
    });

}  // namespace
}  // namespace rondo::train
