// The communication of a layer on grids of four ranks, beside the planner's prediction:
//   grid-layers [LATENCY_US MEGABYTES_PER_S [SAMPLES [REPEATS]]]      default: 1000 12 4 7
// Ranks are threads, each a fake node and bound to a CPU; the link between them is slowed to the
// given latency and bandwidth. The default is 2 us and 6 GB/s, slowed 500 times: ratios stay, and
// what this machine needs for computing and copying is little beside them.
//
// A step is forward, both halves of backward, and the allreduce of the weight gradients over the
// ranks that hold the same weights, one after another, on buffers in the arena. Columns, in ms, are
// medians of the time from when all ranks begin to when the last has finished:
//   predicted   the planner's exchanges_of() + reduction_cost() for the same link
//   measured    step - local
//   ratio       measured / predicted
//   step, local the whole step; the kernels of the same parts alone, all ranks at once

#include <sched.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rondo/tensor/tensor.hpp>
#include <rondo/transport/world.hpp>

#include "layers/layer_type.hpp"
#include "layers/split_kernels.hpp"
#include "plan/layer_costs.hpp"

namespace {

using namespace rondo;
using namespace rondo::train;
using tensor::Shape;

constexpr int ranks = 4;

struct Setting {
  double latency_us = 1000.0;
  double megabytes_per_second = 12.0;
  std::int64_t samples = 4;
  std::size_t repeats = 7;
};

struct Subject {
  const char* name;
  Shape image;
  LayerKind kind;
};

struct Way {
  const char* name;
  ProcessGrid grid;
  LayerSplit split;
};

ConvolutionLayer convolution(std::int64_t filters, std::int64_t kernel) {
  return {.filters = filters, .kernel = kernel, .padding = kernel / 2};
}

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all{
      {"64->64 3x3, 56x56", {1, 56, 56, 64}, convolution(64, 3)},
      {"128->128 3x3, 28x28", {1, 28, 28, 128}, convolution(128, 3)},
      {"256->256 3x3, 14x14", {1, 14, 14, 256}, convolution(256, 3)},
      {"512->512 3x3, 7x7", {1, 7, 7, 512}, convolution(512, 3)},
      {"2048->512 1x1, 7x7", {1, 7, 7, 2048}, convolution(512, 1)},
      {"2048->1000 connected", {1, 1, 1, 2048}, FullyConnectedLayer{.outputs = 1000}},
      {"4096->4096 connected", {1, 1, 1, 4096}, FullyConnectedLayer{.outputs = 4096}}};
  return all;
}

std::vector<Way> ways_of(const LayerKind& kind) {
  std::vector<Way> ways{{"sample 4", {.pr = 1, .pc = 4}, {}}};
  if ((kind.get_if<FullyConnectedLayer>() != nullptr)) {
    const auto outputs = [](int parts) {
      return LayerSplit{.kind = SplitKind::channel, .channels = {1, parts}};
    };
    ways.push_back({"outputs 4", {.pr = 4, .pc = 1}, outputs(4)});
    ways.push_back({"sample 2, outputs 2", {.pr = 2, .pc = 2}, outputs(2)});
    return ways;
  }
  const auto channels = [](int c, int f) {
    return LayerSplit{.kind = SplitKind::channel, .channels = {c, f}};
  };
  ways.push_back({"channel 4 (X)", {.pr = 4, .pc = 1}, channels(4, 1)});
  ways.push_back({"filter 4 (Y)", {.pr = 4, .pc = 1}, channels(1, 4)});
  ways.push_back({"2 x 2 (W)", {.pr = 4, .pc = 1}, channels(2, 2)});
  ways.push_back({"sample 2, channel 2", {.pr = 2, .pc = 2}, channels(2, 1)});
  ways.push_back({"space 2 x 2", {.pr = 4, .pc = 1}, {.kind = SplitKind::space, .h = 2, .w = 2}});
  return ways;
}

bool is_convolution(const LayerKind& kind) { return kind.get_if<ConvolutionLayer>() != nullptr; }

// The output of the layers above; the convolutions keep the size of the image.
Shape output_shape(const LayerKind& kind, Shape x) {
  if (const auto* convolution = kind.get_if<ConvolutionLayer>()) {
    return {x.n, x.h, x.w, convolution->filters};
  }
  return {x.n, 1, 1, kind.get_if<FullyConnectedLayer>()->outputs};
}

Partition layout_of_x(const Way& way, const LayerKind& kind, Shape extents) {
  switch (way.split.kind) {
    case SplitKind::channel:
      return is_convolution(kind) ? by_channel(extents, way.grid) : by_replica(extents, way.grid);
    case SplitKind::space:
      return on_grid(extents, way.grid, {.h = way.split.h, .w = way.split.w});
    default:
      return by_sample(extents, ranks);
  }
}

/// One layer split in one way.
struct Job {
  LayerSpec layer;
  Way way;
  NodeLayout place;

  Job(const Subject& subject, Way how, std::int64_t samples)
      : layer{.name = subject.name, .kind = subject.kind, .inputs = {1}},
        way(how),
        place(placed(layer, how, subject.image, samples)) {}

  static NodeLayout placed(const LayerSpec& layer, const Way& way, Shape image,
                           std::int64_t samples) {
    const Shape input = image.with_n(samples);
    const Shape output = output_shape(layer.kind, input);
    Partition x = layout_of_x(way, layer.kind, input);
    const bool by_channel = way.split.kind == SplitKind::channel && is_convolution(layer.kind);
    Partition y = by_channel ? output_of(x, way.split.channels, output) : x.with_extents(output);
    return {way.split, std::move(x), std::move(y)};
  }

  [[nodiscard]] std::unique_ptr<LayerKernel> kernel(const KernelContext& context) const {
    const bool by_channel = way.split.kind == SplitKind::channel;
    if (const auto* given = layer.kind.get_if<ConvolutionLayer>()) {
      return by_channel ? make_convolution_by_channel(context, *given, place, true)
                        : make_convolution_in_space(context, *given, place, true);
    }
    const auto& given = (*layer.kind.get_if<FullyConnectedLayer>());
    if (by_channel) return make_connected_by_output(context, given, place, true);
    return make_layer_kernel(context.engine, given,
                             place.x.box_of(context.communicators.rank()).shape(), true);
  }

  [[nodiscard]] double predicted_ms(const Setting& setting) const {
    const LinkCost link{.alpha_seconds = setting.latency_us * 1e-6,
                        .bandwidth = setting.megabytes_per_second * 1e6};
    const PlanOptions options{
        .ranks = ranks, .batch = setting.samples, .fabric = link, .node = link};
    const Model none;
    const GridJob job{.model = none, .options = options, .grid = way.grid};
    const JobLayer given{.spec = layer, .x = place.x.extents(), .y = place.y.extents()};
    return 1e3 * (exchanges_of(job, given, way.split).seconds() +
                  reduction_cost(job, given, way.split).seconds);
  }
};

/// A rank's computations for a layer, as if that were all.
struct LocalPart {
  LayerSpec layer;
  Shape x;
  Shape y;

  LocalPart(const Job& job, int rank)
      : layer(job.layer), x(job.place.x.box_of(rank).shape()), y(job.place.y.box_of(rank).shape()) {
    if (job.way.split.kind != SplitKind::channel) return;
    const ChannelGrid grid = job.way.split.channels;
    if (const auto* convolution = layer.kind.get_if<ConvolutionLayer>()) {
      ConvolutionLayer part = *convolution;
      x = gathered_input(job.place.x, grid, rank).shape();
      y = partial_output(job.place.x, grid, job.place.y.extents(), rank).shape();
      part.filters = y.c;
      layer.kind = part;
    } else {
      const Range own = even_range(y.c, job.way.grid.pr, job.way.grid.position_of(rank));
      y.c = own.size();
      FullyConnectedLayer part = *layer.kind.get_if<FullyConnectedLayer>();
      part.outputs = y.c;
      layer.kind = part;
    }
  }

  [[nodiscard]] std::size_t parameters() const {
    if (const auto* convolution = layer.kind.get_if<ConvolutionLayer>()) {
      return static_cast<std::size_t>(convolution->kernel * convolution->kernel * x.c * y.c);
    }
    return static_cast<std::size_t>((x.image() + 1) * y.c);
  }
};

/// A kernel with what it works on.
class Step {
 public:
  Step(std::unique_ptr<LayerKernel> kernel, Shape x, Shape y, std::size_t parameters,
       std::pmr::memory_resource* memory)
      : kernel_(std::move(kernel)),
        x_(x, memory),
        y_(y, memory),
        dy_(y, memory),
        dx_(x, memory),
        parameters_(parameters, 0.01F),
        gradients_(parameters, memory) {
    std::ranges::fill(x_.span(), 0.5F);
    std::ranges::fill(dy_.span(), 0.25F);
    kernel_->load(parameters_);
  }

  void run() {
    kernel_->forward_training({.x = x_.view(), .y = y_.view(), .parameters = parameters_}, {});
    const BackwardOperands operands{.x = x_.view(),
                                    .y = y_.view(),
                                    .dy = dy_.view(),
                                    .dx = dx_.view(),
                                    .parameters = parameters_,
                                    .gradients = gradients_};
    kernel_->backward_parameters(operands);
    kernel_->backward_input(operands);
  }

  [[nodiscard]] std::span<float> gradients() { return gradients_; }

 private:
  std::unique_ptr<LayerKernel> kernel_;
  tensor::Tensor x_, y_, dy_, dx_;
  std::vector<float> parameters_;
  std::pmr::vector<float> gradients_;
};

/// A barrier that keeps the time.
class TimedBarrier {
 public:
  using Clock = std::chrono::steady_clock;

  /// Waits for the others; returns the time at which the last one came.
  Clock::time_point arrive() {
    barrier_.arrive_and_wait();
    return last_came_;
  }

 private:
  struct Note {
    Clock::time_point* last_came;
    void operator()() const noexcept { *last_came = Clock::now(); }
  };

  Clock::time_point last_came_ = {};
  std::barrier<Note> barrier_{ranks, Note{&last_came_}};
};

/// One rank of the measurement.
class Rank {
 public:
  Rank(transport::World& world, TimedBarrier& start, const Setting& setting)
      : world_(world), start_(start), setting_(setting) {}

  void run() {
    if (world_.rank() == 0) print_head();
    for (const Subject& subject : subjects()) {
      for (const Way& way : ways_of(subject.kind)) measure(Job(subject, way, setting_.samples));
    }
  }

 private:
  void print_head() const {
    std::printf("%s\n%lld samples, medians of %zu, ms\n%-21s %-20s %10s %10s %6s %10s %8s\n",
                world_.route().c_str(), static_cast<long long>(setting_.samples), setting_.repeats,
                "layer", "split", "predicted", "measured", "ratio", "step", "local");
  }

  void measure(const Job& job) {
    const LocalPart part(job, world_.rank());
    const double local = local_ms(part);
    const double step = step_ms(job, part);
    if (world_.rank() != 0) return;
    const double predicted = job.predicted_ms(setting_);
    std::printf("%-21s %-20s %10.2f %10.2f %6.2f %10.2f %8.2f\n", job.layer.name.c_str(),
                job.way.name, predicted, step - local, (step - local) / predicted, step, local);
    std::fflush(stdout);
  }

  double local_ms(const LocalPart& part) {
    Step alone(make_layer_kernel(engine_, part.layer.kind, part.x, true), part.x, part.y,
               part.parameters(), std::pmr::get_default_resource());
    return median_ms([&] { alone.run(); });
  }

  double step_ms(const Job& job, const LocalPart& part) {
    GridCommunicators communicators(world_.communicator(), job.way.grid);
    const KernelContext context{engine_, communicators, &world_.arena()};
    transport::Communicator& holders =
        job.way.split.kind == SplitKind::channel ? communicators.across() : communicators.all();
    const int rank = world_.rank();
    Step step(job.kernel(context), job.place.x.box_of(rank).shape(),
              job.place.y.box_of(rank).shape(), part.parameters(), &world_.arena());
    return median_ms([&] {
      step.run();
      if (holders.size() > 1) holders.allreduce(step.gradients()).wait();
    });
  }

  /// The median time of work that all ranks do together, until the last has finished.
  template <typename Work>
  double median_ms(const Work& work) {
    work();
    std::vector<double> times;
    for (std::size_t i = 0; i < setting_.repeats; ++i) {
      const auto start = start_.arrive();
      work();
      const std::chrono::duration<double, std::milli> taken = start_.arrive() - start;
      times.push_back(taken.count());
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::ranges::nth_element(times, middle);
    return *middle;
  }

  transport::World& world_;
  TimedBarrier& start_;
  const Setting& setting_;
  tensor::Engine engine_;
};

void pin(int rank) {
  const unsigned cpus = std::max(std::thread::hardware_concurrency(), 1U);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(rank) % cpus, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

Setting read(std::span<char*> arguments) {
  Setting setting;
  if (arguments.size() > 2) {
    setting.latency_us = std::strtod(arguments[1], nullptr);
    setting.megabytes_per_second = std::strtod(arguments[2], nullptr);
  }
  if (arguments.size() > 3) setting.samples = std::strtoll(arguments[3], nullptr, 10);
  if (arguments.size() > 4) setting.repeats = std::strtoull(arguments[4], nullptr, 10);
  return setting;
}

}  // namespace

int main(int count, char** arguments) {
  const Setting setting = read(std::span(arguments, static_cast<std::size_t>(count)));
  if (setting.latency_us < 0 || setting.megabytes_per_second <= 0 || setting.samples < ranks ||
      setting.repeats == 0) {
    std::fprintf(stderr, "usage: %s [LATENCY_US MEGABYTES_PER_S [SAMPLES >= %d [REPEATS]]]\n",
                 arguments[0], ranks);
    return 2;
  }
  transport::WorldOptions options;
  options.fabric = {
      .name = "shm",
      .fake_nodes = ranks,
      .injected_latency = std::chrono::nanoseconds(std::llround(setting.latency_us * 1e3)),
      .injected_bytes_per_second = setting.megabytes_per_second * 1e6};
  TimedBarrier start;
  std::vector<std::jthread> threads;
  for (transport::World& world : transport::World::make_threads(ranks, options)) {
    threads.emplace_back([&, mine = std::move(world)]() mutable {
      try {
        pin(mine.rank());
        Rank(mine, start, setting).run();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", mine.rank(), error.what());
        std::_Exit(1);  // the others wait for this one
      }
    });
  }
  return 0;
}
