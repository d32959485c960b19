// The ranks that talk to each other, for all ranks of all sizes up to 64.

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/cache_line.hpp"
#include "collective/flat/schedules.hpp"

namespace rondo::transport::schedule::schedule_test {
namespace {

constexpr std::size_t largest = 64;

// The ranks whose data went into something, in the order in which they were joined.
using Joined = std::vector<std::size_t>;

Joined join(const Joined& first, const Joined& second) {
  Joined joined = first;
  joined.insert(joined.end(), second.begin(), second.end());
  return joined;
}

Joined run_of(std::size_t first, std::size_t count, std::size_t size) {
  Joined run;
  for (std::size_t i = 0; i < count; ++i) run.push_back((first + i) % size);
  return run;
}

TEST(RingScheduleTest, NeighboursAreEachOthers) {
  for (std::size_t size = 1; size <= largest; ++size) {
    for (std::size_t rank = 0; rank < size; ++rank) {
      EXPECT_EQ(left_of(right_of(rank, size), size), rank);
      EXPECT_EQ(right_of(rank, size), (rank + 1) % size);
    }
  }
}

TEST(RingScheduleTest, ReceivesWhatTheLeftNeighbourSendsAndSendsItOn) {
  for (std::size_t size = 2; size <= largest; ++size) {
    for (std::size_t rank = 0; rank < size; ++rank) {
      for (std::size_t step = 0; step < 2 * ring_half(size); ++step) {
        const RingStep mine = ring_step(rank, size, step);
        ASSERT_EQ(mine.receive_chunk, ring_step(left_of(rank, size), size, step).send_chunk);
        if (step > 0) {
          ASSERT_EQ(mine.send_chunk, ring_step(rank, size, step - 1).receive_chunk);
        }
      }
    }
  }
}

TEST(RingScheduleTest, EndsEachChunksSumAtItsRankAfterAllOthers) {
  for (std::size_t size = 2; size <= largest; ++size) {
    for (std::size_t rank = 0; rank < size; ++rank) {
      ASSERT_EQ(ring_step(rank, size, 0).send_chunk, left_of(rank, size));
      ASSERT_EQ(ring_step(rank, size, ring_half(size) - 1).receive_chunk, rank);
    }
  }
}

TEST(RingScheduleTest, GathersEveryOtherChunkOnce) {
  for (std::size_t size = 2; size <= largest; ++size) {
    for (std::size_t rank = 0; rank < size; ++rank) {
      std::set<std::size_t> chunks{rank};
      for (std::size_t step = ring_half(size); step < 2 * ring_half(size); ++step) {
        chunks.insert(ring_step(rank, size, step).receive_chunk);
      }
      ASSERT_EQ(chunks.size(), size);
    }
  }
}

// Everyone's data after recursive doubling over `size` ranks.
std::vector<Joined> doubled(std::size_t size) {
  const Folding folding = fold(size);
  std::vector<Joined> held(size);
  for (std::size_t rank = 0; rank < size; ++rank) {
    if (folding.role_of(rank) == FoldRole::folded) continue;
    held[rank] = run_of(rank, folding.role_of(rank) == FoldRole::proxy ? 2 : 1, size);
  }
  for (std::size_t round = 0; round < folding.rounds(); ++round) {
    const std::vector<Joined> before = held;
    for (std::size_t rank = 0; rank < size; ++rank) {
      if (folding.role_of(rank) == FoldRole::folded) continue;
      const std::size_t partner = folding.partner_of(rank, round);
      EXPECT_EQ(folding.partner_of(partner, round), rank);
      held[rank] = partner < rank ? join(before[partner], before[rank])
                                  : join(before[rank], before[partner]);
    }
  }
  return held;
}

TEST(DoublingScheduleTest, JoinsAllRanksInOrderOnEveryRank) {
  for (std::size_t size = 1; size <= largest; ++size) {
    const std::vector<Joined> held = doubled(size);
    for (std::size_t rank = 0; rank < size; ++rank) {
      if (fold(size).role_of(rank) == FoldRole::folded) continue;
      ASSERT_EQ(held[rank], run_of(0, size, size)) << "rank " << rank << " of " << size;
    }
  }
}

TEST(DoublingScheduleTest, EveryFoldedRankFollowsItsProxy) {
  for (std::size_t size = 1; size <= largest; ++size) {
    const Folding folding = fold(size);
    ASSERT_EQ(folding.positions + folding.extra, size);
    ASSERT_LT(folding.extra, folding.positions);
    for (std::size_t rank = 0; rank < size; ++rank) {
      if (folding.role_of(rank) == FoldRole::folded) {
        ASSERT_EQ(folding.role_of(rank - 1), FoldRole::proxy);
      } else {
        ASSERT_EQ(folding.rank_at(folding.position_of(rank)), rank);
      }
    }
  }
}

// The inputs that a rank holds for each line of the data in recursive halving: its own and that of
// a rank that folds.
std::vector<std::vector<Joined>> before_halving(std::size_t size, std::size_t lines) {
  const Folding folding = fold(size);
  std::vector<std::vector<Joined>> held(size);
  for (std::size_t rank = 0; rank < size; ++rank) {
    if (folding.role_of(rank) == FoldRole::folded) continue;
    const std::size_t count = folding.role_of(rank) == FoldRole::proxy ? 2 : 1;
    held[rank].assign(lines, run_of(rank, count, size));
  }
  return held;
}

// Calls visit(rank, partner, halves, the partner's halves) for each rank that takes part.
template <typename Visit>
void for_each_half(std::size_t size, std::size_t bytes, std::size_t round, Visit visit) {
  const Folding folding = fold(size);
  for (std::size_t rank = 0; rank < size; ++rank) {
    if (folding.role_of(rank) == FoldRole::folded) continue;
    const std::size_t partner = folding.partner_of(rank, round);
    visit(rank, partner, halving_round(bytes, folding.position_of(rank), round),
          halving_round(bytes, folding.position_of(partner), round));
  }
}

// Halves what `lines` cache lines hold, and gathers it again: the joined ranks of each line.
std::vector<std::vector<Joined>> halved(std::size_t size, std::size_t lines) {
  const std::size_t bytes = lines * cache_line_bytes;
  std::vector<std::vector<Joined>> held = before_halving(size, lines);
  const std::size_t rounds = fold(size).rounds();
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::vector<std::vector<Joined>> before = held;
    for_each_half(size, bytes, round, [&](auto rank, auto partner, auto mine, auto theirs) {
      EXPECT_EQ(mine.kept.begin, theirs.given.begin);
      EXPECT_EQ(mine.kept.end, theirs.given.end);
      for (std::size_t i = mine.kept.begin; i < mine.kept.end; i += cache_line_bytes) {
        const std::size_t line = i / cache_line_bytes;
        const auto& [first, second] = std::minmax(rank, partner);
        held[rank][line] = join(before[first][line], before[second][line]);
      }
      // What is given away is of no use any more, until it comes back.
      for (std::size_t i = mine.given.begin; i < mine.given.end; i += cache_line_bytes) {
        held[rank][i / cache_line_bytes].clear();
      }
    });
  }
  for (std::size_t round = rounds; round-- > 0;) {
    const std::vector<std::vector<Joined>> before = held;
    for_each_half(size, bytes, round, [&](auto rank, auto partner, auto mine, auto /*theirs*/) {
      for (std::size_t i = mine.given.begin; i < mine.given.end; i += cache_line_bytes) {
        held[rank][i / cache_line_bytes] = before[partner][i / cache_line_bytes];
      }
    });
  }
  return held;
}

TEST(HalvingScheduleTest, JoinsAllRanksOfEveryLineInOrderOnEveryRank) {
  for (std::size_t size = 1; size <= largest; ++size) {
    for (const std::size_t lines : {std::size_t{1}, std::size_t{5}, size}) {
      const std::vector<std::vector<Joined>> held = halved(size, lines);
      const std::vector<Joined> all(lines, run_of(0, size, size));
      for (std::size_t rank = 0; rank < size; ++rank) {
        if (fold(size).role_of(rank) == FoldRole::folded) continue;
        ASSERT_EQ(held[rank], all) << "rank " << rank << " of " << size;
      }
    }
  }
}

// As many as a ring, whatever the cuts.
TEST(HalvingScheduleTest, SendsEachByteTwiceToAllOthers) {
  for (std::size_t size = 1; size <= largest; ++size) {
    for (const std::size_t bytes : {1U, 64U, 1'000U, 100'003U}) {
      std::size_t sent = 0;
      for (std::size_t round = 0; round < fold(size).rounds(); ++round) {
        for_each_half(size, bytes, round, [&](auto /*rank*/, auto /*partner*/, auto mine, auto) {
          sent += mine.given.size() + mine.kept.size();
        });
      }
      ASSERT_EQ(sent, 2 * (fold(size).positions - 1) * bytes) << size;
    }
  }
}

// A line more or less in each round.
TEST(HalvingScheduleTest, LeavesEveryPositionAnEvenPart) {
  for (std::size_t size = 2; size <= largest; size *= 2) {
    const std::size_t bytes = 1'000'003;
    for (std::size_t position = 0; position < size; ++position) {
      const Range part = halving_round(bytes, position, fold(size).rounds() - 1).kept;
      ASSERT_EQ(part.begin % cache_line_bytes, 0);
      ASSERT_NEAR(static_cast<double>(part.size()),
                  static_cast<double>(bytes) / static_cast<double>(size), 2.0 * cache_line_bytes);
    }
  }
}

TEST(BinomialScheduleTest, EveryRankButTheRootIsAChildOfItsParentOnce) {
  for (std::size_t size = 1; size <= largest; ++size) {
    for (std::size_t root = 0; root < size; ++root) {
      std::vector<std::size_t> parent_of(size, size);
      for (std::size_t rank = 0; rank < size; ++rank) {
        const Binomial tree(rank, root, size);
        for (std::size_t i = 0; i < tree.children(); ++i) {
          ASSERT_EQ(parent_of[tree.child(i)], size);
          parent_of[tree.child(i)] = rank;
        }
      }
      for (std::size_t rank = 0; rank < size; ++rank) {
        const Binomial tree(rank, root, size);
        ASSERT_EQ(tree.is_root(), rank == root);
        ASSERT_EQ(parent_of[rank], tree.is_root() ? size : tree.parent());
      }
    }
  }
}

Joined subtree(std::size_t rank, std::size_t root, std::size_t size) {
  const Binomial tree(rank, root, size);
  Joined joined{rank};
  for (std::size_t i = 0; i < tree.children(); ++i) {
    joined = join(joined, subtree(tree.child(i), root, size));
  }
  return joined;
}

TEST(BinomialScheduleTest, JoinsRunsOfRanksFromTheRootOn) {
  for (std::size_t size = 1; size <= largest; ++size) {
    for (std::size_t root = 0; root < size; ++root) {
      ASSERT_EQ(subtree(root, root, size), run_of(root, size, size));
    }
  }
}

TEST(DisseminationScheduleTest, LetsEveryoneHearFromAll) {
  for (std::size_t size = 1; size <= largest; ++size) {
    std::vector<std::set<std::size_t>> heard(size);
    for (std::size_t rank = 0; rank < size; ++rank) heard[rank] = {rank};
    for (std::size_t round = 0; round < dissemination_rounds(size); ++round) {
      const std::vector<std::set<std::size_t>> before = heard;
      for (std::size_t rank = 0; rank < size; ++rank) {
        const std::size_t source = dissemination_source(rank, size, round);
        ASSERT_EQ(dissemination_target(source, size, round), rank);
        heard[rank].insert(before[source].begin(), before[source].end());
      }
    }
    for (const std::set<std::size_t>& ranks : heard) ASSERT_EQ(ranks.size(), size);
  }
}

TEST(PairwiseScheduleTest, PairsEveryoneWithEveryoneOnce) {
  for (std::size_t size = 1; size <= largest; ++size) {
    for (std::size_t rank = 0; rank < size; ++rank) {
      std::set<std::size_t> partners;
      for (std::size_t round = 0; round < pairwise_rounds(size); ++round) {
        const std::size_t partner = pairwise_partner(rank, size, round);
        ASSERT_EQ(pairwise_partner(partner, size, round), rank);
        partners.insert(partner);
      }
      ASSERT_EQ(partners.size(), size);
    }
  }
}

// Trees have any root, so a rank has all distances from it.
std::set<std::size_t> partners_of(std::size_t rank, std::size_t size) {
  std::set<std::size_t> partners = {left_of(rank, size), right_of(rank, size)};
  for (std::size_t round = 0; round < dissemination_rounds(size); ++round) {
    partners.insert(dissemination_target(rank, size, round));
    partners.insert(dissemination_source(rank, size, round));
  }
  for (std::size_t root = 0; root < size; ++root) {
    const Binomial tree(rank, root, size);
    if (!tree.is_root()) partners.insert(tree.parent());
    for (std::size_t i = 0; i < tree.children(); ++i) partners.insert(tree.child(i));
  }
  const Folding folding = fold(size);
  if (folding.role_of(rank) == FoldRole::proxy) partners.insert(rank + 1);
  if (folding.role_of(rank) == FoldRole::folded) {
    partners.insert(rank - 1);
  } else {
    for (std::size_t round = 0; round < folding.rounds(); ++round) {
      partners.insert(folding.partner_of(rank, round));
    }
  }
  partners.erase(rank);
  return partners;
}

TEST(PartnersTest, AreNeverMoreThanIsSaid) {
  EXPECT_EQ(most_partners(1), 0);
  EXPECT_EQ(most_partners(4096), 36);
  for (std::size_t size = 1; size <= largest; ++size) {
    for (std::size_t rank = 0; rank < size; ++rank) {
      ASSERT_LE(partners_of(rank, size).size(), most_partners(size)) << rank << " of " << size;
    }
  }
}

}  // namespace
}  // namespace rondo::transport::schedule::schedule_test
