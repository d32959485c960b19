#pragma once

#include <cstddef>

#include <rondo/sync/update_scheme.hpp>

#include "sync/arrays.hpp"

namespace rondo::sync::test {

/// One iteration of `scheme`, where gradient(element, parameter) is the sum of the gradients of
/// this rank's samples.
template <typename Gradient>
void iterate(UpdateScheme& scheme, Arrays& arrays, const Step& step, Gradient gradient) {
  scheme.begin(step);
  for (std::size_t layer = 0; layer < arrays.layers(); ++layer) scheme.make_ready(layer);
  for (std::size_t i = 0; i < arrays.gradients.size(); ++i) {
    arrays.gradients[i] = gradient(i, arrays.parameters[i]);
  }
  for (std::size_t layer = arrays.layers(); layer-- > 0;) scheme.gradients_final(layer);
  scheme.finish();
}

}  // namespace rondo::sync::test
