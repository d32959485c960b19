// The short forms in which Slurm's variables list nodes and tasks.
//
// A node list is names separated by commas. A name may have ranges in brackets, even several times
// ("rack[1-2]n[01-16]"), whose numbers keep their leading zeros.

#include <algorithm>
#include <charconv>
#include <cstddef>

#include <rondo/transport/error.hpp>

#include "bootstrap/launchers.hpp"
#include "bootstrap/wire.hpp"

namespace rondo::transport::bootstrap {
namespace {

// More nodes than any machine has: a list that is not Slurm's must not fill the memory.
constexpr std::size_t most_nodes = 100'000;

[[noreturn]] void refuse(std::string_view list) {
  throw Error(Errc::bootstrap_failed,
              "bootstrap: '" + printable(list) +
                  "' is no node list of Slurm, such as n[01-03,7]; correct SLURM_STEP_NODELIST");
}

// The whole of `text` as a number from 0 on; -1 when it is not a number.
int number_of(std::string_view text) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && rest == end && number >= 0 ? number : -1;
}

// The next part of `rest` before a comma that stands outside of brackets; removes it from there.
std::string_view take_part(std::string_view& rest) {
  std::size_t end = 0;
  bool inside = false;
  for (; end < rest.size() && (inside || rest[end] != ','); ++end) {
    if (rest[end] == '[') inside = true;
    if (rest[end] == ']') inside = false;
  }
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

std::string padded(int number, std::size_t width) {
  std::string digits = std::to_string(number);
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

// "01-03" is 01, 02, 03; "7" is 7.
std::vector<std::string> expand_range(std::string_view range, std::string_view list) {
  const std::size_t dash = range.find('-');
  const std::string_view from = range.substr(0, dash);
  const int first = number_of(from);
  const int last = dash == std::string_view::npos ? first : number_of(range.substr(dash + 1));
  if (first < 0 || last < first || static_cast<std::size_t>(last - first) > most_nodes) {
    refuse(list);
  }
  std::vector<std::string> numbers;
  for (int number = first; number <= last; ++number) {
    numbers.push_back(padded(number, from.size()));
  }
  return numbers;
}

// One part, by its first brackets; what stands behind them is expanded in the same way.
std::vector<std::string> expand_name(std::string_view name, std::string_view list) {
  const std::size_t open = name.find('[');
  if (open == std::string_view::npos) {
    if (name.empty() || name.find(']') != std::string_view::npos) refuse(list);
    return {std::string(name)};
  }
  const std::size_t close = name.find(']', open);
  if (close == std::string_view::npos) refuse(list);
  const std::string_view behind = name.substr(close + 1);
  const auto ends = behind.empty() ? std::vector<std::string>{""} : expand_name(behind, list);
  std::string_view ranges = name.substr(open + 1, close - open - 1);
  if (ranges.empty()) refuse(list);
  std::vector<std::string> names;
  while (!ranges.empty()) {
    for (const std::string& number : expand_range(take_part(ranges), list)) {
      for (const std::string& end : ends) {
        names.push_back(std::string(name.substr(0, open)) + number + end);
      }
    }
    if (names.size() > most_nodes) refuse(list);
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view list) {
  std::vector<std::string> names;
  std::string_view rest = list;
  if (rest.empty()) refuse(list);
  while (!rest.empty()) {
    const auto more = expand_name(take_part(rest), list);
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

std::vector<int> expand_task_counts(std::string_view text) {
  std::vector<int> counts;
  while (!text.empty()) {
    const std::string_view part = take_part(text);
    const std::size_t open = part.find("(x");
    const int count = number_of(part.substr(0, open));
    int times = 1;
    if (open != std::string_view::npos) {
      if (!part.ends_with(')')) return {};
      times = number_of(part.substr(open + 2, part.size() - open - 3));
    }
    if (count < 0 || times < 1 || static_cast<std::size_t>(times) > most_nodes) return {};
    counts.insert(counts.end(), static_cast<std::size_t>(times), count);
  }
  return counts;
}

}  // namespace rondo::transport::bootstrap
