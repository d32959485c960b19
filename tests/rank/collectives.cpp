#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "modes.hpp"

namespace rondo::test {
namespace {

using transport::Communicator;
using transport::ReduceOp;
using transport::Request;

struct Reduction {
  ReduceOp op;
  const char* name;
};
constexpr Reduction reductions[] = {
    {ReduceOp::sum, "sum"}, {ReduceOp::min, "min"}, {ReduceOp::max, "max"}};

// The collectives of one communicator, in one kind of memory, on elements of one type.
template <typename T>
class Collectives {
 public:
  Collectives(Communicator& ranks, std::pmr::memory_resource* memory, Checks& checks,
              std::string label)
      : ranks_(ranks), memory_(memory), checks_(checks), label_(std::move(label)) {}

  void allreduce(std::size_t count, const Reduction& reduction) {
    auto data = mine(count);
    ranks_.allreduce(std::span<T>(data), reduction.op).wait();
    check("allreduce in place", reduction, data);

    const auto in = mine(count);
    Array out(count, T{}, memory_);
    ranks_.allreduce(std::span<const T>(in), std::span<T>(out), reduction.op).wait();
    check("allreduce out of place", reduction, out);
  }

  void reduce(std::size_t count, const Reduction& reduction) {
    for (std::size_t root = 0; root < size(); ++root) {
      const auto in = mine(count);
      Array out(rank() == root ? count : 0, T{}, memory_);
      ranks_.reduce(std::span<const T>(in), std::span<T>(out), static_cast<int>(root), reduction.op)
          .wait();
      check("reduce to " + std::to_string(root), reduction, out);
    }
  }

  void reduce_scatter(std::size_t count, const Reduction& reduction) {
    const auto counts = uneven(count);
    const std::size_t begin = offset(counts, rank());
    const auto in = mine(offset(counts, size()));
    Array out(counts[rank()], T{}, memory_);
    ranks_.reduce_scatter(std::span<const T>(in), std::span<T>(out), reduction.op, counts).wait();
    check("reduce_scatter", reduction, out, begin);
  }

  void allgather(std::size_t count) {
    const auto counts = uneven(count);
    const auto in = mine(counts[rank()]);
    Array out(offset(counts, size()), T{}, memory_);
    ranks_.allgather(std::span<const T>(in), std::span<T>(out), counts).wait();
    for (std::size_t r = 0; r < size(); ++r) {
      checks_.elements<T>(text("allgather of rank " + std::to_string(r)),
                          std::span<const T>(out).subspan(offset(counts, r), counts[r]),
                          [r](std::size_t i) { return value_of(r, i); });
    }
  }

  // Three rows of every rank become three long rows.
  void allgather_rows(std::size_t row) {
    constexpr std::size_t rows = 3;
    const auto in = mine(rows * row);
    Array out(rows * row * size(), T{}, memory_);
    ranks_
        .allgather(transport::Strided<const T>(in.data(), rows, row, row),
                   transport::Strided<T>(out.data(), rows, row * size(), row * size()))
        .wait();
    checks_.elements<T>(text("allgather of rows"), out, [&](std::size_t i) {
      const std::size_t column = i % (row * size());
      return value_of(column / row, i / (row * size()) * row + column % row);
    });
  }

  void broadcast(std::size_t count) {
    for (std::size_t root = 0; root < size(); ++root) {
      auto data = rank() == root ? mine(count) : Array(count, T{}, memory_);
      ranks_.broadcast(std::span<T>(data), static_cast<int>(root)).wait();
      checks_.elements<T>(text("broadcast of " + std::to_string(root)), data,
                          [root](std::size_t i) { return value_of(root, i); });
    }
  }

  void alltoall(std::size_t part) {
    const auto in = mine(part * size());
    Array out(part * size(), T{}, memory_);
    ranks_.alltoall(std::span<const T>(in), std::span<T>(out)).wait();
    checks_.elements<T>(text("alltoall"), out, [&](std::size_t i) {
      return value_of(i / part, rank() * part + i % part);
    });
  }

 private:
  using Array = std::pmr::vector<T>;

  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(ranks_.rank()); }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(ranks_.size()); }

  [[nodiscard]] std::string text(const std::string& what) const { return what + label_; }

  [[nodiscard]] Array mine(std::size_t count) const {
    Array array(count, T{}, memory_);
    for (std::size_t i = 0; i < count; ++i) array[i] = to_element<T>(value_of(rank(), i));
    return array;
  }

  // Rank r has count + r elements, but rank 0 none.
  [[nodiscard]] std::vector<std::size_t> uneven(std::size_t count) const {
    std::vector<std::size_t> counts(size());
    for (std::size_t r = 1; r < size(); ++r) counts[r] = count + r;
    return counts;
  }
  static std::size_t offset(const std::vector<std::size_t>& counts, std::size_t rank) {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank),
                           std::size_t{0});
  }

  [[nodiscard]] int reduced(ReduceOp op, std::size_t i) const {
    int result = value_of(0, i);
    for (std::size_t r = 1; r < size(); ++r) {
      const int next = value_of(r, i);
      if (op == ReduceOp::sum) result += next;
      if (op == ReduceOp::min) result = std::min(result, next);
      if (op == ReduceOp::max) result = std::max(result, next);
    }
    return result;
  }

  void check(const std::string& what, const Reduction& reduction, const Array& got,
             std::size_t begin = 0) {
    checks_.elements<T>(text(what + ' ' + reduction.name), got,
                        [&](std::size_t i) { return reduced(reduction.op, begin + i); });
  }

  Communicator& ranks_;
  std::pmr::memory_resource* memory_;
  Checks& checks_;
  std::string label_;
};

template <typename T>
void check_all(Communicator& ranks, std::pmr::memory_resource* memory, std::size_t count,
               Checks& checks, const std::string& label) {
  Collectives<T> collectives(ranks, memory, checks,
                             " of " + std::to_string(count) + ' ' + std::string(label));
  for (const Reduction& reduction : reductions) {
    collectives.allreduce(count, reduction);
    collectives.reduce(count, reduction);
    collectives.reduce_scatter(count, reduction);
  }
  collectives.allgather(count);
  if (count > 0) collectives.allgather_rows(count);
  collectives.broadcast(count);
  if (count > 0) collectives.alltoall(count);
  ranks.barrier().wait();
}

// Even and odd ranks, and all of them, at once; waited for in another order than posted.
void check_disjoint(transport::World& world, Checks& checks) {
  constexpr std::size_t count = 5000;
  Communicator half = world.communicator().split(world.rank() % 2);
  std::vector<std::int32_t> of_half(count, world.rank());
  std::vector<std::int32_t> of_all(count, 1);
  Request first = half.allreduce(std::span(of_half));
  Request second = world.communicator().allreduce(std::span(of_all));
  second.wait();
  first.wait();
  int sum = 0;
  for (int r = world.rank() % 2; r < world.size(); r += 2) sum += r;
  checks.elements<std::int32_t>("allreduce of every other rank", of_half,
                                [sum](std::size_t) { return sum; });
  checks.elements<std::int32_t>("allreduce of all meanwhile", of_all,
                                [&](std::size_t) { return world.size(); });
}

}  // namespace

void check_collectives(transport::World& world, Checks& checks) {
  Communicator& ranks = world.communicator();
  const auto size = static_cast<std::size_t>(world.size());
  for (const bool arena : {true, false}) {
    auto* memory = arena ? static_cast<std::pmr::memory_resource*>(&world.arena())
                         : std::pmr::get_default_resource();
    const std::string where = arena ? "in arenas" : "in ordinary memory";
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, size - 1, size, size + 1,
                                    std::size_t{1000}, std::size_t{40'007}}) {
      check_all<float>(ranks, memory, count, checks, "f32 " + where);
    }
    check_all<double>(ranks, memory, 1000, checks, "f64 " + where);
    check_all<transport::Bfloat16>(ranks, memory, 1000, checks, "bf16 " + where);
    check_all<std::int32_t>(ranks, memory, 1000, checks, "i32 " + where);
    check_all<std::int64_t>(ranks, memory, 1000, checks, "i64 " + where);
    check_all<std::uint8_t>(ranks, memory, 1000, checks, "u8 " + where);
  }
  check_disjoint(world, checks);
}

}  // namespace rondo::test
