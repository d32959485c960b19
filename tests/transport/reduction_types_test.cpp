// Every reduction of every type by every collective that reduces, in every protocol.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/world.hpp"

namespace rondo::transport::reduction_types_test {
namespace {

using test::Memory;

constexpr int ranks = 3;

// Small integers: exact in every type, and so are their sums.
int number(int rank, std::size_t element) {
  return static_cast<int>((element * 7 + static_cast<std::size_t>(rank) * 5) % 11);
}

int reduced(ReduceOp op, std::size_t element) {
  int result = number(0, element);
  for (int rank = 1; rank < ranks; ++rank) {
    const int next = number(rank, element);
    result = op == ReduceOp::sum   ? result + next
             : op == ReduceOp::min ? std::min(result, next)
                                   : std::max(result, next);
  }
  return result;
}

template <typename T>
T as(int value) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    return {static_cast<std::uint16_t>(bits >> 16U)};
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
bool same(T a, T b) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    return a.bits == b.bits;
  } else {
    return a == b;
  }
}

template <typename T>
class ReductionTypesTest : public testing::Test {
 protected:
  static void expect_reduced(std::span<const T> result, ReduceOp op, std::size_t first) {
    for (std::size_t i = 0; i < result.size(); ++i) {
      ASSERT_TRUE(same(result[i], as<T>(reduced(op, first + i))))
          << "element " << i << ", reduction " << static_cast<int>(op);
    }
  }

  static void reduce_every_way(World& world, ReduceOp op, Memory memory, std::size_t share) {
    const auto me = static_cast<std::size_t>(world.rank());
    std::pmr::vector<T> in(ranks * share, test::resource(world, memory));
    std::pmr::vector<T> out(in.size(), test::resource(world, memory));
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = as<T>(number(world.rank(), i));
    const auto part = std::span(out).first(share);
    Communicator& comm = world.communicator();

    comm.allreduce(in, std::span(out), op).wait();
    expect_reduced(out, op, 0);
    comm.reduce_scatter(in, part, op).wait();
    expect_reduced(part, op, me * share);
    comm.reduce(in, std::span(out), 1, op).wait();
    if (world.rank() == 1) expect_reduced(out, op, 0);
  }
};

using Types = testing::Types<float, double, Bfloat16, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(ReductionTypesTest, Types);

TYPED_TEST(ReductionTypesTest, ReducesInEveryRegime) {
  test::World(ranks).run([](World& world) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
      for (const Memory memory : {Memory::arena, Memory::ordinary, Memory::mixed}) {
        for (const std::size_t share : {5U, 10'007U}) {
          TestFixture::reduce_every_way(world, op, memory, share);
        }
      }
    }
  });
}

}  // namespace
}  // namespace rondo::transport::reduction_types_test
