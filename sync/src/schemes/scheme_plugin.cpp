// The settings of schemes in libraries of their own. Names are noted when they are asked for, so
// that a misspelt one is found.

#include <rondo/sync/scheme_plugin.hpp>

#include <charconv>
#include <stdexcept>

namespace rondo::sync {

std::string SchemeSettings::text(std::string_view name, std::string_view otherwise) const {
  asked_for_.emplace(name);
  const auto found = values_.find(std::string(name));
  return found == values_.end() ? std::string(otherwise) : found->second;
}

double SchemeSettings::number(std::string_view name, double otherwise) const {
  const std::string given = text(name, "");
  if (!values_.contains(std::string(name))) return otherwise;
  double value = 0.0;
  const char* const end = given.data() + given.size();
  const auto [last, error] = std::from_chars(given.data(), end, value);
  if (error == std::errc{} && last == end) return value;
  throw std::invalid_argument(std::string(name) + ": \"" + given + "\" is not a number");
}

std::vector<std::string> SchemeSettings::never_asked_for() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : values_) {
    if (!asked_for_.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace rondo::sync
