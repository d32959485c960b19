#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/dataset.hpp>

namespace rondo::train {

// One kind of data set: what data.name says, and how it is read. A new kind is one source file that
// defines one of these, and one line in dataset.cpp.
struct DatasetType {
  std::string_view name;
  // What is known of its images without reading a file. Throws ConfigError.
  DatasetShape (*shape)(const Experiment::Data& data);
  // `shape` is what shape() says, with the model's own numbers where it says none. Throws
  // DataError, or ConfigError when a key of [data] is missing or wrong.
  Dataset (*load)(const Experiment::Data& data, const DatasetShape& shape);
};

extern const DatasetType fashion_mnist;
extern const DatasetType cifar10;
extern const DatasetType synthetic;

// The values that data.name may have.
[[nodiscard]] std::vector<std::string> dataset_names();

// Sets mean and stddev to those of the training images. The sums are of integers, and so are
// exact: every rank finds the same bits. A channel without variation gets the deviation 1.
void measure_normalisation(Dataset& dataset);

}  // namespace rondo::train
