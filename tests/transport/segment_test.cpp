// Segments of shared memory: where their addresses begin.

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <fcntl.h>

#include <gtest/gtest.h>

#include "shm/memory.hpp"

namespace rondo::transport::segment_test {
namespace {

using shm::Descriptor;
using shm::Segment;

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

std::uintptr_t address_of(const Segment& segment) {
  return reinterpret_cast<std::uintptr_t>(segment.base());
}

// Own ones and those of peers: what is at the same offset of any two of them has another hash of
// its address, whatever pages the kernel would have chosen.
TEST(SegmentTest, BeginsWhereNoOtherOfManyDoes) {
  constexpr std::size_t count = 128;
  std::vector<Segment> segments;
  std::set<std::size_t> places;
  while (segments.size() < count) {
    Segment own = Segment::create("segment-test", mebibyte);
    own.grow(4096);
    segments.push_back(
        Segment::map(Descriptor(::fcntl(own.descriptor(), F_DUPFD_CLOEXEC, 0)), mebibyte));
    segments.push_back(std::move(own));
  }
  for (const Segment& segment : segments) {
    EXPECT_EQ(address_of(segment) % (2 * mebibyte), 0U);
    places.insert(address_of(segment) % (256 * mebibyte));
  }
  EXPECT_EQ(places.size(), count);
}

TEST(SegmentTest, IsTheSameMemoryWhereverItIsMapped) {
  Segment own = Segment::create("segment-test", 3 * mebibyte + 1);
  const Segment peers =
      Segment::map(Descriptor(::fcntl(own.descriptor(), F_DUPFD_CLOEXEC, 0)), 3 * mebibyte + 1);
  own.grow(2 * mebibyte);
  own.base()[2 * mebibyte - 1] = std::byte{42};
  EXPECT_EQ(peers.base()[2 * mebibyte - 1], std::byte{42});
  EXPECT_GE(own.reserved(), 3 * mebibyte + 1);
}

}  // namespace
}  // namespace rondo::transport::segment_test
