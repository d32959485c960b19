// The cuts of halving, and how many ranks a rank talks to, for all ranks of all sizes up to 64.
// simulation_test.cpp shows that every schedule uses every element once.

#include <cstddef>
#include <set>

#include <gtest/gtest.h>

#include "base/cache_line.hpp"
#include "collective/flat/schedules.hpp"

namespace rondo::transport::schedule::schedule_test {
namespace {

constexpr std::size_t largest = 64;

// As many as a ring, whatever the cuts.
TEST(HalvingScheduleTest, SendsEachByteTwiceToAllOthers) {
  for (std::size_t size = 1; size <= largest; ++size) {
    const Folding folding = fold(size);
    for (const std::size_t bytes : {1U, 64U, 1'000U, 100'003U}) {
      std::size_t sent = 0;
      for (std::size_t position = 0; position < folding.positions; ++position) {
        for (std::size_t round = 0; round < folding.rounds(); ++round) {
          const auto [kept, given] = halving_round(bytes, position, round);
          sent += given.size() + kept.size();
        }
      }
      ASSERT_EQ(sent, 2 * (folding.positions - 1) * bytes) << size;
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
