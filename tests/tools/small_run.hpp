#pragma once

#include <string>

namespace rondo::test {

/// The configuration of a run that takes a second. It ends within [train], so that keys of that
/// table may follow.
inline std::string small_run(int training_images = 128) {
  return R"(
[data]
name = "synthetic"
training = )" +
         std::to_string(training_images) + R"(
test = 32
[model]
name = "lenet5"
[train]
global_batch = 32
)";
}

}  // namespace rondo::test
