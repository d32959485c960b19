// Running reductions: scan and exscan, over every way between ranks.

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/backends.hpp"
#include "support/error_text.hpp"
#include "support/world.hpp"

namespace rondo::transport::scan_test {
namespace {

using test::Backend;
using testing::HasSubstr;
using Buffer = std::pmr::vector<std::int64_t>;

std::int64_t value_of(int rank, std::size_t i) {
  return (rank + 1) * 1'000'003 + static_cast<std::int64_t>(i % 977);
}

// The sum over the ranks below `end`.
std::int64_t sum_below(int end, std::size_t i) {
  const std::int64_t of_ranks = std::int64_t{end} * (end + 1) / 2 * 1'000'003;
  return of_ranks + end * static_cast<std::int64_t>(i % 977);
}

testing::AssertionResult is_sum_below(int end, std::span<const std::int64_t> found) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == sum_below(end, i)) continue;
    return testing::AssertionFailure() << "element " << i << " is " << found[i];
  }
  return testing::AssertionSuccess();
}

class ScanTest : public testing::TestWithParam<Backend> {
 protected:
  // All numbers of ranks and lengths, with buffers in arenas and in ordinary memory: the body gets
  // this rank's input.
  template <typename Body>
  void for_all(Body body) const {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      test::World(GetParam(), ranks).run([&](World& world) {
        for (std::pmr::memory_resource* memory :
             {static_cast<std::pmr::memory_resource*>(&world.arena()),
              std::pmr::new_delete_resource()}) {
          for (const std::size_t count : {0U, 1U, 1000U, 70'000U}) {
            Buffer in(count, memory);
            for (std::size_t i = 0; i < count; ++i) in[i] = value_of(world.rank(), i);
            body(world.communicator(), in);
          }
        }
      });
    }
  }
};

TEST_P(ScanTest, SumsUpToTheOwnRank) {
  for_all([](Communicator& comm, Buffer& in) {
    const Buffer before = in;
    Buffer out(in.size(), -1, in.get_allocator());
    comm.scan(in, std::span(out)).wait();
    EXPECT_TRUE(is_sum_below(comm.rank() + 1, out));
    EXPECT_EQ(in, before);

    comm.scan(in, std::span(in)).wait();
    EXPECT_EQ(in, out);
  });
}

TEST_P(ScanTest, WithoutTheOwnRankLeavesTheOutputOfTheFirst) {
  for_all([](Communicator& comm, Buffer& in) {
    const Buffer before = in;
    Buffer out(in.size(), -1, in.get_allocator());
    comm.exscan(in, std::span(out)).wait();
    if (comm.rank() == 0) {
      EXPECT_TRUE(test::all_are(out, -1));
    } else {
      EXPECT_TRUE(is_sum_below(comm.rank(), out));
    }
    EXPECT_EQ(in, before);

    comm.exscan(in, std::span(in)).wait();
    EXPECT_EQ(in, comm.rank() == 0 ? before : out);
  });
}

TEST_P(ScanTest, SeveralAreUnderWayWithOtherCollectives) {
  test::World(GetParam(), 3).run([](World& world) {
    Communicator& comm = world.communicator();
    const std::vector<std::int64_t> mine{world.rank() + 1};
    std::vector<std::int64_t> largest{0};
    std::vector<std::int64_t> product{0};
    std::vector<std::int64_t> sum = mine;
    Request first = comm.scan(mine, std::span(largest), ReduceOp::max);
    Request second = comm.allreduce(std::span(sum));
    Request third = comm.scan(mine, std::span(product), ReduceOp::prod);
    third.wait();
    second.wait();
    first.wait();
    EXPECT_EQ(largest[0], world.rank() + 1);
    EXPECT_EQ(sum[0], 6);
    EXPECT_EQ(product[0], world.rank() == 2 ? 6 : world.rank() + 1);
  });
}

TEST_P(ScanTest, RefusesAveragesAndLengthsThatDiffer) {
  test::World(GetParam(), 2).run([](World& world) {
    std::vector<float> data(4);
    std::vector<float> shorter(3);
    Communicator& comm = world.communicator();
    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                    [&] { comm.scan(data, std::span(data), ReduceOp::avg).wait(); }),
                HasSubstr("avg is no running reduction"));
    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                    [&] { comm.exscan(data, std::span(shorter)).wait(); }),
                HasSubstr("`out` has 3"));
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, ScanTest, testing::ValuesIn([] {
                           std::vector<Backend> all = test::node_backends();
                           all.insert(all.begin(), Backend::shm);
                           return all;
                         }()),
                         [](const auto& backend) { return test::name_of(backend.param); });

}  // namespace
}  // namespace rondo::transport::scan_test
