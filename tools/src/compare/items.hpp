#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo::tools {

/// One of the things that `rondo compare` compares: a scheme, and settings of it.
struct SchemeItem {
  std::string text = {};                   ///< "k_step:period=16", as the user wrote it
  std::string label = {};                  ///< the same as a folder's name: "k_step-period=16"
  std::vector<std::string> settings = {};  ///< "update.scheme=k_step", "update.period=16"
};

/// Reads "NAME[:KEY=VALUE]...". A key without a dot is one of [update]; colons in quotes and
/// brackets belong to the value. Whether names and keys exist is not looked at. Throws UsageError,
/// also for train.seed, which is not the item's to choose, and for a second scheme.
[[nodiscard]] SchemeItem parse_scheme_item(std::string_view text);

/// The items of several comma-separated lists. Commas in quotes and brackets separate nothing.
/// Throws UsageError, also when two items would share a folder.
[[nodiscard]] std::vector<SchemeItem> parse_scheme_items(const std::vector<std::string>& lists);

}  // namespace rondo::tools
