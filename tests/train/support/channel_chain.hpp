#pragma once

// Convolutions one after another, each split over channels and filters, perhaps within tiles of the
// images, against unsplit ones.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/transport/world.hpp>

#include "layers/split_kernels.hpp"
#include "support/world.hpp"
#include "train/support/whole_layer.hpp"

namespace rondo::train::test {

/// A chain of convolutions for inputs of shape `x`.
struct Chain {
  tensor::Shape x = {};
  std::vector<ConvolutionLayer> layers = {};
};

/// Parts of rows and columns.
struct Tiles {
  int h = 1;
  int w = 1;

  [[nodiscard]] int count() const { return h * w; }
};

[[nodiscard]] inline LayerSplit split_of(ChannelGrid grid, Tiles tiles) {
  const bool both = tiles.count() > 1;
  return {.kind = both ? SplitKind::space_and_channel : SplitKind::channel,
          .h = tiles.h,
          .w = tiles.w,
          .channels = grid};
}

/// The results of every layer of a chain where nothing is split.
inline std::vector<WholeLayer> run_whole(tensor::Engine& engine, const Chain& chain,
                                         Numbers numbers) {
  std::vector<WholeLayer> layers;
  std::vector<std::unique_ptr<LayerKernel>> kernels;
  for (const ConvolutionLayer& layer : chain.layers) {
    const bool first = layers.empty();
    const tensor::Shape x = first ? chain.x : layers.back().y.shape();
    kernels.push_back(make_layer_kernel(engine, layer, x, true));
    WholeLayer made = make_whole_layer(layer, x, numbers);
    if (!first) std::ranges::copy(layers.back().y.span(), made.x.span().begin());
    kernels.back()->load(made.parameters);
    kernels.back()->forward_training(
        {.x = made.x.view(), .y = made.y.view(), .parameters = made.parameters}, {});
    layers.push_back(std::move(made));
  }
  for (std::size_t i = layers.size(); i-- > 0;) {
    WholeLayer& layer = layers[i];
    if (i + 1 < layers.size()) {
      std::ranges::copy(layers[i + 1].dx.span(), layer.dy.span().begin());
    }
    const std::vector<float> dy(layer.dy.span().begin(), layer.dy.span().end());
    const BackwardOperands operands = operands_of(layer);
    kernels[i]->backward_parameters(operands);
    kernels[i]->backward_input(operands);
    std::ranges::copy(dy, layer.dy.span().begin());
  }
  return layers;
}

/// This rank's part of a convolution's parameters. Calls visit(index in the whole replica, index in
/// the part) for every element.
template <class Visit>
void for_each_parameter(const ConvolutionLayer& layer, const NodeLayout& place, int rank,
                        Visit visit) {
  const ChannelGrid grid = place.split.channels;
  const std::int64_t channels = place.x.extents().c;
  const std::int64_t taps = layer.kernel * layer.kernel;
  const Range rows = partial_output(place.x, grid, place.y.extents(), rank).c;
  const Range columns = gathered_input(place.x, grid, rank).c;
  std::size_t in_part = 0;
  for (auto f = rows.first; f < rows.last; ++f) {
    for (auto i = columns.first * taps; i < columns.last * taps; ++i) {
      visit(static_cast<std::size_t>(f * channels * taps + i), in_part++);
    }
  }
  if (!layer.bias) return;
  const Range bias = place.y.box_of(rank).c;
  for (auto f = bias.first; f < bias.last; ++f) {
    visit(static_cast<std::size_t>(layer.filters * channels * taps + f), in_part++);
  }
}

/// One layer of a chain on one rank.
struct LayerPart {
  LayerPart(const KernelContext& context, const ConvolutionLayer& given, NodeLayout where)
      : layer(given),
        place(std::move(where)),
        rank(context.communicators.rank()),
        kernel(make_convolution_by_channel(context, layer, place, true)),
        x(place.x.box_of(rank).shape(), context.memory),
        y(place.y.box_of(rank).shape(), context.memory),
        dy(y.shape(), context.memory),
        dx(x.shape(), context.memory) {
    for_each_parameter(layer, place, rank,
                       [&](std::size_t, std::size_t) { parameters.push_back(0.0F); });
    gradients.resize(parameters.size(), std::numeric_limits<float>::quiet_NaN());
  }

  void forward(const WholeLayer& whole) {
    for_each_parameter(layer, place, rank, [&](std::size_t from, std::size_t into) {
      parameters[into] = whole.parameters[from];
    });
    kernel->load(parameters);
    kernel->forward_training({.x = x.view(), .y = y.view(), .parameters = parameters}, {});
  }

  void backward() {
    const BackwardOperands operands = operands_of(*this);
    kernel->backward_parameters(operands);
    kernel->backward_input(operands);
  }

  ConvolutionLayer layer;
  NodeLayout place;
  int rank;
  std::unique_ptr<LayerKernel> kernel;
  tensor::Tensor x, y, dy, dx;
  std::vector<float> parameters = {};
  std::vector<float> gradients = {};
};

/// The layers of a chain on one rank; layer i is split by grids[i] within each tile.
class ChainPart {
 public:
  ChainPart(const KernelContext& context, const Chain& chain, const std::vector<ChannelGrid>& grids,
            Tiles tiles = {}) {
    Partition x = on_grid(chain.x, context.communicators.grid(),
                          {.h = tiles.h, .w = tiles.w, .c = grids.front().ranks()});
    for (std::size_t i = 0; i < grids.size(); ++i) {
      const ConvolutionLayer& layer = chain.layers[i];
      const auto reduced = [&](std::int64_t extent) {
        return (extent + 2 * layer.padding - layer.kernel) / layer.stride + 1;
      };
      const auto [n, h, w, c] = x.extents();
      const tensor::Shape y{n, reduced(h), reduced(w), layer.filters};
      const LayerSplit split = split_of(grids[i], tiles);
      layers_.push_back(std::make_unique<LayerPart>(
          context, layer, NodeLayout{.split = split, .x = x, .y = output_of(x, grids[i], y)}));
      x = layers_.back()->place.y;
    }
  }

  void run(const std::vector<WholeLayer>& whole) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      LayerPart& part = *layers_[i];
      if (i == 0) {
        const tensor::Tensor x = part_of(whole[0].x, part.place.x.box_of(part.rank));
        std::ranges::copy(x.span(), part.x.span().begin());
      } else {
        std::ranges::copy(layers_[i - 1]->y.span(), part.x.span().begin());
      }
      part.forward(whole[i]);
    }
    LayerPart& last = *layers_.back();
    const tensor::Tensor dy = part_of(whole.back().dy, last.place.y.box_of(last.rank));
    std::ranges::copy(dy.span(), last.dy.span().begin());
    for (std::size_t i = layers_.size(); i-- > 0;) {
      layers_[i]->backward();
      if (i > 0) std::ranges::copy(layers_[i]->dx.span(), layers_[i - 1]->dy.span().begin());
    }
  }

  [[nodiscard]] const LayerPart& layer(std::size_t i) const { return *layers_[i]; }

 private:
  std::vector<std::unique_ptr<LayerPart>> layers_ = {};
};

/// The results of all ranks, put together: gradients are added over tiles and replicas.
class Assembled {
 public:
  explicit Assembled(const std::vector<WholeLayer>& whole) {
    for (const WholeLayer& layer : whole) {
      WholeLayer& made = layers_.emplace_back();
      made.y = tensor::Tensor(layer.y.shape());
      made.dx = tensor::Tensor(layer.dx.shape());
      made.gradients.resize(layer.gradients.size());
      std::ranges::fill(made.y.span(), std::numeric_limits<float>::quiet_NaN());
      std::ranges::fill(made.dx.span(), std::numeric_limits<float>::quiet_NaN());
    }
  }

  void add(const ChainPart& part) {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const LayerPart& own = part.layer(i);
      put_part(own.y.span(), own.place.y.box_of(own.rank), layers_[i].y);
      put_part(own.dx.span(), own.place.x.box_of(own.rank), layers_[i].dx);
      for_each_parameter(own.layer, own.place, own.rank, [&](std::size_t into, std::size_t from) {
        layers_[i].gradients[into] += own.gradients[from];
      });
    }
  }

  void expect(const std::vector<WholeLayer>& whole, Numbers numbers) const {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      SCOPED_TRACE("layer " + std::to_string(i));
      const std::size_t bias = whole[i].gradients.size() - biases_of(whole[i]);
      const std::span<const float> gradients = layers_[i].gradients;
      const std::span<const float> expected = whole[i].gradients;
      EXPECT_TRUE(agree(layers_[i].y.span(), whole[i].y.span(), numbers)) << "y";
      EXPECT_TRUE(agree(layers_[i].dx.span(), whole[i].dx.span(), numbers)) << "dx";
      EXPECT_TRUE(agree(gradients.first(bias), expected.first(bias), numbers)) << "dw";
      EXPECT_TRUE(agree(gradients.subspan(bias), expected.subspan(bias), numbers)) << "db";
    }
  }

 private:
  // Weights come in multiples of the filters; a bias is what is left over.
  static std::size_t biases_of(const WholeLayer& layer) {
    const auto filters = static_cast<std::size_t>(layer.y.shape().c);
    const auto channels = static_cast<std::size_t>(layer.x.shape().c);
    return layer.gradients.size() % (filters * channels) == 0 ? 0 : filters;
  }

  std::mutex mutex_;
  std::vector<WholeLayer> layers_ = {};
};

/// A chain with what it gives where nothing is split, for whole and for real numbers.
struct Measured {
  explicit Measured(const Chain& given) : chain(given) {
    tensor::Engine engine;
    whole = run_whole(engine, chain, Numbers::whole);
    real = run_whole(engine, chain, Numbers::real);
  }

  Chain chain;
  std::vector<WholeLayer> whole = {};
  std::vector<WholeLayer> real = {};
};

/// Runs `measured` on a grid of `replicas` replicas whose ranks split layer i by grids[i] within
/// `tiles`, twice, and expects what the unsplit layers gave.
inline void expect_equal(const std::vector<Measured>& all, const std::vector<ChannelGrid>& grids,
                         int replicas, rondo::test::Backend backend = rondo::test::Backend::shm,
                         Tiles tiles = {}) {
  const ProcessGrid grid{.pr = tiles.count() * grids.front().ranks(), .pc = replicas};
  std::vector<std::unique_ptr<Assembled>> whole;
  std::vector<std::unique_ptr<Assembled>> real;
  for (const Measured& measured : all) {
    whole.push_back(std::make_unique<Assembled>(measured.whole));
    real.push_back(std::make_unique<Assembled>(measured.real));
  }
  rondo::test::World(backend, grid.ranks()).run([&](transport::World& world) {
    tensor::Engine engine;
    GridCommunicators communicators(world.communicator(), grid);
    const KernelContext context{engine, communicators, &world.arena()};
    for (std::size_t i = 0; i < all.size(); ++i) {
      ChainPart part(context, all[i].chain, grids, tiles);
      part.run(all[i].real);
      real[i]->add(part);
      part.run(all[i].whole);
      whole[i]->add(part);
    }
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE("chain " + std::to_string(i));
    whole[i]->expect(all[i].whole, Numbers::whole);
    real[i]->expect(all[i].real, Numbers::real);
  }
}

inline std::string text_of(ChannelGrid grid, int replicas) {
  return std::to_string(grid.channels) + " x " + std::to_string(grid.filters) + " in " +
         std::to_string(replicas) + " replicas";
}

}  // namespace rondo::train::test
