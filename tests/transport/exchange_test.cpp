// Gather, scatter, alltoallv and coalesced arrays: what ranks compare of the lengths of their
// parts, over every way between ranks, and how a lost rank is told.

#include <cstddef>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/backends.hpp"
#include "support/expect_error.hpp"
#include "support/world.hpp"

namespace rondo::transport::exchange_test {
namespace {

using test::Backend;
using testing::HasSubstr;
using Counts = std::vector<std::size_t>;

std::size_t sum_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::error_code code_of(Request request) {
  const auto error = test::error_of(std::move(request));
  return error ? error->code() : std::error_code();
}

class ExchangeTest : public testing::TestWithParam<Backend> {};

// Rank 0 sends rank 1 another number than that expects: too many, and too few.
TEST_P(ExchangeTest, NamesWhoSendsAnotherNumberThanIsExpected) {
  for (const std::size_t sent : {3U, 1U}) {
    test::World(GetParam(), 2).run([&](Communicator& comm) {
      const bool first = comm.rank() == 0;
      const Counts in_counts = first ? Counts{0, sent} : Counts{2, 0};
      const Counts out_counts = first ? Counts{0, 2} : Counts{2, 0};
      std::vector<int> in(sum_of(in_counts));
      std::vector<int> out(sum_of(out_counts));

      Request request = comm.alltoallv(in, in_counts, std::span(out), out_counts);

      if (first) {
        static_cast<void>(code_of(std::move(request)));  // fails as soon as the other has told
        return;
      }
      EXPECT_THAT(test::expect_error(Errc::mismatch, [&] { request.wait(); }),
                  HasSubstr("alltoallv"));
    });
  }
}

TEST_P(ExchangeTest, NoticesDifferentRootsAndCounts) {
  test::World(GetParam(), 2).run([](World& world) {
    Communicator other = world.communicator().dup();
    std::vector<int> in(2);
    std::vector<int> out(4);

    EXPECT_EQ(code_of(world.communicator().gather(in, std::span(out), world.rank())),
              Errc::mismatch);
    const Counts counts = world.rank() == 0 ? Counts{2, 2} : Counts{1, 2};
    EXPECT_EQ(code_of(other.gather(in, std::span(out), 0, counts)), Errc::mismatch);
  });
}

TEST_P(ExchangeTest, NamesALostRank) {
  test::World(GetParam(), 3).run_without(2, [](World& world) {
    std::vector<int> in(1000);
    std::vector<int> out(3000);
    try {
      world.communicator().gather(in, std::span(out), 0).wait();
      // Between nodes a rank that only sends may be done.
      EXPECT_NE(world.rank(), 0);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::peer_lost);
      EXPECT_EQ(error.detail().rank, 2);
    }
  });
}

// As many elements of coalesced arrays, cut differently.
TEST_P(ExchangeTest, RanksCompareTheLengthsOfCoalescedArrays) {
  test::World(GetParam(), 2).run([](Communicator& comm) {
    std::vector<int> data{1, 2, 3};
    const std::span all(data);
    const std::size_t first = comm.rank() == 0 ? 1 : 2;
    const std::vector<std::span<int>> arrays{all.first(first), all.subspan(first)};

    EXPECT_EQ(code_of(comm.allreduce_coalesced(std::span(arrays))), Errc::mismatch);
    EXPECT_EQ(data, (std::vector{1, 2, 3}));
  });
}

TEST_P(ExchangeTest, NoArraysAreReducedToNone) {
  test::World(GetParam(), 3).run([](Communicator& comm) {
    const std::vector<std::span<int>> none;

    EXPECT_EQ(code_of(comm.allreduce_coalesced(std::span(none))), std::error_code());
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, ExchangeTest, testing::ValuesIn(test::all_backends()),
                         [](const auto& backend) { return test::name_of(backend.param); });

}  // namespace
}  // namespace rondo::transport::exchange_test
