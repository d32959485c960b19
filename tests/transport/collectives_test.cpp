// The promises of every collective to its callers inside a node: the exact result, and that all
// other memory stays as it was; also when it is repeated, when several are pending, and when a peer
// is lost. One suite for all collectives and all ways to call them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <optional>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/world.hpp"

namespace rondo::transport::collectives_test {
namespace {

using test::Memory;
using testing::Combine;
using testing::Values;
using testing::ValuesIn;

using Ints = std::pmr::vector<std::int32_t>;

enum class Collective { allreduce, reduce, reduce_scatter, allgather, broadcast, alltoall };

// How the ranks' shares are cut: all equal; rank 0 has none and the others one element more each;
// one rank has all; uneven columns of rows with gaps between them.
enum class Shares { equal, uneven, one_rank, rows };

// Where the result goes.
enum class Output {
  apart,     // into a buffer of its own
  in_place,  // into the input
  mixed,     // on even ranks into the input
  ordinary,  // into ordinary memory, wherever the input lies
};

// A way to call a collective.
struct Call {
  const char* name;
  Collective collective;
  Output output = Output::apart;
  Shares shares = Shares::equal;
};
void PrintTo(const Call& call, std::ostream* out) { *out << call.name; }

const std::vector<Call> calls{
    {"Allreduce", Collective::allreduce},
    {"AllreduceInPlace", Collective::allreduce, Output::in_place},
    {"AllreduceInPlaceOnSomeRanks", Collective::allreduce, Output::mixed},
    {"AllreduceIntoOrdinaryMemory", Collective::allreduce, Output::ordinary},
    {"Reduce", Collective::reduce},
    {"ReduceInPlace", Collective::reduce, Output::in_place},
    {"ReduceIntoOrdinaryMemory", Collective::reduce, Output::ordinary},
    {"ReduceScatter", Collective::reduce_scatter},
    {"ReduceScatterInPlace", Collective::reduce_scatter, Output::in_place},
    {"ReduceScatterOfUnevenShares", Collective::reduce_scatter, Output::apart, Shares::uneven},
    {"ReduceScatterForOneRank", Collective::reduce_scatter, Output::apart, Shares::one_rank},
    {"ReduceScatterOfRows", Collective::reduce_scatter, Output::apart, Shares::rows},
    {"Allgather", Collective::allgather},
    {"AllgatherInPlace", Collective::allgather, Output::in_place},
    {"AllgatherOfUnevenShares", Collective::allgather, Output::apart, Shares::uneven},
    {"AllgatherOfRows", Collective::allgather, Output::apart, Shares::rows},
    {"Broadcast", Collective::broadcast, Output::in_place},
    {"Alltoall", Collective::alltoall},
};

// Columns of the rows of a buffer, which has gaps between its rows and margins around them.
class View {
 public:
  View(Ints& data, std::size_t rows, std::size_t first, std::size_t columns, std::size_t stride)
      : data_(&data), rows_(rows), first_(margin + first), columns_(columns), stride_(stride) {}

  [[nodiscard]] std::size_t size() const { return rows_ * columns_; }
  // Calls visit(row, column, index within the buffer) for all elements, row by row.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::size_t row = 0; row < rows_; ++row) {
      for (std::size_t column = 0; column < columns_; ++column) {
        visit(row, column, first_ + row * stride_ + column);
      }
    }
  }
  [[nodiscard]] const Ints& data() const { return *data_; }
  [[nodiscard]] std::span<std::int32_t> dense() const {
    return std::span(*data_).subspan(first_, size());
  }
  [[nodiscard]] Strided<std::int32_t> rows() const {
    return {data_->data() + first_, rows_, columns_, stride_};
  }
  [[nodiscard]] Strided<const std::int32_t> input_rows() const {
    return {data_->data() + first_, rows_, columns_, stride_};
  }

  static constexpr std::size_t margin = 3;

 private:
  Ints* data_;
  std::size_t rows_;
  std::size_t first_;
  std::size_t columns_;
  std::size_t stride_;
};

std::size_t sum_of(const std::vector<std::size_t>& counts, std::size_t ranks) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(ranks),
                         std::size_t{0});
}

// One rank's buffers for a call, and what must be in them afterwards.
class Buffers {
 public:
  Buffers(World& world, const Call& call, Memory memory, std::size_t elements, int root)
      : call_(call),
        me_(static_cast<std::size_t>(world.rank())),
        ranks_(static_cast<std::size_t>(world.size())),
        elements_(elements),
        root_(static_cast<std::size_t>(root)),
        counts_(counts()),
        first_(test::resource(world, memory)),
        second_(call.output == Output::ordinary ? std::pmr::get_default_resource()
                                                : test::resource(world, memory)) {
    const bool shares =
        call.collective == Collective::reduce_scatter || call.collective == Collective::allgather;
    const std::size_t whole = shares ? sum_of(counts_, ranks_) : whole_elements();
    whole_ = whole;
    before_ = shares ? sum_of(counts_, me_) : 0;
    const std::size_t in = call.collective == Collective::allgather ? counts_[me_] : whole;
    const std::size_t out = call.collective == Collective::reduce_scatter ? counts_[me_] : whole;
    const bool in_place =
        call.output == Output::in_place || (call.output == Output::mixed && me_ % 2 == 0);
    // In place the larger side is the buffer, and the other one a part of it.
    first_.assign(rows() * (std::max(in_place ? whole : in, in) + gap()) + 2 * View::margin, -1);
    if (in_place) {
      in_.emplace(first_, rows(), in < whole ? before_ : 0, in, whole + gap());
      out_.emplace(first_, rows(), out < whole ? before_ : 0, out, whole + gap());
    } else {
      second_.assign(rows() * (out + gap()) + 2 * View::margin, -1);
      in_.emplace(first_, rows(), 0, in, in + gap());
      out_.emplace(second_, rows(), 0, out, out + gap());
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // Other values every time.
  void fill(std::size_t round) {
    round_ = round;
    std::size_t next = 0;
    in_->for_each(
        [&](std::size_t, std::size_t, std::size_t at) { first_[at] = value(me_, next++); });
    expected_first_.assign(first_.begin(), first_.end());
    expected_second_.assign(second_.begin(), second_.end());
  }

  [[nodiscard]] Request post(Communicator& comm) {
    const bool counted = call_.shares != Shares::equal;
    const std::span<const std::size_t> counts =
        counted ? std::span<const std::size_t>(counts_) : std::span<const std::size_t>();
    switch (call_.collective) {
      case Collective::allreduce:
        return comm.allreduce(in_->dense(), out_->dense());
      case Collective::reduce:
        return comm.reduce(in_->dense(), out_->dense(), static_cast<int>(root_));
      case Collective::reduce_scatter:
        return comm.reduce_scatter(in_->input_rows(), out_->rows(), ReduceOp::sum, counts);
      case Collective::allgather:
        return comm.allgather(in_->input_rows(), out_->rows(), counts);
      case Collective::broadcast:
        return comm.broadcast(out_->dense(), static_cast<int>(root_));
      case Collective::alltoall:
        return comm.alltoall(in_->dense(), out_->dense());
    }
    throw std::logic_error("unknown collective");
  }

  // The result, the input where it is not the result, the gaps and the margins.
  void expect_result() {
    auto& expected = &out_->data() == &first_ ? expected_first_ : expected_second_;
    const bool receives = call_.collective != Collective::reduce || me_ == root_;
    if (receives) {
      out_->for_each([&](std::size_t row, std::size_t column, std::size_t at) {
        expected[at] = result(row, column);
      });
    }
    expect_equal(first_, expected_first_);
    expect_equal(second_, expected_second_);
  }

 private:
  // A row of a share has about four elements.
  [[nodiscard]] std::size_t rows() const {
    return call_.shares == Shares::rows ? (elements_ + 3) / 4 : 1;
  }
  [[nodiscard]] std::size_t gap() const { return call_.shares == Shares::rows ? 2 : 0; }
  [[nodiscard]] std::size_t whole_elements() const {
    return call_.collective == Collective::alltoall ? elements_ * ranks_ : elements_;
  }
  [[nodiscard]] std::vector<std::size_t> counts() const {
    std::vector<std::size_t> counts(ranks_, elements_);
    const std::size_t unit = call_.shares == Shares::rows ? 3 : elements_;
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (call_.shares == Shares::one_rank) counts[r] = r == ranks_ / 2 ? elements_ : 0;
      if (call_.shares == Shares::uneven || call_.shares == Shares::rows) {
        counts[r] = r == 0 ? 0 : unit + r;
      }
    }
    return counts;
  }

  // Element i of what `rank` sends.
  [[nodiscard]] std::int32_t value(std::size_t rank, std::size_t i) const {
    return static_cast<std::int32_t>(rank * 1'000'003 + i + round_);
  }
  [[nodiscard]] std::int32_t sum(std::size_t i) const {
    return static_cast<std::int32_t>(ranks_ * (ranks_ - 1) / 2 * 1'000'003 + ranks_ * (i + round_));
  }
  // The result that this rank receives.
  [[nodiscard]] std::int32_t result(std::size_t row, std::size_t column) const {
    switch (call_.collective) {
      case Collective::allreduce:
      case Collective::reduce:
        return sum(column);
      case Collective::reduce_scatter:
        return sum(row * whole_ + before_ + column);
      case Collective::allgather:
        return gathered(row, column);
      case Collective::broadcast:
        return value(root_, column);
      case Collective::alltoall:
        return value(column / elements_, me_ * elements_ + column % elements_);
    }
    return 0;
  }
  [[nodiscard]] std::int32_t gathered(std::size_t row, std::size_t column) const {
    std::size_t rank = 0;
    for (; column >= counts_[rank]; ++rank) column -= counts_[rank];
    return value(rank, row * counts_[rank] + column);
  }

  static void expect_equal(const Ints& data, const std::vector<std::int32_t>& expected) {
    if (std::equal(data.begin(), data.end(), expected.begin(), expected.end())) return;  // fast
    const auto wrong = std::ranges::mismatch(data, expected).in1 - data.begin();
    ASSERT_EQ(wrong, static_cast<std::ptrdiff_t>(data.size()))
        << data[static_cast<std::size_t>(wrong)] << " instead of "
        << expected[static_cast<std::size_t>(wrong)];
  }

  Call call_;
  std::size_t me_;
  std::size_t ranks_;
  std::size_t elements_;
  std::size_t root_;
  std::vector<std::size_t> counts_;
  std::size_t whole_ = 0;   // elements of a row of all shares
  std::size_t before_ = 0;  // of those before this rank's
  std::size_t round_ = 0;
  Ints first_;
  Ints second_;
  std::optional<View> in_;
  std::optional<View> out_;
  std::vector<std::int32_t> expected_first_;
  std::vector<std::int32_t> expected_second_;
};

// Parameters: call, memory, ranks, elements (of a share, or of the whole where there are none). The
// counts straddle the protocols: 1,024 elements are the largest small operation, and of two ranks
// in arenas a direct one; 200,001 take several staging rounds.
class CollectivesTest : public testing::TestWithParam<std::tuple<Call, Memory, int, std::size_t>> {
 protected:
  [[nodiscard]] static const Call& call() { return std::get<0>(GetParam()); }
  [[nodiscard]] static int ranks() { return std::get<2>(GetParam()); }
  [[nodiscard]] static test::World world() { return test::World(ranks()); }
  [[nodiscard]] static Buffers buffers(World& world, int root) {
    return {world, call(), std::get<1>(GetParam()), std::get<3>(GetParam()), root};
  }
};

std::string name_of(const testing::TestParamInfo<CollectivesTest::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + test::name_of(std::get<1>(info.param)) +
         std::to_string(std::get<2>(info.param)) + "ranks" +
         std::to_string(std::get<3>(info.param)) + "elements";
}

const auto memories = Values(Memory::arena, Memory::ordinary, Memory::mixed);

TEST_P(CollectivesTest, GivesTheResultAndLeavesAllElseAlone) {
  world().run([](World& world) {
    Buffers data = buffers(world, world.size() - 1);
    data.fill(0);

    data.post(world.communicator()).wait();

    data.expect_result();
  });
}

INSTANTIATE_TEST_SUITE_P(Shm, CollectivesTest,
                         Combine(ValuesIn(calls), memories, Values(1, 2, 3, 8),
                                 Values(0U, 5U, 1024U, 1025U, 10'007U)),
                         name_of);

INSTANTIATE_TEST_SUITE_P(ShmLarge, CollectivesTest,
                         Combine(ValuesIn(calls), memories, Values(2, 3), Values(200'001U)),
                         name_of);

using CollectivesTogetherTest = CollectivesTest;

// More often than there are slots, each time with other values; every rank is the root in turn.
TEST_P(CollectivesTogetherTest, RepeatsManyTimesWithTheSameBuffers) {
  world().run([](World& world) {
    std::vector<std::unique_ptr<Buffers>> by_root;
    for (int root = 0; root < world.size(); ++root) {
      by_root.emplace_back(new Buffers(buffers(world, root)));
    }
    for (std::size_t round = 0; round < 20; ++round) {
      Buffers& data = *by_root[round % by_root.size()];
      data.fill(round);

      data.post(world.communicator()).wait();

      data.expect_result();
    }
  });
}

TEST_P(CollectivesTogetherTest, KeepsPendingOperationsApart) {
  world().run([](World& world) {
    Buffers first = buffers(world, 0);
    Buffers second = buffers(world, world.size() - 1);
    first.fill(1);
    second.fill(2);

    Request one = first.post(world.communicator());
    Request two = second.post(world.communicator());
    two.wait();
    one.wait();

    first.expect_result();
    second.expect_result();
  });
}

TEST_P(CollectivesTogetherTest, ReportsALostPeerThroughTheRequest) {
  world().run_without(0, [](World& world) {
    Buffers data = buffers(world, 0);
    data.fill(0);

    Request request = data.post(world.communicator());

    EXPECT_THROW(request.wait(), Error);
    EXPECT_EQ(request.status(), Errc::peer_lost);
  });
}

INSTANTIATE_TEST_SUITE_P(Shm, CollectivesTogetherTest,
                         Combine(ValuesIn(calls), memories, Values(2, 5),
                                 Values(0U, 5U, 1024U, 1025U)),
                         name_of);

// Parameters: memory, ranks, elements.
class SameBitsTest : public testing::TestWithParam<std::tuple<Memory, int, std::size_t>> {};

TEST_P(SameBitsTest, AnAllreduceOfFloatsGivesThemToEveryRank) {
  const Memory memory = std::get<0>(GetParam());
  const std::size_t elements = std::get<2>(GetParam());
  test::World(std::get<1>(GetParam())).run([memory, elements](World& world) {
    std::pmr::vector<float> data(elements, test::resource(world, memory));
    for (std::size_t i = 0; i < elements; ++i) {
      data[i] = 0.1F * static_cast<float>(world.rank() + 1) + 1e-3F * static_cast<float>(i % 97);
    }
    std::vector<float> all(elements * static_cast<std::size_t>(world.size()));

    world.communicator().allreduce(std::span(data)).wait();
    world.communicator().allgather<float>(data, std::span(all)).wait();

    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], data[i % elements]) << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Shm, SameBitsTest,
                         Combine(memories, Values(2, 3, 8), Values(5U, 1024U, 200'001U)));

}  // namespace
}  // namespace rondo::transport::collectives_test
