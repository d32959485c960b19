#pragma once

// A network of milliseconds, for tests that train it under many configurations.

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/experiment.hpp>

namespace rondo::train::test {

/// Two epochs of four steps, in which two ranks have three samples each.
inline constexpr std::string_view tiny_network = R"(
[data]
name = "synthetic"
shape = [8, 8, 1]
classes = 3
training = 24
test = 6

[model]
name = "custom"
input = [8, 8, 1]
classes = 3
layers = [
  { kind = "convolution", name = "first", filters = 4 },
  { kind = "batch_norm" },
  { kind = "convolution", name = "second", filters = 4, stride = 2 },
  { kind = "batch_norm" },
  { kind = "fully_connected", outputs = 3 },
]

[train]
global_batch = 6
epochs = 2

[optimizer]
learning_rate = 0.05
)";

/// With `settings`, as --set takes them; spaces stand between them.
[[nodiscard]] inline Experiment tiny_experiment(const std::string& settings) {
  std::vector<std::string> list;
  std::istringstream words(settings);
  for (std::string word; words >> word;) list.push_back(word);
  return parse_experiment(tiny_network, "tiny.toml", list);
}

}  // namespace rondo::train::test
