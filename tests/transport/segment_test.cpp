// Segments of shared memory: where their addresses begin, and what a failure leaves of them.

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

#include "memory/memory.hpp"
#include "support/error_text.hpp"

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

std::int64_t blocks_of(const Segment& segment) {
  struct stat status{};
  EXPECT_EQ(::fstat(segment.descriptor(), &status), 0);
  return status.st_blocks;
}

// The file cannot become longer than it is made here, so that growing fails half-way.
TEST(SegmentTest, KeepsNothingOfAGrowthThatFailed) {
  Segment own = Segment::create("segment-test", 32 * mebibyte);
  own.grow(mebibyte);
  own.base()[mebibyte - 1] = std::byte{42};
  const std::int64_t before = blocks_of(own);
  ASSERT_EQ(::ftruncate(own.descriptor(), 7 * mebibyte), 0);
  ASSERT_EQ(::fcntl(own.descriptor(), F_ADD_SEALS, F_SEAL_GROW), 0);

  EXPECT_THROW(own.grow(16 * mebibyte), Error);

  EXPECT_EQ(blocks_of(own), before);
  EXPECT_EQ(own.size(), mebibyte);
  EXPECT_EQ(own.base()[mebibyte - 1], std::byte{42});
}

// Pages of addresses.
std::size_t mapped_pages() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages;
  return pages;
}

TEST(SegmentTest, KeepsNoAddressesOfAMappingThatFailed) {
  constexpr std::size_t reserved = std::size_t{1} << 40U;
  const std::size_t before = mapped_pages();

  EXPECT_THROW((void)Segment::map(Descriptor(::open("/dev/null", O_RDWR)), reserved), Error);

  EXPECT_LT(mapped_pages(), before + reserved / 4096);
}

// As under `ulimit -v`: "Cannot allocate memory" alone sends a user to look for memory.
TEST(SegmentTest, NamesTheLimitOfAddresses) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const std::size_t allowed = (mapped_pages() * 4096 / mebibyte + 1024) * mebibyte;
  const rlimit limited{.rlim_cur = allowed, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limited), 0);
  const std::string said = rondo::test::error_text<Error>(
      [] { static_cast<void>(Segment::create("segment-test", 4096 * mebibyte)); });
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);

  EXPECT_EQ(said,
            "shared memory: cannot reserve 4352 MiB of addresses, of which the limit (ulimit -v) "
            "allows " +
                std::to_string(allowed / mebibyte) +
                " MiB in all: Cannot allocate memory: out of shared memory");
}

}  // namespace
}  // namespace rondo::transport::segment_test
