// The arguments that collectives refuse at the call: sizes, counts and roots that do not fit,
// overlapping buffers, and operations that a type or a collective does not have.

#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/error_text.hpp"
#include "support/world.hpp"

namespace rondo::transport::collective_arguments_test {
namespace {

using Counts = std::vector<std::size_t>;

/// One of two ranks, with 16 integers, of which the calls use parts, and 4 floats.
struct Given {
  Communicator& comm;
  std::span<int> all;
  std::span<float> floats;
  int me;
  std::size_t my_index;

  [[nodiscard]] std::span<int> first(std::size_t count) const { return all.first(count); }
  [[nodiscard]] std::span<int> last(std::size_t count) const { return all.last(count); }
  [[nodiscard]] std::span<int> at(std::size_t place, std::size_t count) const {
    return all.subspan(place, count);
  }
};

struct Refused {
  const char* text;  ///< a part of the message
  Request (*post)(const Given& g);
};

constexpr auto sum = ReduceOp::sum;
constexpr const char* overlap = "`in` and `out` overlap, but not as they do in place";

const Refused refused[] = {
    {"allgather: the rows of `out` have 5 elements, the ranks send 4",
     [](const Given& g) { return g.comm.allgather(g.first(2), g.last(5)); }},
    {"allgather: 3 counts for 2 ranks",
     [](const Given& g) { return g.comm.allgather(g.first(2), g.last(5), Counts{1, 1, 1}); }},
    {"allgather: `in` has rows of 2 elements, counts[",
     [](const Given& g) { return g.comm.allgather(g.first(2), g.last(6), Counts{3, 3}); }},
    // The other rank's share, between the two, and with a count for each rank.
    {overlap,
     [](const Given& g) { return g.comm.allgather(g.at(4 * (1 - g.my_index), 4), g.first(8)); }},
    {overlap, [](const Given& g) { return g.comm.allgather(g.at(2, 4), g.first(8)); }},
    {overlap,
     [](const Given& g) {
       const Counts counts{3, 5};
       return g.comm.allgather(g.at(1, counts[g.my_index]), g.first(8), counts);
     }},
    {"alltoall: 3 elements for 2 ranks; all parts must be equal",
     [](const Given& g) { return g.comm.alltoall(g.first(3), g.last(3)); }},
    {"alltoall: `out` must not be `in`",
     [](const Given& g) { return g.comm.alltoall(g.first(4), g.first(4)); }},
    {"alltoall: `in` has 4 elements, `out` has 5",
     [](const Given& g) { return g.comm.alltoall(g.first(4), g.last(5)); }},
    {"broadcast: root 2 is not one of 2 ranks",
     [](const Given& g) { return g.comm.broadcast(g.first(1), 2); }},
    {"broadcast: root -1 is not one of 2 ranks",
     [](const Given& g) { return g.comm.broadcast(g.first(1), -1); }},
    {"allreduce: `in` has 4 elements, `out` has 3",
     [](const Given& g) { return g.comm.allreduce(g.first(4), g.last(3)); }},
    {overlap, [](const Given& g) { return g.comm.allreduce(g.first(3), g.at(1, 3)); }},
    {"reduce: root 2 is not one of 2 ranks",
     [](const Given& g) { return g.comm.reduce(g.first(4), g.first(4), 2); }},
    {"reduce: root -1 is not one of 2 ranks",
     [](const Given& g) { return g.comm.reduce(g.first(4), g.first(4), -1); }},
    {"reduce: `in` has 4 elements, `out` has 3",
     [](const Given& g) { return g.comm.reduce(g.first(4), g.last(3), g.me); }},
    {"reduce_scatter: the rows of `in` have 4 elements, the ranks receive 6",
     [](const Given& g) { return g.comm.reduce_scatter(g.first(4), g.last(3)); }},
    {"reduce_scatter: 3 counts for 2 ranks",
     [](const Given& g) {
       return g.comm.reduce_scatter(g.first(4), g.last(3), sum, Counts{1, 1, 2});
     }},
    {"reduce_scatter: `out` has rows of 3 elements, counts[",
     [](const Given& g) {
       return g.comm.reduce_scatter(g.first(4), g.last(3), sum, Counts{2, 2});
     }},
    {overlap, [](const Given& g) { return g.comm.reduce_scatter(g.first(4), g.at(1, 2)); }},
    {"allreduce: bit_and is for integers, not for f32",
     [](const Given& g) { return g.comm.allreduce(g.floats, ReduceOp::bit_and); }},
    {"reduce: bit_or is for integers, not for f32",
     [](const Given& g) { return g.comm.reduce(g.floats, g.floats, 0, ReduceOp::bit_or); }},
    {"reduce_scatter: bit_xor is for integers, not for f32",
     [](const Given& g) {
       return g.comm.reduce_scatter(g.floats, g.floats.first(2), ReduceOp::bit_xor);
     }},
    {"gather: root 2 is not one of 2 ranks",
     [](const Given& g) { return g.comm.gather(g.first(2), g.last(4), 2); }},
    {"gather: 1 counts for 2 ranks",
     [](const Given& g) { return g.comm.gather(g.first(2), g.last(4), g.me, Counts{2}); }},
    {"gather: `out` has 4 elements, the ranks send 8",
     [](const Given& g) { return g.comm.gather(g.first(4), g.last(4), g.me); }},
    {"scatter: root -1 is not one of 2 ranks",
     [](const Given& g) { return g.comm.scatter(g.first(4), g.last(2), -1); }},
    {"scatter: `in` has 2 elements, the ranks receive 4",
     [](const Given& g) { return g.comm.scatter(g.first(2), g.last(2), g.me); }},
    {"alltoallv: 1 counts of `in` for 2 ranks",
     [](const Given& g) {
       return g.comm.alltoallv(g.first(4), Counts{2}, g.last(4), Counts{2, 2});
     }},
    {"alltoallv: `in` has 2 elements, its counts say 4",
     [](const Given& g) {
       return g.comm.alltoallv(g.first(2), Counts{2, 2}, g.last(4), Counts{2, 2});
     }},
    {"alltoallv: `out` must not be `in`",
     [](const Given& g) {
       return g.comm.alltoallv(g.first(4), Counts{2, 2}, g.first(4), Counts{2, 2});
     }},
    {"alltoallv: this rank sends itself 2 elements and expects 1",
     [](const Given& g) {
       const Counts lopsided = g.me == 0 ? Counts{1, 3} : Counts{3, 1};
       return g.comm.alltoallv(g.first(4), Counts{2, 2}, g.last(4), lopsided);
     }},
    {"scan: avg is no running reduction",
     [](const Given& g) { return g.comm.scan(g.floats, g.floats, ReduceOp::avg); }},
    {"exscan: `in` has 4 elements, `out` has 3",
     [](const Given& g) { return g.comm.exscan(g.first(4), g.last(3)); }},
};

/// Parameter: the way between the ranks.
class CollectiveArgumentsTest : public testing::TestWithParam<test::Backend> {};

TEST_P(CollectiveArgumentsTest, AreRefusedWithWhatDoesNotFit) {
  test::World(GetParam(), 2).run([](Communicator& comm) {
    std::vector<int> all(16);
    std::vector<float> floats(4);
    const Given given{comm, all, floats, comm.rank(), static_cast<std::size_t>(comm.rank())};

    for (const Refused& row : refused) {
      SCOPED_TRACE(row.text);
      EXPECT_THAT(
          test::error_text<std::invalid_argument>([&] { static_cast<void>(row.post(given)); }),
          testing::HasSubstr(row.text));
    }
    comm.barrier().wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, CollectiveArgumentsTest,
                         testing::Values(test::Backend::shm, test::Backend::shm_nodes),
                         [](const auto& way) { return test::name_of(way.param); });

}  // namespace
}  // namespace rondo::transport::collective_arguments_test
