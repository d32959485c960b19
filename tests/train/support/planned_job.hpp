#pragma once

// A network and a job for tests of the planner's parts.

#include <cstdint>

#include <rondo/train/model.hpp>
#include <rondo/train/plan.hpp>

namespace rondo::train::test {

inline ConvolutionLayer convolution(std::int64_t filters, std::int64_t kernel = 3,
                                    std::int64_t stride = 1) {
  return {.filters = filters, .kernel = kernel, .stride = stride, .padding = kernel / 2};
}

/// Few enough layers to try all splits.
inline Model chain() {
  return {.name = "chain",
          .input = {1, 16, 16, 3},
          .classes = 64,
          .layers = {{"conv1", convolution(32, 5), {0}},
                     {"pool", PoolingLayer{}, {1}},
                     {"conv2", convolution(64), {2}},
                     {"conv3", convolution(64), {3}},
                     {"fc", FullyConnectedLayer{.outputs = 64}, {4}}}};
}

/// All links are alike.
inline PlanOptions job(int ranks, std::int64_t batch, double alpha = 1e-5, double bandwidth = 1e9) {
  const LinkCost link{.alpha_seconds = alpha, .bandwidth = bandwidth};
  return {.ranks = ranks, .batch = batch, .fabric = link, .node = link};
}

}  // namespace rondo::train::test
