// Messages and collectives of more elements and bytes than 32 bits count. The arrays have all their
// addresses and little memory: the same pages are mapped again and again, but for windows around
// multiples of 2^31. A number that is cut to 32 bits, with a sign or without, leaves a window as it
// was, or fills it with the values of another.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/backends.hpp"
#include "support/world.hpp"

namespace rondo::transport::beyond_32_bits_test {
namespace {

using rondo::test::Backend;

constexpr std::size_t half = std::size_t{1} << 31U;
constexpr std::size_t total = 2 * half + 12'345;
constexpr std::array<std::size_t, 2> shares = {half, total - half};
constexpr std::size_t period = std::size_t{4} << 20U;  // fits a cache
constexpr std::size_t window = std::size_t{64} << 10U;

// In windows a value follows from its index and from `marks`: bit 0 marks every even one, bit 1
// every odd one. Elsewhere it follows from its index within the period. So ranks differ in windows
// only, and a maximum that is taken again and again of the same memory stays what it is.
class LongArray {
 public:
  LongArray() {
    const int memory = ::memfd_create("long-array", 0);
    if (::ftruncate(memory, period + 3 * window) != 0) throw std::runtime_error("no memory");
    base_ = static_cast<std::uint8_t*>(
        ::mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::size_t at = 0; at < mapped; at += period) map(memory, at, period, 0);
    for (std::size_t i = 0; i < 3; ++i) {
      map(memory, window_begin(i), window, period + i * window);
    }
    ::close(memory);
  }

  void clear() const {
    for (std::size_t i = 0; i < 3; ++i) std::fill_n(base_ + window_begin(i), window, 0);
    std::fill_n(base_ + period, period, 0);
  }
  void fill(unsigned marks) const {
    visit([&](std::size_t i) { base_[i] = value(i, marks); });
  }
  // Does it hold what fill() gives from `first` to before `last`, and what clear() gives elsewhere?
  [[nodiscard]] testing::AssertionResult is_filled(unsigned marks, std::size_t first = 0,
                                                   std::size_t last = total) const {
    std::size_t wrong = total;
    visit([&](std::size_t i) {
      const bool is_cleared = in_window(i) && (i < first || i >= last);
      if (base_[i] != (is_cleared ? 0 : value(i, marks))) wrong = std::min(wrong, i);
    });
    if (wrong == total) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "element " << wrong << " is " << int{base_[wrong]};
  }

  [[nodiscard]] std::span<std::uint8_t> all() const { return {base_, total}; }

 private:
  static constexpr std::size_t mapped = (total / period + 1) * period;

  static std::size_t window_begin(std::size_t i) { return i == 0 ? 0 : i * half - window / 2; }
  static bool in_window(std::size_t i) { return i < window || (i + window / 2) % half < window; }
  void map(int memory, std::size_t at, std::size_t bytes, std::size_t from) const {
    if (::mmap(base_ + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory,
               static_cast<off_t>(from)) == MAP_FAILED) {
      throw std::runtime_error("no addresses");
    }
  }
  static std::uint8_t value(std::size_t i, unsigned marks) {
    const std::size_t seed = in_window(i) ? i : i % period;
    const unsigned mark = in_window(i) ? marks >> (i & 1U) & 1U : 0;
    return static_cast<std::uint8_t>(1 + (seed * 0x9e3779b97f4a7c15U >> 40U) % 100 + 100 * mark);
  }
  // Each index in a window, and one for each other byte of memory.
  template <typename Action>
  static void visit(const Action& act) {
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t end = std::min(window_begin(i) + window, total);
      for (std::size_t at = window_begin(i); at < end; ++at) act(at);
    }
    for (std::size_t at = period; at < 2 * period; ++at) act(at);
  }

  std::uint8_t* base_ = nullptr;
};

// The arrays of a rank. They are mapped once: the pages of one are a million.
struct Arrays {
  LongArray in, out;

  [[nodiscard]] static const Arrays& of(const Communicator& comm) {
    static const std::array<Arrays, 2> all;
    const Arrays& mine = all.at(static_cast<std::size_t>(comm.rank()));
    mine.in.clear();
    mine.out.clear();
    return mine;
  }
};

unsigned mark_of(const Communicator& comm) { return 1U << static_cast<unsigned>(comm.rank()); }

// This rank's share of an array lies in it where it lies in the array of all.
std::size_t share_begin(const Communicator& comm) { return comm.rank() == 0 ? 0 : half; }
std::size_t share_end(const Communicator& comm) { return comm.rank() == 0 ? half : total; }
std::span<std::uint8_t> share_of(const LongArray& array, const Communicator& comm) {
  return array.all().subspan(share_begin(comm), share_end(comm) - share_begin(comm));
}

class Beyond32BitsTest : public testing::TestWithParam<Backend> {
 protected:
  template <typename Body>
  static void on_two_ranks(Body body) {
    WorldOptions options;
    options.deadline = std::chrono::minutes(30);  // other programs may have the cores
    rondo::test::World(GetParam(), 2, options).run(body);
  }
};
class CollectiveBeyond32BitsTest : public Beyond32BitsTest {};

TEST_P(Beyond32BitsTest, SendsAMessage) {
  on_two_ranks([](Communicator& comm) {
    const auto& [in, out] = Arrays::of(comm);
    in.fill(1);

    if (comm.rank() == 0) {
      comm.send(std::span<const std::uint8_t>(in.all()), 1).wait();
    } else {
      comm.recv(out.all(), 0).wait();
      EXPECT_TRUE(out.is_filled(1));
    }
  });
}

TEST_P(CollectiveBeyond32BitsTest, Allreduces) {
  on_two_ranks([](Communicator& comm) {
    const auto& [in, out] = Arrays::of(comm);
    in.fill(mark_of(comm));

    comm.allreduce(in.all(), out.all(), ReduceOp::max).wait();

    EXPECT_TRUE(out.is_filled(3));
  });
}

TEST_P(CollectiveBeyond32BitsTest, Reduces) {
  on_two_ranks([](Communicator& comm) {
    const auto& [in, out] = Arrays::of(comm);
    in.fill(mark_of(comm));

    comm.reduce(in.all(), out.all(), 1, ReduceOp::max).wait();

    if (comm.rank() == 1) {
      EXPECT_TRUE(out.is_filled(3));
    }
  });
}

TEST_P(CollectiveBeyond32BitsTest, ReducesAndScatters) {
  on_two_ranks([](Communicator& comm) {
    const auto& [in, out] = Arrays::of(comm);
    in.fill(mark_of(comm));

    comm.reduce_scatter(in.all(), share_of(out, comm), ReduceOp::max, shares).wait();

    EXPECT_TRUE(out.is_filled(3, share_begin(comm), share_end(comm)));
  });
}

TEST_P(CollectiveBeyond32BitsTest, Broadcasts) {
  on_two_ranks([](Communicator& comm) {
    const LongArray& data = Arrays::of(comm).out;
    if (comm.rank() == 1) data.fill(1);

    comm.broadcast(data.all(), 1).wait();

    EXPECT_TRUE(data.is_filled(1));
  });
}

TEST_P(CollectiveBeyond32BitsTest, Allgathers) {
  on_two_ranks([](Communicator& comm) {
    const auto& [in, out] = Arrays::of(comm);
    in.fill(1);

    comm.allgather(share_of(in, comm), out.all(), shares).wait();

    EXPECT_TRUE(out.is_filled(1));
  });
}

TEST_P(CollectiveBeyond32BitsTest, Gathers) {
  on_two_ranks([](Communicator& comm) {
    const auto& [in, out] = Arrays::of(comm);
    in.fill(1);

    comm.gather(share_of(in, comm), out.all(), 0, shares).wait();

    if (comm.rank() == 0) {
      EXPECT_TRUE(out.is_filled(1));
    }
  });
}

TEST_P(CollectiveBeyond32BitsTest, Scatters) {
  on_two_ranks([](Communicator& comm) {
    const auto& [in, out] = Arrays::of(comm);
    in.fill(1);

    comm.scatter(in.all(), share_of(out, comm), 0, shares).wait();

    EXPECT_TRUE(out.is_filled(1, share_begin(comm), share_end(comm)));
  });
}

// Rank 0 sends to both, and rank 1 to none.
TEST_P(CollectiveBeyond32BitsTest, SendsPartsOfAnyLengthToAll) {
  on_two_ranks([](Communicator& comm) {
    const auto& [in, out] = Arrays::of(comm);
    const bool sends = comm.rank() == 0;
    const std::array<std::size_t, 2> to = sends ? shares : std::array<std::size_t, 2>{};
    const std::array from = {shares.at(sends ? 0 : 1), std::size_t{0}};
    in.fill(1);

    comm.alltoallv(in.all().first(sends ? total : 0), to, share_of(out, comm), from).wait();

    EXPECT_TRUE(out.is_filled(1, share_begin(comm), share_end(comm)));
  });
}

std::string backend_name(const testing::TestParamInfo<Backend>& info) {
  return rondo::test::name_of(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, Beyond32BitsTest, testing::ValuesIn(rondo::test::node_backends()),
                         backend_name);
INSTANTIATE_TEST_SUITE_P(All, CollectiveBeyond32BitsTest,
                         testing::Values(Backend::shm, Backend::tcp), backend_name);

}  // namespace
}  // namespace rondo::transport::beyond_32_bits_test
