#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <rondo/train/experiment.hpp>

namespace rondo::train {

// {integer = number, ...}
using NumberTable = std::map<std::int64_t, double>;

// [[model.layers]]
using LayerList = std::vector<Experiment::Layer>;

// What a key of the configuration can hold. A table without entries is read as a NumberTable, an
// array without any as one of integers.
using Value = std::variant<std::string, std::int64_t, double, bool, std::vector<std::int64_t>,
                           NumberTable, TextTable, LayerList>;

// As TOML writes it, so that it reads back to the same value.
[[nodiscard]] std::string to_toml_value(const Value& value);

// The type that `value` has, in words: "an integer".
[[nodiscard]] const char* type_name(const Value& value);

// `text` on one line, with control characters made visible; for messages.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace rondo::train
