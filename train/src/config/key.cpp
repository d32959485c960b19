#include "config/key.hpp"

#include <cmath>

#include <fmt/format.h>

#include "model/names.hpp"

namespace rondo::train {
namespace {

std::string describe(const Limits& limits) {
  if (std::isfinite(limits.least) && std::isfinite(limits.most)) {
    return fmt::format("must lie in {}{}, {}{}", limits.open_least ? '(' : '[', limits.least,
                       limits.most, limits.open_most ? ')' : ']');
  }
  if (std::isfinite(limits.least)) {
    return fmt::format("must be {} {}", limits.open_least ? "greater than" : "at least",
                       limits.least);
  }
  return "must be finite";
}

bool lies_within(double number, const Limits& limits) {
  if (!std::isfinite(number)) return false;
  const bool above = limits.open_least ? number > limits.least : number >= limits.least;
  const bool below = limits.open_most ? number < limits.most : number <= limits.most;
  return above && below;
}

struct Checker {
  const Limits& limits;

  std::string operator()(const std::string& text) const {
    if (limits.names.empty()) return {};
    for (const std::string& name : limits.names) {
      if (name == text) return {};
    }
    return fmt::format("no such choice '{}'; {}", printable(text), suggest(text, limits.names));
  }

  std::string operator()(double number) const {
    if (lies_within(number, limits)) return {};
    return fmt::format("{} is impossible; {}", number, describe(limits));
  }

  std::string operator()(std::int64_t number) const {
    if (lies_within(static_cast<double>(number), limits)) return {};
    return fmt::format("{} is impossible; {}", number, describe(limits));
  }

  std::string operator()(bool) const { return {}; }

  std::string operator()(const LayerList&) const { return {}; }

  std::string operator()(const std::vector<std::int64_t>& numbers) const {
    if (limits.length > 0 && !numbers.empty() && numbers.size() != limits.length) {
      return fmt::format("has {} numbers; must have {}, or none", numbers.size(), limits.length);
    }
    for (const std::int64_t number : numbers) {
      const std::string problem = (*this)(number);
      if (!problem.empty()) return problem;
    }
    return {};
  }

  std::string operator()(const NumberTable& table) const {
    for (const auto& [key, number] : table) {
      if (key < limits.least_key) {
        return fmt::format("the key {} is impossible; must be at least {}", key, limits.least_key);
      }
      const std::string problem = (*this)(number);
      if (!problem.empty()) return fmt::format("{} = {}", key, problem);
      if (limits.whole && number != std::floor(number)) {
        return fmt::format("{} = {} is impossible; must be an integer", key, number);
      }
    }
    return {};
  }

  std::string operator()(const TextTable& table) const {
    if (limits.text_complaint == nullptr) return {};
    for (const auto& [name, text] : table) {
      const std::string problem = limits.text_complaint(text);
      if (!problem.empty()) {
        return fmt::format("\"{}\" = \"{}\": {}", printable(name), printable(text), problem);
      }
    }
    return {};
  }
};

}  // namespace

std::string Key::full_name() const { return fmt::format("{}.{}", section, name); }

std::string complaint(const Limits& limits, const Value& value) {
  return std::visit(Checker{limits}, value);
}

}  // namespace rondo::train
