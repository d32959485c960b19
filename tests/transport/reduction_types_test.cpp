// Every reduction of every type by every collective that reduces, in every protocol and between
// nodes.

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
#include <rondo/transport/element.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"

namespace rondo::transport::reduction_types_test {
namespace {

using test::Memory;

constexpr int ranks = 3;

// Small integers: exact in every type, and so are their sums and products.
int number(int rank, std::size_t element) {
  return static_cast<int>((element * 7 + static_cast<std::size_t>(rank) * 5) % 6);
}

// The number that a rank gives: averages of such numbers are integers, too.
int given(ReduceOp op, int rank, std::size_t element) {
  return op == ReduceOp::avg ? ranks * number(rank, element) : number(rank, element);
}

int joined(ReduceOp op, int a, int b) {
  switch (op) {
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::bit_and:
      return a & b;
    case ReduceOp::bit_or:
      return a | b;
    case ReduceOp::bit_xor:
      return a ^ b;
    default:
      return a + b;
  }
}

int reduced(ReduceOp op, std::size_t element) {
  int result = given(op, 0, element);
  for (int rank = 1; rank < ranks; ++rank) result = joined(op, result, given(op, rank, element));
  return op == ReduceOp::avg ? result / ranks : result;
}

template <typename T>
T as(int value) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    return {static_cast<std::uint16_t>(bits >> 16U)};
  } else if constexpr (std::is_same_v<T, Float16>) {
    return {std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))};
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
bool same(T a, T b) {
  if constexpr (std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float16>) {
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
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = as<T>(given(op, world.rank(), i));
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

using Types =
    testing::Types<float, double, Bfloat16, Float16, std::int8_t, std::int16_t, std::int32_t,
                   std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(ReductionTypesTest, Types);

constexpr ReduceOp all_ops[] = {ReduceOp::sum,    ReduceOp::min,    ReduceOp::max,
                                ReduceOp::prod,   ReduceOp::avg,    ReduceOp::bit_and,
                                ReduceOp::bit_or, ReduceOp::bit_xor};

bool is_for_bits(ReduceOp op) { return op >= ReduceOp::bit_and; }

TYPED_TEST(ReductionTypesTest, ReducesByEveryProtocol) {
  test::World(ranks).run([](World& world) {
    for (const ReduceOp op : all_ops) {
      if (is_for_bits(op) && !is_integer(type_of<TypeParam>())) continue;
      for (const Memory memory : {Memory::arena, Memory::ordinary, Memory::mixed}) {
        for (const std::size_t share : {5U, 10'007U}) {
          TestFixture::reduce_every_way(world, op, memory, share);
        }
      }
    }
  });
}

TYPED_TEST(ReductionTypesTest, ReducesBetweenNodes) {
  for (const test::Backend backend : {test::Backend::shm_nodes, test::Backend::hierarchy}) {
    for (const char* table : {"", "rh:0-max"}) {
      WorldOptions options = test::quick_options();
      options.fabric = test::fabric_of(backend, ranks);
      options.fabric.allreduce = table;
      test::World(ranks, options).run([](World& world) {
        for (const ReduceOp op : all_ops) {
          if (is_for_bits(op) && !is_integer(type_of<TypeParam>())) continue;
          for (const std::size_t share : {5U, 10'007U}) {
            TestFixture::reduce_every_way(world, op, Memory::arena, share);
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace rondo::transport::reduction_types_test
