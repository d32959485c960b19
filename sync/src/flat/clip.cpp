#include "flat/clip.hpp"

#include <cmath>

namespace rondo::sync::flat {

double clip_factor(double squared_norm, double scale, double max_norm) noexcept {
  const double norm = scale * std::sqrt(squared_norm);
  return max_norm > 0.0 && norm > max_norm ? max_norm / norm : 1.0;
}

}  // namespace rondo::sync::flat
