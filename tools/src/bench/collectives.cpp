// The collectives that `rondo bench` measures: what each posts, what its result must be, and its
// bus factor as nccl-tests define it.
//
// A collective is defined by data and two functions; one class does the rest for all of them.
// Buffers in place are one array, in which the smaller side lies where the operation wants it;
// otherwise the smaller side lies apart. Results are compared with a pattern, bit for bit.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <rondo/transport/communicator.hpp>

#include "bench/operation.hpp"

namespace rondo::tools {
namespace {

using transport::Communicator;
using transport::Request;

// How many elements a collective has per rank, and where its smaller side lies when in place.
struct Shape {
  std::size_t in = 0;
  std::size_t out = 0;
  std::size_t offset = 0;  // of the smaller one in the larger
};

// The properties that make one collective different from another.
template <transport::Element T>
struct Definition {
  Shape shape = {};
  Pattern<T> input;
  double bus_factor = 1.0;
  std::function<Request(Communicator& ranks, std::span<const T> in, std::span<T> out)> post = {};
  std::function<std::int64_t(std::span<const T> out)> count_wrong = {};
};

template <transport::Element T>
class Collective final : public BenchOperation {
 public:
  Collective(const BenchSetting& setting, Definition<T> definition)
      : ranks_(*setting.ranks),
        definition_(std::move(definition)),
        // Both arrays lie in the memory that is measured: the arena, which all ranks of a node map,
        // or ordinary memory, from which the transport has to copy.
        larger_(std::max(definition_.shape.in, definition_.shape.out), T{}, setting.memory),
        apart_(setting.in_place ? 0 : smaller_side(), T{}, setting.memory) {
    const std::span<T> larger(larger_);
    const Shape& shape = definition_.shape;
    const std::span<T> other =
        setting.in_place ? larger.subspan(shape.offset, smaller_side()) : std::span<T>(apart_);
    in_ = shape.in == larger.size() ? larger : other;
    out_ = shape.in == larger.size() ? other : larger;
  }

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = larger_.size() * sizeof(T),
            .count = larger_.size(),
            .bus_factor = definition_.bus_factor};
  }
  void rewrite() override { definition_.input.fill(in_); }
  void run() override { definition_.post(ranks_, in_, out_).wait(); }
  void read_back() override { read_ = read_all<T>(out_); }
  void spoil() override {
    tools::spoil<T>(larger_);
    tools::spoil<T>(apart_);
  }
  [[nodiscard]] std::int64_t count_wrong() override { return definition_.count_wrong(out_); }

 private:
  [[nodiscard]] std::size_t smaller_side() const noexcept {
    return std::min(definition_.shape.in, definition_.shape.out);
  }

  Communicator& ranks_;
  Definition<T> definition_;
  std::pmr::vector<T> larger_;
  std::pmr::vector<T> apart_;
  std::span<T> in_ = {};
  std::span<T> out_ = {};
  volatile std::uint64_t read_ = 0;
};

template <transport::Element T>
std::unique_ptr<BenchOperation> make(const BenchSetting& setting, Definition<T> definition) {
  return std::make_unique<Collective<T>>(setting, std::move(definition));
}

// Both sides are as large as asked for.
Shape equal_sides(const BenchSetting& setting) noexcept {
  const std::size_t count = setting.bytes / transport::size_of(setting.type);
  return {.in = count, .out = count};
}

// Elements of one rank's part when the bytes are cut evenly, at least one.
std::size_t part_of(const BenchSetting& setting) noexcept {
  const std::size_t count = setting.bytes / transport::size_of(setting.type);
  return std::max<std::size_t>(count / setting.members.size(), 1);
}

std::size_t rank_of(const BenchSetting& setting) noexcept {
  return static_cast<std::size_t>(setting.ranks->rank());
}

// The World rank of this member.
int own_rank(const BenchSetting& setting) noexcept { return setting.members[rank_of(setting)]; }

// (P-1)/P: the share of the data that must leave a rank.
double leaving_share(const BenchSetting& setting) noexcept {
  const auto ranks = static_cast<double>(setting.members.size());
  return (ranks - 1.0) / ranks;
}

// Counts what differs from `expected`, whose elements begin at `offset`.
template <transport::Element T>
auto compare_with(const Pattern<T>& expected, std::size_t offset = 0) {
  return [expected, offset](std::span<const T> out) { return expected.count_wrong(out, offset); };
}

// The same where each member has sent one of equal parts, which begins at `offset` of its input.
template <transport::Element T>
auto compare_parts(const BenchSetting& setting, std::size_t part, std::size_t offset) {
  return [members = setting.members, part, offset](std::span<const T> out) {
    std::int64_t wrong = 0;
    for (std::size_t m = 0; m < members.size(); ++m) {
      wrong += Pattern<T>::moved(members[m]).count_wrong(out.subspan(m * part, part), offset);
    }
    return wrong;
  };
}

int ranks_of(const BenchSetting& setting) noexcept {
  return static_cast<int>(setting.members.size());
}

// Contributions go by the place among the members: averages of groups, too, are integers.
template <transport::Element T>
Pattern<T> given(const BenchSetting& setting) {
  return Pattern<T>::given(setting.ranks->rank(), ranks_of(setting), setting.reduction);
}

// The reduced inputs of the first `count` members.
template <transport::Element T>
Pattern<T> reduced(const BenchSetting& setting, int count) {
  std::vector<int> first(static_cast<std::size_t>(count));
  std::iota(first.begin(), first.end(), 0);
  return Pattern<T>::reduced(first, ranks_of(setting), setting.reduction);
}
template <transport::Element T>
Pattern<T> reduced(const BenchSetting& setting) {
  return reduced<T>(setting, ranks_of(setting));
}

// Where an output means nothing.
constexpr auto nothing_wrong = [](auto) { return std::int64_t{0}; };

// A scan of `count` members, the first ones, on the rank that gets it. Rank 0 gets nothing of an
// exscan.
template <transport::Element T>
std::function<std::int64_t(std::span<const T>)> compare_prefix(const BenchSetting& setting,
                                                               int count) {
  if (count == 0) return nothing_wrong;
  return compare_with(reduced<T>(setting, count));
}

// Parts of an alltoallv between two members: by turns a half more and a half less than on average,
// the same in both directions. All parts of a rank are together as long as that of any other.
std::size_t uneven_part(const BenchSetting& setting, std::size_t a, std::size_t b) noexcept {
  const std::size_t ranks = setting.members.size();
  const std::size_t part = part_of(setting);
  const std::size_t turn = (a + b) % ranks;
  if (turn == ranks - 1 && ranks % 2 == 1) return part;
  return turn % 2 == 0 ? part + part / 2 : part - part / 2;
}

// Where the part for `to` begins in what `from` sends.
std::size_t uneven_start(const BenchSetting& setting, std::size_t from, std::size_t to) noexcept {
  std::size_t start = 0;
  for (std::size_t m = 0; m < to; ++m) start += uneven_part(setting, from, m);
  return start;
}

// It has no data.
class Barrier final : public BenchOperation {
 public:
  explicit Barrier(const BenchSetting& setting) : ranks_(*setting.ranks) {}

  [[nodiscard]] BenchFacts facts() const override { return {}; }
  void run() override { ranks_.barrier().wait(); }
  [[nodiscard]] std::int64_t count_wrong() override { return 0; }

 private:
  Communicator& ranks_;
};

}  // namespace

std::unique_ptr<BenchOperation> make_allreduce(const BenchSetting& setting) {
  return with_type(setting.type, [&]<class T>(T) {
    return make<T>(setting, {.shape = equal_sides(setting),
                             .input = given<T>(setting),
                             // An allreduce is a reduce-scatter and an allgather: each element
                             // leaves a rank, and comes back.
                             .bus_factor = 2.0 * leaving_share(setting),
                             .post = [op = setting.reduction](
                                         auto& ranks, auto in,
                                         auto out) { return ranks.allreduce(in, out, op); },
                             .count_wrong = compare_with(reduced<T>(setting))});
  });
}

// In place the own part of the input is the output.
std::unique_ptr<BenchOperation> make_reduce_scatter(const BenchSetting& setting) {
  const std::size_t part = part_of(setting);
  const std::size_t offset = part * rank_of(setting);
  return with_type(setting.type, [&]<class T>(T) {
    return make<T>(setting, {.shape = {part * setting.members.size(), part, offset},
                             .input = given<T>(setting),
                             .bus_factor = leaving_share(setting),
                             .post = [op = setting.reduction](
                                         auto& ranks, auto in,
                                         auto out) { return ranks.reduce_scatter(in, out, op); },
                             .count_wrong = compare_with(reduced<T>(setting), offset)});
  });
}

// In place the own part of the output is the input.
std::unique_ptr<BenchOperation> make_allgather(const BenchSetting& setting) {
  const std::size_t part = part_of(setting);
  return with_type(setting.type, [&]<class T>(T) {
    return make<T>(setting,
                   {.shape = {part, part * setting.members.size(), part * rank_of(setting)},
                    .input = Pattern<T>::moved(own_rank(setting)),
                    .bus_factor = leaving_share(setting),
                    .post = [](auto& ranks, auto in, auto out) { return ranks.allgather(in, out); },
                    .count_wrong = compare_parts<T>(setting, part, 0)});
  });
}

// From rank 0.
std::unique_ptr<BenchOperation> make_broadcast(const BenchSetting& setting) {
  return with_type(setting.type, [&]<class T>(T) {
    return make<T>(
        setting,
        {.shape = equal_sides(setting),
         .input = Pattern<T>::moved(own_rank(setting)),
         .post = [](auto& ranks, auto /*in*/, auto out) { return ranks.broadcast(out, 0); },
         .count_wrong = compare_with(Pattern<T>::moved(setting.members.front()))});
  });
}

// To rank 0.
std::unique_ptr<BenchOperation> make_reduce(const BenchSetting& setting) {
  return with_type(setting.type, [&]<class T>(T) {
    Definition<T> definition = {
        .shape = equal_sides(setting),
        .input = given<T>(setting),
        .post = [op = setting.reduction](auto& ranks, auto in,
                                         auto out) { return ranks.reduce(in, out, 0, op); },
        .count_wrong = compare_with(reduced<T>(setting))};
    // The output of the other ranks means nothing.
    if (rank_of(setting) != 0) definition.count_wrong = nothing_wrong;
    return make<T>(setting, std::move(definition));
  });
}

// Input and output are apart: a part could be overwritten before it was sent.
std::unique_ptr<BenchOperation> make_alltoall(const BenchSetting& setting) {
  const std::size_t part = part_of(setting);
  const std::size_t count = part * setting.members.size();
  return with_type(setting.type, [&]<class T>(T) {
    return make<T>(setting,
                   {.shape = {count, count},
                    .input = Pattern<T>::moved(own_rank(setting)),
                    .bus_factor = leaving_share(setting),
                    .post = [](auto& ranks, auto in, auto out) { return ranks.alltoall(in, out); },
                    // A rank gets from member m the part of m's input that is for it.
                    .count_wrong = compare_parts<T>(setting, part, part * rank_of(setting))});
  });
}

std::unique_ptr<BenchOperation> make_alltoallv(const BenchSetting& setting) {
  const std::size_t self = rank_of(setting);
  const std::size_t count = part_of(setting) * setting.members.size();
  std::vector<std::size_t> counts;
  for (std::size_t m = 0; m < setting.members.size(); ++m) {
    counts.push_back(uneven_part(setting, self, m));
  }
  return with_type(setting.type, [&]<class T>(T) {
    return make<T>(setting,
                   {.shape = {count, count},
                    .input = Pattern<T>::moved(own_rank(setting)),
                    .bus_factor = leaving_share(setting),
                    .post = [counts](auto& ranks, auto in,
                                     auto out) { return ranks.alltoallv(in, counts, out, counts); },
                    .count_wrong =
                        [setting, counts, self](std::span<const T> out) {
                          std::int64_t wrong = 0;
                          for (std::size_t m = 0; m < counts.size(); ++m) {
                            wrong += Pattern<T>::moved(setting.members[m])
                                         .count_wrong(out.first(counts[m]),
                                                      uneven_start(setting, m, self));
                            out = out.subspan(counts[m]);
                          }
                          return wrong;
                        }});
  });
}

// To rank 0. All ranks have the longer array, so that all say as many bytes.
std::unique_ptr<BenchOperation> make_gather(const BenchSetting& setting) {
  const std::size_t part = part_of(setting);
  return with_type(setting.type, [&]<class T>(T) {
    Definition<T> definition = {
        .shape = {part, part * setting.members.size(), part * rank_of(setting)},
        .input = Pattern<T>::moved(own_rank(setting)),
        .bus_factor = leaving_share(setting),
        .post = [](auto& ranks, auto in, auto out) { return ranks.gather(in, out, 0); },
        .count_wrong = compare_parts<T>(setting, part, 0)};
    if (rank_of(setting) != 0) {
      definition.post = [](auto& ranks, auto in, auto /*out*/) {
        return ranks.gather(in, std::span<T>(), 0);
      };
      definition.count_wrong = nothing_wrong;
    }
    return make<T>(setting, std::move(definition));
  });
}

// From rank 0; as gather, the other way.
std::unique_ptr<BenchOperation> make_scatter(const BenchSetting& setting) {
  const std::size_t part = part_of(setting);
  const std::size_t offset = part * rank_of(setting);
  return with_type(setting.type, [&]<class T>(T) {
    Definition<T> definition = {
        .shape = {part * setting.members.size(), part, offset},
        .input = Pattern<T>::moved(own_rank(setting)),
        .bus_factor = leaving_share(setting),
        .post = [](auto& ranks, auto in, auto out) { return ranks.scatter(in, out, 0); },
        .count_wrong = compare_with(Pattern<T>::moved(setting.members.front()), offset)};
    if (rank_of(setting) != 0) {
      definition.post = [](auto& ranks, auto /*in*/, auto out) {
        return ranks.scatter(std::span<const T>(), out, 0);
      };
    }
    return make<T>(setting, std::move(definition));
  });
}

std::unique_ptr<BenchOperation> make_scan(const BenchSetting& setting) {
  return with_type(setting.type, [&]<class T>(T) {
    return make<T>(setting,
                   {.shape = equal_sides(setting),
                    .input = given<T>(setting),
                    .post = [op = setting.reduction](auto& ranks, auto in,
                                                     auto out) { return ranks.scan(in, out, op); },
                    .count_wrong = compare_prefix<T>(setting, setting.ranks->rank() + 1)});
  });
}

std::unique_ptr<BenchOperation> make_exscan(const BenchSetting& setting) {
  return with_type(setting.type, [&]<class T>(T) {
    return make<T>(
        setting, {.shape = equal_sides(setting),
                  .input = given<T>(setting),
                  .post = [op = setting.reduction](auto& ranks, auto in,
                                                   auto out) { return ranks.exscan(in, out, op); },
                  .count_wrong = compare_prefix<T>(setting, setting.ranks->rank())});
  });
}

// The array is cut into 16, some of them empty if it is short.
std::unique_ptr<BenchOperation> make_coalesced(const BenchSetting& setting) {
  constexpr std::size_t arrays = 16;
  return with_type(setting.type, [&]<class T>(T) {
    return make<T>(
        setting, {.shape = equal_sides(setting),
                  .input = given<T>(setting),
                  .bus_factor = 2.0 * leaving_share(setting),
                  .post =
                      [op = setting.reduction](auto& ranks, auto /*in*/, std::span<T> out) {
                        std::array<std::span<T>, arrays> parts;
                        for (std::size_t k = 0; k < arrays; ++k) {
                          const std::size_t begin = out.size() * k / arrays;
                          const std::size_t end = out.size() * (k + 1) / arrays;
                          parts[k] = out.subspan(begin, end - begin);
                        }
                        return ranks.allreduce_coalesced(std::span<const std::span<T>>(parts), op);
                      },
                  .count_wrong = compare_with(reduced<T>(setting))});
  });
}

std::unique_ptr<BenchOperation> make_barrier(const BenchSetting& setting) {
  return std::make_unique<Barrier>(setting);
}

}  // namespace rondo::tools
