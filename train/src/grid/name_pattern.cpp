#include "grid/name_pattern.hpp"

namespace rondo::train {

// What follows the last * is tried at every place: a later * makes all earlier choices good.
bool matches(std::string_view pattern, std::string_view name) {
  constexpr std::size_t none = std::string_view::npos;
  std::size_t star = none;     // the last * so far
  std::size_t tried_from = 0;  // where what follows it was tried
  std::size_t p = 0;
  std::size_t n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      tried_from = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != none) {
      p = star + 1;
      n = ++tried_from;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == none;
}

}  // namespace rondo::train
