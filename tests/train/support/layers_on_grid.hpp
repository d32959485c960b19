#pragma once

// Layers one after another, as the ranks of a replica run them, against the same layers where
// nothing is split. Ranks run the kernels that lower() asks for.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/redistribution.hpp>
#include <rondo/transport/world.hpp>

#include "executor/lowering.hpp"
#include "executor/program.hpp"
#include "layers/split_kernels.hpp"
#include "support/world.hpp"
#include "train/support/arrays.hpp"
#include "train/support/network.hpp"

namespace rondo::train::test {

/// Layers one after another, for inputs of shape `x`.
struct Chain {
  tensor::Shape x = {};
  std::vector<LayerKind> layers = {};
  float dy_scale = 1.0F;
  bool exact = true;  ///< whole numbers give whole numbers
};

/// The splits of a chain's layers over so many ranks. Layers behind the last split follow.
struct Splits {
  int ranks = 1;
  std::vector<LayerSplit> of_layers = {};
};

/// A chain where nothing is split: what it was given, and what it gave. A layer that gives a logit
/// is the last one of its model, and is not run.
struct WholeChain {
  WholeChain(const Chain& chain, Numbers given);

  Numbers numbers;
  Model model;
  ParameterLayout layout;
  std::vector<float> parameters, gradients, statistics;
  std::vector<tensor::Tensor> values = {};           ///< the input, then the output of each layer
  std::vector<tensor::Tensor> value_gradients = {};  ///< of each of them
};

inline Model model_of(const Chain& chain) {
  Model model{.name = "chain", .input = chain.x.with_n(1), .classes = 1};
  for (const LayerKind& kind : chain.layers) {
    const ValueId input = model.layers.size();
    model.layers.push_back({"layer" + std::to_string(input), kind, {input}});
  }
  model.layers.push_back({"fc", FullyConnectedLayer{.outputs = 1}, {chain.layers.size()}});
  return model;
}

inline WholeChain::WholeChain(const Chain& chain, Numbers given)
    : numbers(given),
      model(model_of(chain)),
      layout(layout_of(model)),
      parameters(layout.parameter_count),
      gradients(layout.parameter_count),
      statistics(layout.statistic_count, 1.0F) {
  tensor::Engine engine;
  const std::vector<tensor::Shape> shapes = shapes_of(model, chain.x.n);
  const std::vector<LayerSpans> spans = spans_of(model, layout);
  std::vector<std::unique_ptr<LayerKernel>> kernels;
  fill(parameters, numbers, 3);
  values.push_back(filled(chain.x, numbers, 1));
  value_gradients.emplace_back(chain.x);
  for (std::size_t i = 0; i < chain.layers.size(); ++i) {
    values.emplace_back(shapes[i + 1]);
    value_gradients.emplace_back(shapes[i + 1]);
    kernels.push_back(make_layer_kernel(engine, chain.layers[i], shapes[i], true));
    const auto own = spans[i].parameters_of(std::span<const float>(parameters));
    kernels[i]->load(own);
    kernels[i]->forward_training(
        {.x = values[i].view(), .y = values[i + 1].view(), .parameters = own},
        spans[i].statistics_of(std::span(statistics)));
  }
  fill(value_gradients.back().span(), numbers, 2);
  for (float& value : value_gradients.back().span()) value *= chain.dy_scale;
  for (std::size_t i = kernels.size(); i-- > 0;) {
    // An activation uses the gradient up.
    tensor::Tensor dy = part_of(value_gradients[i + 1], train::whole(shapes[i + 1]));
    const BackwardOperands operands{
        .x = values[i].view(),
        .y = values[i + 1].view(),
        .dy = dy.view(),
        .dx = wanted(value_gradients[i]),
        .parameters = spans[i].parameters_of(std::span<const float>(parameters)),
        .gradients = spans[i].parameters_of(std::span(gradients))};
    kernels[i]->backward_parameters(operands);
    kernels[i]->backward_input(operands);
  }
}

/// The objects that a rank's kernels share.
struct GridRank {
  GridRank(transport::World& given, ProcessGrid grid, BatchNormScope statistics = {})
      : world(given),
        communicators(given.communicator(), grid),
        context{.engine = engine,
                .communicators = communicators,
                .memory = &given.arena(),
                .statistics = statistics} {}

  transport::World& world;
  tensor::Engine engine = tensor::Engine();
  GridCommunicators communicators;
  KernelContext context;
};

/// Bytes that cross between ranks on one rank's account: loads and stores inside a node, messages
/// between nodes.
struct Sent {
  std::int64_t forward = 0;
  std::int64_t parameters = 0;  ///< by the first half of backward
  std::int64_t input = 0;       ///< by the second

  [[nodiscard]] std::int64_t all() const { return forward + parameters + input; }
};

/// The layers of a chain on one rank.
class ChainOnRank {
 public:
  ChainOnRank(GridRank& rank, const WholeChain& whole, const Splits& splits,
              bool input_gradient = true)
      : rank_(rank),
        lowering_(lowered(whole, splits)),
        layout_(layout_of(whole.model, lowering_, rank.context.rank())),
        slices_(slices_in_replica(whole.model, lowering_, splits.ranks)),
        spans_(spans_of(whole.model, layout_)),
        input_gradient_(input_gradient) {
    for (std::size_t node = 0; node < lowering_.graph.nodes.size(); ++node) {
      const auto layer = lowering_.graph.nodes[node].layer;
      const NodeLayout& at = lowering_.layouts[node];
      kernels_.push_back(
          layer ? whole.model.layers[*layer].kind->grid_kernel(rank.context, at, wants_dx(node))
                : make_redistribution(rank.context, at.x, at.y));
      models_value_.push_back(layer ? *layer + 1 : models_value_[input_of(node)]);
      if (layer == whole.model.layers.size() - 2) break;
    }
  }

  /// Forward and backward; expects this rank's part of all that `whole` has. All memory that is to
  /// be written is full of rubbish before.
  Sent run(const WholeChain& whole) {
    Sent sent;
    parameters_ = parts_of(layout_.parameters, whole.layout.parameters, whole.parameters);
    gradients_.assign(layout_.parameter_count, rubbish);
    statistics_.assign(layout_.statistic_count, 1.0F);
    forward(whole, sent);
    backward(whole, sent);
    expect_learned(whole);
    return sent;
  }

  /// The bytes that the layers say that all ranks send.
  [[nodiscard]] std::int64_t told(const WholeChain& whole) const {
    std::uint64_t bytes = 0;
    for (std::size_t node = 0; node < kernels_.size(); ++node) {
      const auto layer = lowering_.graph.nodes[node].layer;
      const NodeLayout& at = lowering_.layouts[node];
      bytes += layer ? whole.model.layers[*layer]
                           .kind->traffic(at, wants_dx(node))
                           .bytes(tensor::DataType::f32)
                     : sizeof(float) * static_cast<std::uint64_t>(elements_moved(at.x, at.y) +
                                                                  elements_moved(at.y, at.x));
    }
    return static_cast<std::int64_t>(bytes);
  }

  /// All bits that the last run has written.
  [[nodiscard]] std::vector<float> results() const {
    std::vector<float> all = gradients_;
    for (const auto* tensors : {&values_, &value_gradients_}) {
      for (const tensor::Tensor& tensor : *tensors) {
        all.insert(all.end(), tensor.span().begin(), tensor.span().end());
      }
    }
    return all;
  }

 private:
  static constexpr float rubbish = 1e6F;

  static Lowering lowered(const WholeChain& whole, const Splits& splits) {
    std::vector<LayerSplit> of_all = splits.of_layers;
    of_all.resize(whole.model.layers.size());
    return lower(whole.model, of_all, splits.ranks, whole.values.front().shape().n);
  }

  static std::vector<float> parts_of(const std::vector<Parameter>& parts,
                                     const std::vector<Parameter>& wholes,
                                     std::span<const float> flat) {
    std::vector<float> all;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto whole = flat.subspan(wholes[i].offset, wholes[i].size());
      const std::vector<float> part = part_of_parameter(parts[i], whole);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  [[nodiscard]] std::size_t input_of(std::size_t node) const {
    return lowering_.graph.nodes[node].inputs.front();
  }
  [[nodiscard]] bool wants_dx(std::size_t node) const {
    return input_gradient_ || input_of(node) != model_input;
  }
  [[nodiscard]] Box box_of(ValueId value) const {
    return lowering_.values[value].box_of(rank_.context.rank());
  }
  [[nodiscard]] tensor::Tensor rubbish_for(ValueId value) const {
    tensor::Tensor made(box_of(value).shape(), rank_.context.memory);
    std::ranges::fill(made.span(), rubbish);
    return made;
  }
  // This rank's part of a value, or of its gradient, of the whole chain.
  [[nodiscard]] tensor::Tensor given(const std::vector<tensor::Tensor>& wholes,
                                     ValueId value) const {
    return part_of(wholes[models_value_[value]], box_of(value), rank_.context.memory);
  }
  template <class Flat>
  [[nodiscard]] auto own(std::size_t node, Flat flat) const {
    const auto layer = lowering_.graph.nodes[node].layer;
    return layer ? spans_[*layer].parameters_of(flat) : flat.first(0);
  }
  template <class Call>
  std::int64_t sent_by(Call call) const {
    const auto bytes = [&] {
      const transport::Counters counters = rank_.world.counters();
      return static_cast<std::int64_t>(counters.moved_bytes() + counters.sent_bytes);
    };
    const std::int64_t before = bytes();
    call();
    return bytes() - before;
  }

  void forward(const WholeChain& whole, Sent& sent) {
    values_.clear();
    values_.push_back(given(whole.values, model_input));
    for (std::size_t node = 0; node < kernels_.size(); ++node) {
      values_.push_back(rubbish_for(node + 1));
      const auto parameters = own(node, std::span<const float>(parameters_));
      const auto layer = lowering_.graph.nodes[node].layer;
      const auto statistics =
          layer ? spans_[*layer].statistics_of(std::span(statistics_)) : std::span<float>();
      kernels_[node]->load(parameters);
      sent.forward += sent_by([&] {
        kernels_[node]->forward_training({.x = values_[input_of(node)].view(),
                                          .y = values_[node + 1].view(),
                                          .parameters = parameters},
                                         statistics);
      });
      EXPECT_TRUE(
          agree(values_[node + 1].span(), given(whole.values, node + 1).span(), whole.numbers))
          << "y of node " << node;
    }
  }

  void backward(const WholeChain& whole, Sent& sent) {
    value_gradients_.clear();
    value_gradients_.resize(values_.size());
    value_gradients_.back() = given(whole.value_gradients, values_.size() - 1);
    for (std::size_t node = kernels_.size(); node-- > 0;) {
      const std::size_t input = input_of(node);
      tensor::Tensor& dx = value_gradients_[input];
      if (wants_dx(node)) dx = rubbish_for(input);
      const BackwardOperands operands{.x = values_[input].view(),
                                      .y = values_[node + 1].view(),
                                      .dy = value_gradients_[node + 1].view(),
                                      .dx = wants_dx(node) ? wanted(dx) : tensor::View<float>(),
                                      .parameters = own(node, std::span<const float>(parameters_)),
                                      .gradients = own(node, std::span(gradients_))};
      sent.parameters += sent_by([&] { kernels_[node]->backward_parameters(operands); });
      sent.input += sent_by([&] { kernels_[node]->backward_input(operands); });
      if (!wants_dx(node)) continue;
      EXPECT_TRUE(agree(dx.span(), given(whole.value_gradients, input).span(), whole.numbers))
          << "dx of node " << node;
    }
  }

  // Gradients add up over the ranks that hold the same slice; see slices_in_replica().
  void expect_learned(const WholeChain& whole) {
    const auto count = static_cast<std::size_t>(whole.layout.blocks.size() - 1);  // without "fc"
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<int> colors;
      std::vector<int> keys;
      for (int rank = 0; rank < rank_.communicators.grid().pr; ++rank) {
        colors.push_back(rank % slices_[i]);
        keys.push_back(rank);
      }
      const ParameterBlock& block = layout_.blocks[i];
      const auto part = std::span(gradients_).subspan(block.offset, block.size);
      rank_.communicators.split(colors, keys).allreduce(part).wait();
    }
    const auto expect = [&](const std::vector<Parameter>& parts,
                            const std::vector<Parameter>& wholes, std::span<const float> flat,
                            std::span<const float> mine) {
      for (std::size_t i = 0; i < parts.size() && parts[i].layer() != "fc"; ++i) {
        const auto all = flat.subspan(wholes[i].offset, wholes[i].size());
        EXPECT_TRUE(agree(mine.subspan(parts[i].offset, parts[i].size()),
                          part_of_parameter(parts[i], all), whole.numbers))
            << parts[i].name;
      }
    };
    expect(layout_.parameters, whole.layout.parameters, whole.gradients, gradients_);
    expect(layout_.statistics, whole.layout.statistics, whole.statistics, statistics_);
  }

  GridRank& rank_;
  Lowering lowering_;
  ParameterLayout layout_;
  std::vector<int> slices_;
  std::vector<LayerSpans> spans_;
  bool input_gradient_;
  std::vector<std::unique_ptr<LayerKernel>> kernels_ = {};
  std::vector<ValueId> models_value_ = {model_input};  ///< of each value, that of the model
  std::vector<float> parameters_ = {}, gradients_ = {}, statistics_ = {};
  std::vector<tensor::Tensor> values_ = {}, value_gradients_ = {};
};

/// A chain with what it gives where nothing is split, for whole and for real numbers.
struct Measured {
  explicit Measured(const Chain& chain)
      : whole(chain, chain.exact ? Numbers::whole : Numbers::real), real(chain, Numbers::real) {}

  WholeChain whole;
  WholeChain real;
};

[[nodiscard]] inline std::vector<Measured> measured(const std::vector<Chain>& chains) {
  return {chains.begin(), chains.end()};
}

/// Bytes of one step.
struct Traffic {
  std::int64_t all = 0;   ///< that all ranks have sent
  std::int64_t told = 0;  ///< the same, as the layers say it
  bool even = false;      ///< every rank has sent as much
};

/// Runs the chains on ranks that split their layers so, for real and for whole numbers, and expects
/// what the unsplit layers gave. Returns what each chain has sent.
inline std::vector<Traffic> expect_equal(const std::vector<Measured>& chains, const Splits& splits,
                                         rondo::test::Backend backend = rondo::test::Backend::shm) {
  std::vector<std::atomic<std::int64_t>> sums(chains.size());
  std::vector<std::atomic<std::int64_t>> most(chains.size());
  std::vector<Traffic> traffic(chains.size());
  rondo::test::World(backend, splits.ranks).run([&](transport::World& world) {
    GridRank rank(world, {.pr = splits.ranks}, BatchNormScope::all);
    for (std::size_t i = 0; i < chains.size(); ++i) {
      SCOPED_TRACE("chain " + std::to_string(i) + ", rank " + std::to_string(world.rank()) +
                   " of " + std::to_string(splits.ranks));
      ChainOnRank part(rank, chains[i].real, splits);
      part.run(chains[i].real);
      const std::int64_t sent = part.run(chains[i].whole).all();
      sums[i] += sent;
      for (std::int64_t seen = most[i];
           seen < sent && !most[i].compare_exchange_weak(seen, sent);) {
      }
      if (world.rank() == 0) traffic[i].told = part.told(chains[i].whole);
    }
  });
  for (std::size_t i = 0; i < chains.size(); ++i) {
    traffic[i].all = sums[i];
    traffic[i].even = most[i] * splits.ranks == sums[i];
  }
  return traffic;
}

}  // namespace rondo::train::test
