#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/transport/element.hpp>

#include "command.hpp"

namespace rondo::transport {
class Communicator;
}

namespace rondo::tools {

/// The setting of one measurement.
struct BenchSetting {
  transport::Communicator* ranks = nullptr;  ///< who takes part; lent
  std::vector<int> members = {};             ///< their ranks in the World
  std::size_t bytes = 0;
  transport::ElementType type = transport::ElementType::f32;
  transport::ReduceOp reduction = transport::ReduceOp::sum;
  bool in_place = true;
  std::pmr::memory_resource* memory = nullptr;  ///< where buffers lie
  int first = 0;                                ///< point-to-point: the pair of ranks
  int second = 0;
  bool both_ways = false;  ///< bandwidth in both directions at once
};

/// The facts that a measurement's numbers refer to.
struct BenchFacts {
  std::size_t bytes = 0;  ///< as they were cut for the ranks; nccl-tests' "size"
  std::size_t count = 0;  ///< the same in elements
  double bus_factor = 1;  ///< bus bandwidth over algorithm bandwidth, as nccl-tests define it
  int calls = 1;          ///< of one run(): what its time is divided by
};

/// An operation to be measured, with its buffers. All ranks make the same, and call the same.
class BenchOperation {
 public:
  BenchOperation() = default;
  BenchOperation(const BenchOperation&) = delete;
  BenchOperation& operator=(const BenchOperation&) = delete;
  virtual ~BenchOperation() = default;

  [[nodiscard]] virtual BenchFacts facts() const = 0;

  /// Writes the input, as backward does before a reduction.
  virtual void rewrite() {}
  /// Posts and waits.
  virtual void run() = 0;
  /// Reads the output, as an optimizer does after a reduction.
  virtual void read_back() {}

  /// Makes all buffers wrong.
  virtual void spoil() {}
  /// This rank's wrong elements after spoil(), rewrite() and run().
  [[nodiscard]] virtual std::int64_t count_wrong() = 0;
};

/// Calls `make` with a T{} of the element type that `type` names.
template <class Make>
[[nodiscard]] std::unique_ptr<BenchOperation> with_type(transport::ElementType type, Make make) {
  switch (type) {
    case transport::ElementType::f64:
      return make(double{});
    case transport::ElementType::bf16:
      return make(transport::Bfloat16{});
    case transport::ElementType::f16:
      return make(transport::Float16{});
    case transport::ElementType::i32:
      return make(std::int32_t{});
    case transport::ElementType::i64:
      return make(std::int64_t{});
    case transport::ElementType::u8:
      return make(std::uint8_t{});
    case transport::ElementType::i8:
      return make(std::int8_t{});
    case transport::ElementType::i16:
      return make(std::int16_t{});
    case transport::ElementType::u16:
      return make(std::uint16_t{});
    case transport::ElementType::u32:
      return make(std::uint32_t{});
    case transport::ElementType::u64:
      return make(std::uint64_t{});
    default:
      return make(float{});
  }
}

/// `Operation<T>` for the type that `setting` names.
template <template <typename> typename Operation>
[[nodiscard]] std::unique_ptr<BenchOperation> make_typed(const BenchSetting& setting) {
  return with_type(setting.type,
                   [&]<class T>(T) { return std::make_unique<Operation<T>>(setting); });
}

/// Ranks as a grid, row by row, as square as their number allows.
struct ProcessGrid {
  int rows = 1;
  int columns = 1;

  /// A grid of `ranks` in total: rows is the largest divisor that does not exceed the square root.
  [[nodiscard]] static ProcessGrid of(int ranks) noexcept {
    ProcessGrid grid{.rows = 1, .columns = ranks};
    for (int rows = 2; rows * rows <= ranks; ++rows) {
      if (ranks % rows == 0) grid = {.rows = rows, .columns = ranks / rows};
    }
    return grid;
  }

  /// The rank `down` rows below and `right` columns beside `rank`; -1 beyond the edge.
  [[nodiscard]] int neighbour(int rank, int down, int right) const noexcept {
    const int row = rank / columns + down;
    const int column = rank % columns + right;
    const bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
    return inside ? row * columns + column : -1;
  }
};

/// Which of its two forms an operation has.
enum class BenchPlaces { in, out, both };

/// The ranks that take part in an operation.
enum class BenchRanks {
  all,
  pair,    ///< two; the others wait
  groups,  ///< all, in disjoint groups at the same time
};

/// One subcommand of `rondo bench`.
struct OperationKind {
  std::string_view name;
  std::string_view summary;
  std::string_view sizes;  ///< by default; empty: it has no size
  std::size_t most_bytes;  ///< that it can do; 0: any number
  BenchPlaces places;
  BenchRanks ranks;
  bool reduces;
  std::unique_ptr<BenchOperation> (*make)(const BenchSetting& setting);
};

/// All of them, in the order in which help lists them.
[[nodiscard]] std::span<const OperationKind> operation_kinds();

/// The one of this name. Throws UsageError.
[[nodiscard]] const OperationKind& operation_kind(std::string_view name);

/// "f32", ...; "sum", ...: the names of types and reductions in options and results.
extern const Choices<transport::ElementType> element_types;
extern const Choices<transport::ReduceOp> reductions;

// One function per operation.
[[nodiscard]] std::unique_ptr<BenchOperation> make_allgather(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_allreduce(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_alltoall(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_alltoallv(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_bandwidth(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_barrier(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_broadcast(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_coalesced(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_exscan(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_gather(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_halo(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_latency(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_reduce(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_reduce_scatter(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_scan(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_scatter(const BenchSetting& setting);
[[nodiscard]] std::unique_ptr<BenchOperation> make_token(const BenchSetting& setting);

/// `value` as an element. Integers from 0 to 256 are exact in every type but those of one byte,
/// which wrap around, as their sums do.
template <transport::Element T>
[[nodiscard]] T element_of(int value) noexcept {
  if constexpr (std::same_as<T, transport::Bfloat16>) {
    return {
        static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16U)};
  } else if constexpr (std::same_as<T, transport::Float16>) {
    return {std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))};
  } else {
    return static_cast<T>(value);
  }
}

/// Integers that repeat with a prime period, so that data which lands a power of two from
/// where it belongs is seen to be wrong, and which are exact in every type and in every order of
/// summation.
template <transport::Element T>
class Pattern {
 public:
  static constexpr std::size_t period = 251;

  /// The input of `rank` to an operation that moves data: different from that of other ranks.
  [[nodiscard]] static Pattern moved(int rank) {
    return Pattern([rank](int i) { return (i + 31 * rank) % static_cast<int>(period); });
  }

  /// The input of `rank`, one of `ranks`, to a reduction: so small that a bf16 holds the result.
  [[nodiscard]] static Pattern given(int rank, int ranks = 1,
                                     transport::ReduceOp op = transport::ReduceOp::sum) {
    return Pattern([=](int i) { return contribution(rank, ranks, op, i); });
  }

  /// The result of reducing given() of `members`, some of `ranks`.
  [[nodiscard]] static Pattern reduced(const std::vector<int>& members, int ranks,
                                       transport::ReduceOp op) {
    return Pattern([&](int i) {
      int result = contribution(members.front(), ranks, op, i);
      for (std::size_t k = 1; k < members.size(); ++k) {
        result = joined(op, result, contribution(members[k], ranks, op, i));
      }
      return op == transport::ReduceOp::avg ? result / static_cast<int>(members.size()) : result;
    });
  }

  /// Writes elements [offset, offset + data.size()) of the pattern.
  void fill(std::span<T> data, std::size_t offset = 0) const noexcept {
    for (std::size_t done = 0; done < data.size();) {
      const std::span<const T> part = part_at(offset + done, data.size() - done);
      std::memcpy(data.data() + done, part.data(), part.size_bytes());
      done += part.size();
    }
  }

  /// How many of `data` differ from elements [offset, offset + data.size()), bit for bit.
  [[nodiscard]] std::int64_t count_wrong(std::span<const T> data,
                                         std::size_t offset = 0) const noexcept {
    std::int64_t wrong = 0;
    for (std::size_t done = 0; done < data.size();) {
      const std::span<const T> part = part_at(offset + done, data.size() - done);
      const T* found = data.data() + done;
      if (std::memcmp(found, part.data(), part.size_bytes()) != 0) {
        for (std::size_t i = 0; i < part.size(); ++i) {
          if (std::memcmp(found + i, &part[i], sizeof(T)) != 0) ++wrong;
        }
      }
      done += part.size();
    }
    return wrong;
  }

 private:
  static constexpr int contributing_ranks = 64;

  template <typename Value>
  explicit Pattern(Value value) {
    for (std::size_t i = 0; i < period; ++i) values_[i] = element_of<T>(value(static_cast<int>(i)));
  }

  // Sums are at most 3 * 64, products at most 2^8, below what u8 and bf16 can hold. For avg all
  // give as much but for pairs of ranks, of which one gives more and the other as much less: so the
  // average is an integer.
  [[nodiscard]] static int contribution(int rank, int ranks, transport::ReduceOp op, int i) {
    using enum transport::ReduceOp;
    if (op == avg) {
      const bool paired = rank / 2 * 2 + 1 < ranks;
      return paired ? 1 + (rank % 2 == 0 ? i % 2 : -(i % 2)) : 1;
    }
    const bool now_and_then = (i + rank) % 8 == 0;
    if (op == prod) return now_and_then && rank < contributing_ranks ? 2 : 1;
    if (op == bit_and) return now_and_then ? 1 + i % 2 : 3;
    return rank < contributing_ranks ? (i + i / 7 + rank) & 3 : 0;
  }

  [[nodiscard]] static int joined(transport::ReduceOp op, int a, int b) {
    switch (op) {
      case transport::ReduceOp::min:
        return std::min(a, b);
      case transport::ReduceOp::max:
        return std::max(a, b);
      case transport::ReduceOp::prod:
        return a * b;
      case transport::ReduceOp::bit_and:
        return a & b;
      case transport::ReduceOp::bit_or:
        return a | b;
      case transport::ReduceOp::bit_xor:
        return a ^ b;
      default:
        return a + b;
    }
  }

  [[nodiscard]] std::span<const T> part_at(std::size_t position, std::size_t most) const noexcept {
    const std::size_t begin = position % period;
    return {values_.data() + begin, std::min(most, period - begin)};
  }

  std::array<T, period> values_ = {};
};

/// Makes every element one that no Pattern has.
template <transport::Element T>
void spoil(std::span<T> data) noexcept {
  std::ranges::fill(data, element_of<T>(255));
}

/// Reads every byte of `data`; the result keeps the compiler from leaving it out.
template <transport::Element T>
[[nodiscard]] std::uint64_t read_all(std::span<const T> data) noexcept {
  std::uint64_t sum = 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
  std::size_t i = 0;
  for (; i + sizeof(std::uint64_t) <= data.size_bytes(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, sizeof word);
    sum += word;
  }
  for (; i < data.size_bytes(); ++i) sum += static_cast<std::uint64_t>(bytes[i]);
  return sum;
}

}  // namespace rondo::tools
