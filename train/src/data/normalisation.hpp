#pragma once

#include <rondo/train/dataset.hpp>

namespace rondo::train {

// Sets mean and stddev to those of the training pictures. The sums are of integers, and so are
// exact: every rank finds the same bits. A channel without variation gets the deviation 1.
void measure_normalisation(Dataset& dataset);

}  // namespace rondo::train
