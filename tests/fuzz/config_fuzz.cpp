// A configuration, and settings of the command line behind it, each after a 0 byte: they are
// refused with a ConfigError, or make an experiment that is written and read back as it is. For
// libFuzzer; the test runs a fixed number of inputs, and begins with the examples.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/experiment.hpp>

// The name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rondo::train;
  std::vector<std::string> parts = {""};
  for (const char character : std::string_view(reinterpret_cast<const char*>(data), size)) {
    if (character == '\0') {
      parts.emplace_back();
    } else {
      parts.back() += character;
    }
  }
  std::string text;
  try {
    text = to_toml(parse_experiment(parts.front(), "fuzz", {parts.begin() + 1, parts.end()}));
  } catch (const ConfigError&) {  // what it is refused with
    return 0;
  }
  if (to_toml(parse_experiment(text, "written")) != text) std::abort();
  return 0;
}
