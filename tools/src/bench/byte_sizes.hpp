#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace rondo::tools {

/// The sizes that "MIN:MAX" means: MIN, 4 MIN, 16 MIN, ... up to MAX. Numbers are bytes and may
/// end in K, M or G (powers of 1024); "SIZE" alone is one size. Each is a whole number of elements
/// of `element_bytes`. Throws UsageError.
[[nodiscard]] std::vector<std::size_t> byte_sizes(std::string_view range,
                                                  std::size_t element_bytes = 4);

}  // namespace rondo::tools
