// The list of all kinds of layers. A new kind is a source of this folder and a line below: the
// source defines describe_NAME(), which says how a configuration describes a layer of the kind, and
// make_layer_type(), which makes it from its numbers. Nothing else has to know of it: all other
// sources ask the LayerType.

#include "layers/layer_type.hpp"

#include <algorithm>

namespace rondo::train {

// Each stands in the source of its kind.
#define RONDO_LAYER_KINDS(kind)                                              \
  kind(convolution) kind(batch_norm) kind(max_pooling) kind(average_pooling) \
      kind(global_average_pooling) kind(fully_connected)

#define RONDO_DECLARE_KIND(name) DescribedKind describe_##name();
#define RONDO_CALL_KIND(name) describe_##name(),

RONDO_LAYER_KINDS(RONDO_DECLARE_KIND)

std::span<const DescribedKind> described_kinds() {
  static const std::vector<DescribedKind> kinds = {RONDO_LAYER_KINDS(RONDO_CALL_KIND)};
  return kinds;
}

const DescribedKind* find_kind(std::string_view name) {
  const auto kinds = described_kinds();
  const auto found = std::ranges::find(kinds, name, &DescribedKind::name);
  return found == kinds.end() ? nullptr : &*found;
}

tensor::Activation activation_of(const Experiment::Layer& description, tensor::Activation usual) {
  if (description.activation == "auto") return usual;
  return description.activation == "relu" ? tensor::Activation::relu : tensor::Activation::none;
}

}  // namespace rondo::train
