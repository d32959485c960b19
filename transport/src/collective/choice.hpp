#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rondo::transport {

/// How an allreduce runs over links.
enum class AllreduceAlgorithm : std::uint8_t {
  doubling,  ///< "rd": recursive doubling; few messages
  ring,      ///< "ring": few bytes
};

/// Which algorithm an allreduce takes, by its bytes; the same on all ranks.
///
/// As text, "rd:0-16k;ring:16k-max": from the first number of bytes on, up to below the second.
/// Numbers end in k, m or g for powers of 1024; the ranges follow each other from 0 to max.
class AlgorithmTable {
 public:
  /// The default: "rd:0-16k;ring:16k-max".
  AlgorithmTable() noexcept;

  /// Throws std::invalid_argument, which says where `text` is wrong and what is expected.
  [[nodiscard]] static AlgorithmTable parse(std::string_view text);
  [[nodiscard]] std::string print() const;

  [[nodiscard]] AllreduceAlgorithm pick(std::size_t bytes) const noexcept;

 private:
  static constexpr std::size_t most_ranges = 8;
  struct Range {
    AllreduceAlgorithm algorithm = AllreduceAlgorithm::ring;
    std::size_t end = 0;  // bytes; the largest number for the last range
  };

  void add(Range range, std::string_view text);

  std::array<Range, most_ranges> ranges_;
  std::size_t count_ = 0;
};

}  // namespace rondo::transport
