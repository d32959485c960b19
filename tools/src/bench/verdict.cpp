#include "bench/verdict.hpp"

#include <fmt/format.h>

namespace rondo::tools {

std::vector<std::string> complaints(const std::vector<BenchRow>& rows,
                                    double least_bus_gb_per_second) {
  std::vector<std::string> lines;
  for (const BenchRow& row : rows) {
    const std::string where =
        fmt::format("{} bytes, memory {}, place {}: ", row.bytes, row.memory, row.place);
    if (row.wrong > 0) lines.push_back(where + fmt::format("{} elements are wrong", row.wrong));
    const double found = row.bus_gb_per_second();
    if (found < least_bus_gb_per_second) {
      lines.push_back(where + fmt::format("the bus bandwidth of {:.3f} GB/s is below {} GB/s",
                                          found, least_bus_gb_per_second));
    }
  }
  return lines;
}

}  // namespace rondo::tools
