#pragma once

// One checker for every call of the table of collectives: the exact result, and that all other
// memory stays as it was. It needs no test framework, so ranks that are programs use it, too.

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/element.hpp>

#include "support/collective_calls.hpp"

namespace rondo::test {

template <transport::Element T>
T element_of(std::int64_t number) {
  if constexpr (std::same_as<T, transport::Bfloat16>) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(number));
    return {static_cast<std::uint16_t>(bits >> 16U)};
  } else if constexpr (std::same_as<T, transport::Float16>) {
    return {std::bit_cast<std::uint16_t>(static_cast<_Float16>(number))};
  } else {
    return static_cast<T>(number);
  }
}

template <transport::Element T>
std::string text_of(T element) {
  if constexpr (requires { element.bits; })
    return std::to_string(element.bits) + " (its bits)";
  else
    return std::to_string(element);
}

/// The numbers that ranks give: exact in their type, and so is their reduction.
template <transport::Element T>
class Numbers {
 public:
  Numbers(transport::ReduceOp op, std::size_t ranks) : op_(op), ranks_(ranks) {}

  /// Messages are cut into parts of powers of two, none of which is a multiple of this: an element
  /// of another part is another number.
  static constexpr std::size_t period = 1013;

  /// Writes into `out` what the ranks from `first` to before `end` give, reduced, from their
  /// element `begin` on. Whole periods are copied: that must not take longer than the operation.
  void fill(std::span<T> out, std::size_t first, std::size_t end, std::size_t begin) const {
    const std::size_t head = std::min(out.size(), period);
    for (std::size_t i = 0; i < head; ++i) {
      out[i] = element_of<T>(joined(first, end, (begin + i) % period));
    }
    for (std::size_t done = head; done < out.size();) {
      const std::size_t next = std::min(done, out.size() - done);
      std::memcpy(out.data() + done, out.data(), next * sizeof(T));
      done += next;
    }
  }

  std::size_t round = 0;  ///< other numbers in every round

 private:
  // Element `i` of what `rank` gives.
  [[nodiscard]] std::int64_t at(std::size_t rank, std::size_t i) const {
    using enum transport::ReduceOp;
    // The sum over 4,096 ranks has 31 bits.
    const std::size_t apart = ranks_ <= 64 ? 100'003 : 211;
    if (is_wide()) return static_cast<std::int64_t>(rank * apart + i + round);
    const auto small = static_cast<std::int64_t>((i * 7 + rank * 5 + round) % 6);
    if (op_ == avg) return rank < 2 ? static_cast<std::int64_t>(ranks_) * (small % 4) : 0;
    if (op_ == prod) return rank < 3 ? small : 1;
    return small;
  }
  [[nodiscard]] std::int64_t joined(std::size_t first, std::size_t end, std::size_t i) const {
    using enum transport::ReduceOp;
    std::int64_t result = at(first, i);
    for (std::size_t rank = first + 1; rank < end; ++rank) result = join(result, at(rank, i));
    const bool divides = op_ == avg && end - first > 1;
    return divides ? result / static_cast<std::int64_t>(ranks_) : result;
  }
  // Does every element of a long array have a number of its own?
  [[nodiscard]] bool is_wide() const {
    return std::integral<T> && sizeof(T) >= 4 && op_ <= transport::ReduceOp::max;
  }
  [[nodiscard]] std::int64_t join(std::int64_t a, std::int64_t b) const {
    using enum transport::ReduceOp;
    switch (op_) {
      case min:
        return std::min(a, b);
      case max:
        return std::max(a, b);
      case prod:
        return a * b;
      case bit_and:
        return a & b;
      case bit_or:
        return a | b;
      case bit_xor:
        return a ^ b;
      default:
        return a + b;
    }
  }

  transport::ReduceOp op_;
  std::size_t ranks_;
};

/// One rank's buffers for a call, with margins around them and gaps between their rows, and what
/// must be in them afterwards.
template <transport::Element T = std::int32_t>
class CallBuffers {
 public:
  using Counts = std::vector<std::size_t>;

  /// `elements` are those of an array, or of each rank's share.
  CallBuffers(const Call& call, std::size_t rank, std::size_t ranks,
              std::pmr::memory_resource* memory, std::size_t elements, std::size_t root)
      : call_(call),
        me_(rank),
        ranks_(ranks),
        elements_(elements),
        root_(root),
        numbers_(call.op, ranks),
        first_(memory),
        second_(call.output == Output::ordinary ? std::pmr::get_default_resource() : memory) {
    const auto [in, out] = count_elements();
    const std::size_t whole = std::max(in, out);
    // In place the larger side is the buffer, and the other one a part of it.
    if (in_place()) {
      first_.assign(rows() * (whole + gap()) + 2 * margin, element_of<T>(77));
      in_ = view(first_, in < whole ? before_ : 0, in, whole + gap());
      out_ = view(first_, out < whole ? before_ : 0, out, whole + gap());
    } else {
      first_.assign(rows() * (in + gap()) + 2 * margin, element_of<T>(77));
      second_.assign(rows() * (out + gap()) + 2 * margin, element_of<T>(77));
      in_ = view(first_, 0, in, in + gap());
      out_ = view(second_, 0, out, out + gap());
    }
  }
  CallBuffers(const transport::Communicator& comm, std::pmr::memory_resource* memory,
              const Call& call, std::size_t elements, int root)
      : CallBuffers(call, static_cast<std::size_t>(comm.rank()),
                    static_cast<std::size_t>(comm.size()), memory, elements,
                    static_cast<std::size_t>(root)) {}
  CallBuffers(const CallBuffers&) = delete;
  CallBuffers& operator=(const CallBuffers&) = delete;

  /// Other numbers in every round.
  void fill(std::size_t round = 0) {
    numbers_.round = round;
    for (std::size_t row = 0; row < in_.rows && in_.row > 0; ++row) {
      numbers_.fill({in_.first + row * in_.stride, in_.row}, me_, me_ + 1, row * in_.row);
    }
    expected_first_.assign(first_.begin(), first_.end());
    expected_second_.assign(second_.begin(), second_.end());
  }

  [[nodiscard]] transport::Request post(transport::Communicator& comm) {
    const int root = static_cast<int>(root_);
    switch (call_.kind) {
      case CallKind::allreduce:
        return comm.allreduce(dense(in_), dense(out_), call_.op);
      case CallKind::allreduce_coalesced:
        return post_coalesced(comm);
      case CallKind::reduce:
        return comm.reduce(dense(in_), has_output() ? dense(out_) : std::span<T>(), root, call_.op);
      case CallKind::reduce_scatter:
        return comm.reduce_scatter(input(), out_, call_.op, counts());
      case CallKind::allgather:
        return comm.allgather(input(), out_, counts());
      case CallKind::broadcast:
        return comm.broadcast(dense(out_), root);
      case CallKind::alltoall:
        return comm.alltoall(dense(in_), dense(out_));
      case CallKind::alltoallv:
        return comm.alltoallv(dense(in_), parts_sent(), dense(out_), parts_received());
      case CallKind::gather:
        return comm.gather(dense(in_), dense(out_), root, counts());
      case CallKind::scatter:
        return comm.scatter(dense(in_), dense(out_), root, counts());
      case CallKind::scan:
        return comm.scan(dense(in_), dense(out_), call_.op);
      case CallKind::exscan:
        return comm.exscan(dense(in_), dense(out_), call_.op);
      case CallKind::barrier:
        break;
    }
    return comm.barrier();
  }

  /// The first element that is wrong: of the result, of the input where it is not the result, of
  /// the gaps and of the margins. Empty if none is.
  [[nodiscard]] std::string fault() {
    if (receives() && out_.size() > 0) {
      const std::pmr::vector<T>& data = in_place() ? first_ : second_;
      std::vector<T>& expected = in_place() ? expected_first_ : expected_second_;
      T* const out = expected.data() + (out_.first - data.data());
      for (std::size_t row = 0; row < out_.rows; ++row) expect(row, out);
    }
    const std::string in_first = difference(first_, expected_first_);
    return in_first.empty() ? difference(second_, expected_second_) : in_first;
  }

  [[nodiscard]] const Call& call() const { return call_; }
  [[nodiscard]] std::size_t rank() const { return me_; }
  [[nodiscard]] std::size_t root() const { return root_; }
  [[nodiscard]] transport::Strided<const T> input() const {
    return {in_.first, in_.rows, in_.row, in_.stride};
  }
  [[nodiscard]] transport::Strided<T> output() const { return out_; }
  /// The elements of a row of the ranks' shares, if these are not equal.
  [[nodiscard]] Counts counts() const {
    if (call_.shares == Shares::equal || call_.shares == Shares::equal_rows) return {};
    return counts_by([this](std::size_t rank) { return share(rank); });
  }
  /// The elements of an alltoall for each rank, and of each rank.
  [[nodiscard]] Counts parts_sent() const {
    return counts_by([this](std::size_t rank) { return part(me_, rank); });
  }
  [[nodiscard]] Counts parts_received() const {
    return counts_by([this](std::size_t rank) { return part(rank, me_); });
  }

 private:
  static constexpr std::size_t margin = 3;

  template <typename Count>
  [[nodiscard]] Counts counts_by(Count count) const {
    Counts counts(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) counts[rank] = count(rank);
    return counts;
  }
  static std::span<T> dense(const transport::Strided<T>& view) { return {view.first, view.size()}; }
  [[nodiscard]] std::size_t rows() const {
    return call_.shares == Shares::rows ? (elements_ + 3) / 4 : call_.has_rows() ? 5 : 1;
  }
  [[nodiscard]] std::size_t gap() const { return call_.has_rows() ? 2 : 0; }
  // An empty array has no address.
  [[nodiscard]] transport::Strided<T> view(std::pmr::vector<T>& data, std::size_t first,
                                           std::size_t columns, std::size_t stride) const {
    T* const begin = columns == 0 ? nullptr : data.data() + margin + first;
    return {begin, rows(), columns, stride};
  }
  [[nodiscard]] bool is_root() const { return me_ == root_; }
  [[nodiscard]] bool in_place() const {
    if (call_.kind == CallKind::gather && !is_root()) return false;
    return call_.output == Output::in_place || (call_.output == Output::mixed && me_ % 2 == 0);
  }
  // Ranks that are no root may pass an output for a reduce or none.
  [[nodiscard]] bool has_output() const { return is_root() || me_ % 2 == 0; }
  [[nodiscard]] bool receives() const {
    return call_.kind == CallKind::reduce   ? is_root()
           : call_.kind == CallKind::exscan ? me_ > 0
                                            : true;
  }

  // The elements of a row of a rank's share.
  [[nodiscard]] std::size_t share(std::size_t rank) const {
    switch (call_.shares) {
      case Shares::one_rank:
        return rank == ranks_ / 2 ? elements_ : 0;
      case Shares::uneven:
        return rank == 0 ? 0 : elements_ + rank % 5;
      case Shares::rows:
        return rank == 0 ? 0 : 3 + rank;
      case Shares::equal_rows:
        return (elements_ + 3) / 4;
      case Shares::equal:
        break;
    }
    return elements_;
  }
  // The elements of an alltoall. Some parts of an alltoallv are empty, others short.
  [[nodiscard]] std::size_t part(std::size_t from, std::size_t to) const {
    if (call_.kind == CallKind::alltoall) return elements_;
    const std::size_t lengths[] = {3, 0, elements_ / 70, 1, elements_, elements_ / 4};
    return lengths[(5 * from + 3 * to) % std::size(lengths)];
  }

  // The elements of a row of the input and of the output.
  std::pair<std::size_t, std::size_t> count_elements() {
    const CallKind kind = call_.kind;
    if (kind == CallKind::barrier) return {0, 0};
    if (kind == CallKind::alltoall || kind == CallKind::alltoallv) {
      std::pair<std::size_t, std::size_t> both{0, 0};
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        both.first += part(me_, rank);
        both.second += part(rank, me_);
      }
      return both;
    }
    if (!call_.has_shares()) return {elements_, elements_};
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (rank == me_) before_ = whole_;
      whole_ += share(rank);
    }
    if (kind == CallKind::reduce_scatter) return {whole_, share(me_)};
    if (kind == CallKind::scatter) return {is_root() ? whole_ : 0, share(me_)};
    if (kind == CallKind::gather) return {share(me_), is_root() ? whole_ : 0};
    return {share(me_), whole_};
  }

  transport::Request post_coalesced(transport::Communicator& comm) {
    const std::span<T> all = dense(out_);
    const std::vector<std::span<T>> arrays{all.first(all.size() / 3), all.first(0),
                                           all.subspan(all.size() / 3)};
    return comm.allreduce_coalesced(std::span(arrays), call_.op);
  }

  // Writes the result of `row`, rank by rank or reduced over the ranks, into `out`.
  void expect(std::size_t row, T* out) {
    T* next = out + row * out_.stride;
    const auto copy = [&](std::size_t first, std::size_t end, std::size_t from, std::size_t count) {
      numbers_.fill({next, count}, first, end, from);
      next += count;
    };
    switch (call_.kind) {
      case CallKind::reduce_scatter:
        return copy(0, ranks_, row * whole_ + before_, out_.row);
      case CallKind::scan:
        return copy(0, me_ + 1, 0, out_.row);
      case CallKind::exscan:
        return copy(0, me_, 0, out_.row);
      case CallKind::broadcast:
        return copy(root_, root_ + 1, 0, out_.row);
      case CallKind::scatter:
        return copy(root_, root_ + 1, before_, out_.row);
      case CallKind::allgather:
      case CallKind::gather:
        for (std::size_t r = 0; r < ranks_; ++r) copy(r, r + 1, row * share(r), share(r));
        return;
      case CallKind::alltoall:
      case CallKind::alltoallv:
        for (std::size_t r = 0; r < ranks_; ++r) copy(r, r + 1, begin_of_part(r), part(r, me_));
        return;
      default:
        return copy(0, ranks_, 0, out_.row);
    }
  }
  // Where this rank's part begins in what `from` gives.
  [[nodiscard]] std::size_t begin_of_part(std::size_t from) const {
    if (call_.kind == CallKind::alltoall) return me_ * elements_;
    std::size_t begin = 0;
    for (std::size_t to = 0; to < me_; ++to) begin += part(from, to);
    return begin;
  }

  [[nodiscard]] std::string difference(const std::pmr::vector<T>& data,
                                       const std::vector<T>& expected) const {
    const std::size_t bytes = data.size() * sizeof(T);
    if (bytes == 0 || std::memcmp(data.data(), expected.data(), bytes) == 0) return {};  // fast
    std::size_t wrong = 0;
    while (std::memcmp(&data[wrong], &expected[wrong], sizeof(T)) == 0) ++wrong;
    return std::string(call_.name) + " of " + std::to_string(elements_) + ", root " +
           std::to_string(root_) + ", rank " + std::to_string(me_) + ": element " +
           std::to_string(wrong) + " of " + std::to_string(data.size()) + " is " +
           text_of(data[wrong]) + ", not " + text_of(expected[wrong]);
  }

  Call call_;
  std::size_t me_;
  std::size_t ranks_;
  std::size_t elements_;
  std::size_t root_;
  Numbers<T> numbers_;
  std::size_t whole_ = 0;   // elements of a row of all shares
  std::size_t before_ = 0;  // of those before this rank's
  std::pmr::vector<T> first_;
  std::pmr::vector<T> second_;
  transport::Strided<T> in_;
  transport::Strided<T> out_;
  std::vector<T> expected_first_;
  std::vector<T> expected_second_;
};

/// Makes one call. Returns what is wrong, as CallBuffers::fault() does.
template <transport::Element T = std::int32_t>
[[nodiscard]] std::string fault_of_call(transport::Communicator& comm,
                                        std::pmr::memory_resource* memory, const Call& call,
                                        std::size_t elements, int root) {
  CallBuffers<T> data(comm, memory, call, elements, root);
  data.fill();
  data.post(comm).wait();
  return data.fault();
}

/// Makes every call that reduces, with each type for which `chosen`(kind, type, operation) is true.
/// Calls check(what is wrong) for each.
template <typename Chosen, typename Check>
void for_each_reduction(transport::Communicator& comm, std::pmr::memory_resource* memory,
                        std::size_t elements, Chosen chosen, Check check) {
  const auto make_calls = [&]<typename T>(T /*type*/) {
    for (int i = 0; i <= static_cast<int>(transport::ReduceOp::bit_xor); ++i) {
      const auto op = static_cast<transport::ReduceOp>(i);
      const transport::ElementType type = transport::type_of<T>();
      const bool exists = op < transport::ReduceOp::bit_and || transport::is_integer(type);
      for (const char* name : {"Allreduce", "ReduceScatter", "Reduce"}) {
        Call call = call_named(name);
        call.op = op;
        if (exists && chosen(call.kind, type, op)) {
          check(fault_of_call<T>(comm, memory, call, elements, 0));
        }
      }
    }
  };
  const auto make_all = [&]<typename... Types>() { (make_calls(Types{}), ...); };
  make_all.template operator()<float, double, transport::Bfloat16, transport::Float16, std::int8_t,
                               std::int16_t, std::int32_t, std::int64_t, std::uint8_t,
                               std::uint16_t, std::uint32_t, std::uint64_t>();
}

}  // namespace rondo::test
