// Gather, scatter and alltoallv: parts of any length, over every way between ranks.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <system_error>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/backends.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace rondo::transport::exchange_test {
namespace {

using test::Backend;
using testing::AllOf;
using testing::HasSubstr;
using Counts = std::vector<std::size_t>;

// The value that rank `rank` sends to rank `peer` at place i.
std::int32_t value_of(int rank, int peer, std::size_t i) {
  return rank * 1'000'000 + peer * 10'000 + static_cast<std::int32_t>(i % 9'000);
}

void fill(std::span<std::int32_t> part, int rank, int peer) {
  for (std::size_t i = 0; i < part.size(); ++i) part[i] = value_of(rank, peer, i);
}

testing::AssertionResult holds(std::span<const std::int32_t> part, int rank, int peer) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] == value_of(rank, peer, i)) continue;
    return testing::AssertionFailure() << "element " << i << " of what rank " << rank
                                       << " sends rank " << peer << " is " << part[i];
  }
  return testing::AssertionSuccess();
}

std::size_t sum_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// Some are empty, and some are longer than what any link copies at once.
std::size_t length_of(int from, int to) {
  constexpr std::size_t lengths[] = {3, 0, 1000, 1, 70'000, 17};
  return lengths[static_cast<std::size_t>(5 * from + 3 * to) % std::size(lengths)];
}

class ExchangeTest : public testing::TestWithParam<Backend> {
 protected:
  // All numbers of ranks, with buffers in arenas and in ordinary memory.
  template <typename Body>
  void for_all(Body body) const {
    for (const int ranks : {1, 2, 3, 5}) {
      test::World(GetParam(), ranks).run([&](World& world) {
        body(world.communicator(), &world.arena());
        body(world.communicator(), std::pmr::new_delete_resource());
      });
    }
  }
};

using Buffer = std::pmr::vector<std::int32_t>;

TEST_P(ExchangeTest, GathersAtEveryRoot) {
  for_all([](Communicator& comm, std::pmr::memory_resource* memory) {
    for (int root = 0; root < comm.size(); ++root) {
      for (const std::size_t count : {0U, 1U, 1000U, 100'000U}) {
        if (test::sanitized && count > 1000 && root != comm.size() / 2) continue;
        Buffer in(count, memory);
        Buffer out(comm.rank() == root ? count * static_cast<std::size_t>(comm.size()) : 0, memory);
        fill(in, comm.rank(), root);

        comm.gather(in, std::span(out), root).wait();

        for (int rank = 0; comm.rank() == root && rank < comm.size(); ++rank) {
          EXPECT_TRUE(holds(std::span(out).subspan(count * static_cast<std::size_t>(rank), count),
                            rank, root));
        }
      }
    }
  });
}

TEST_P(ExchangeTest, GathersPartsOfDifferentLengthsInPlace) {
  for_all([](Communicator& comm, std::pmr::memory_resource* memory) {
    const int root = comm.size() - 1;
    Counts counts;
    for (int rank = 0; rank < comm.size(); ++rank) counts.push_back(length_of(rank, root));
    Buffer all(sum_of(counts), memory);
    const std::size_t mine = counts[static_cast<std::size_t>(comm.rank())];
    const bool is_root = comm.rank() == root;
    const std::span<std::int32_t> in =
        is_root ? std::span(all).last(mine) : std::span(all).first(mine);
    fill(in, comm.rank(), root);

    comm.gather(in, is_root ? std::span(all) : std::span<std::int32_t>(), root, counts).wait();

    std::size_t begin = 0;
    for (int rank = 0; is_root && rank < comm.size(); ++rank) {
      const std::size_t count = counts[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(holds(std::span(all).subspan(begin, count), rank, root));
      begin += count;
    }
  });
}

TEST_P(ExchangeTest, ScattersFromEveryRoot) {
  for_all([](Communicator& comm, std::pmr::memory_resource* memory) {
    for (int root = 0; root < comm.size(); ++root) {
      Counts counts;
      for (int rank = 0; rank < comm.size(); ++rank) counts.push_back(length_of(root, rank));
      Buffer in(comm.rank() == root ? sum_of(counts) : 0, memory);
      std::size_t begin = 0;
      for (int rank = 0; comm.rank() == root && rank < comm.size(); ++rank) {
        const std::size_t count = counts[static_cast<std::size_t>(rank)];
        fill(std::span(in).subspan(begin, count), root, rank);
        begin += count;
      }
      Buffer out(counts[static_cast<std::size_t>(comm.rank())], memory);

      comm.scatter(in, std::span(out), root, counts).wait();

      EXPECT_TRUE(holds(out, root, comm.rank()));
    }
  });
}

TEST_P(ExchangeTest, ScattersEqualParts) {
  for_all([](Communicator& comm, std::pmr::memory_resource* memory) {
    constexpr std::size_t count = 1000;
    Buffer in(comm.rank() == 0 ? count * static_cast<std::size_t>(comm.size()) : 0, memory);
    for (int rank = 0; comm.rank() == 0 && rank < comm.size(); ++rank) {
      fill(std::span(in).subspan(count * static_cast<std::size_t>(rank), count), 0, rank);
    }
    Buffer out(count, memory);

    comm.scatter(in, std::span(out), 0).wait();

    EXPECT_TRUE(holds(out, 0, comm.rank()));
  });
}

// Several are under way at once, and others between them.
TEST_P(ExchangeTest, ExchangesPartsOfDifferentLengths) {
  for_all([](Communicator& comm, std::pmr::memory_resource* memory) {
    Counts in_counts;
    Counts out_counts;
    for (int rank = 0; rank < comm.size(); ++rank) {
      in_counts.push_back(length_of(comm.rank(), rank));
      out_counts.push_back(length_of(rank, comm.rank()));
    }
    Buffer in(sum_of(in_counts), memory);
    std::size_t begin = 0;
    for (int rank = 0; rank < comm.size(); ++rank) {
      const std::size_t count = in_counts[static_cast<std::size_t>(rank)];
      fill(std::span(in).subspan(begin, count), comm.rank(), rank);
      begin += count;
    }
    std::vector<Buffer> outs(3, Buffer(sum_of(out_counts), memory));
    std::vector<int> one{1};
    std::vector<Request> requests;
    for (Buffer& out : outs) {
      requests.push_back(comm.alltoallv(in, in_counts, std::span(out), out_counts));
      requests.push_back(comm.allreduce(std::span(one), ReduceOp::max));
    }

    wait_all(requests);

    for (const Buffer& out : outs) {
      begin = 0;
      for (int rank = 0; rank < comm.size(); ++rank) {
        const std::size_t count = out_counts[static_cast<std::size_t>(rank)];
        EXPECT_TRUE(holds(std::span(out).subspan(begin, count), rank, comm.rank()));
        begin += count;
      }
    }
  });
}

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
        try {
          request.wait();
        } catch (const Error&) {  // as soon as the other has told
        }
        return;
      }
      try {
        request.wait();
        ADD_FAILURE() << "nothing was noticed";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::mismatch) << error.what();
        EXPECT_THAT(error.what(), HasSubstr("alltoallv"));
      }
    });
  }
}

TEST_P(ExchangeTest, NoticesDifferentRootsAndCounts) {
  test::World(GetParam(), 2).run([](World& world) {
    Communicator other = world.communicator().dup();
    std::vector<int> in(2);
    std::vector<int> out(4);
    const auto code_of = [](Request request) -> std::error_code {
      try {
        request.wait();
      } catch (const Error& error) {
        return error.code();
      }
      return {};
    };

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

INSTANTIATE_TEST_SUITE_P(Backends, ExchangeTest, testing::ValuesIn([] {
                           std::vector<Backend> all = test::node_backends();
                           all.insert(all.begin(), Backend::shm);
                           return all;
                         }()),
                         [](const auto& backend) { return test::name_of(backend.param); });

TEST(ExchangeArgumentsTest, RefusesWhatDoesNotFit) {
  test::World(2).run([](Communicator& comm) {
    std::vector<int> two(2);
    std::vector<int> four(4);
    const Counts both{2, 2};
    const Counts one{2};
    const auto refused = [](auto call) {
      try {
        static_cast<void>(call());
      } catch (const std::invalid_argument&) {
        return true;
      }
      return false;
    };
    EXPECT_TRUE(refused([&] { return comm.gather(two, std::span(four), 2); }));
    EXPECT_TRUE(refused([&] { return comm.gather(two, std::span(four), comm.rank(), one); }));
    EXPECT_TRUE(refused([&] { return comm.gather(four, std::span(four), comm.rank()); }));
    EXPECT_TRUE(refused([&] { return comm.scatter(four, std::span(two), -1); }));
    EXPECT_TRUE(refused([&] { return comm.scatter(two, std::span(two), comm.rank()); }));
    EXPECT_TRUE(refused([&] { return comm.alltoallv(four, one, std::span(four), both); }));
    EXPECT_TRUE(refused([&] { return comm.alltoallv(two, both, std::span(four), both); }));
    EXPECT_TRUE(refused([&] { return comm.alltoallv(four, both, std::span(four), both); }));
    EXPECT_TRUE(refused([&] {
      const Counts lopsided = comm.rank() == 0 ? Counts{1, 3} : Counts{3, 1};
      std::vector<int> other(4);
      return comm.alltoallv(four, both, std::span(other), lopsided);
    }));
    comm.barrier().wait();
  });
}

}  // namespace
}  // namespace rondo::transport::exchange_test
