#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

namespace rondo::train {

/// A kind of layer as [[model.layers]] describes it.
struct DescribedKind {
  std::string_view name;
  std::vector<std::string_view> keys = {};      ///< that it has beside kind, name and from
  std::vector<std::string_view> required = {};  ///< of these
  LayerKind (*make)(const Experiment::Layer& description) = nullptr;
};

/// All kinds, in the order in which messages list them.
[[nodiscard]] std::span<const DescribedKind> described_kinds();

/// The kind of that name; null: there is none.
[[nodiscard]] const DescribedKind* find_kind(std::string_view name);

/// What key `activation` says; `usual` where it says "auto".
[[nodiscard]] tensor::Activation activation_of(const Experiment::Layer& description,
                                               tensor::Activation usual);

}  // namespace rondo::train
