#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/transport/communicator.hpp>

#include "bench/operation.hpp"
#include "bench/pattern.hpp"

namespace rondo::tools {

/// `Operation<T>` for the type that `setting` names.
template <template <typename> typename Operation>
[[nodiscard]] std::unique_ptr<BenchOperation> make_typed(const BenchSetting& setting) {
  switch (setting.type) {
    case transport::ElementType::f64:
      return std::make_unique<Operation<double>>(setting);
    case transport::ElementType::bf16:
      return std::make_unique<Operation<transport::Bfloat16>>(setting);
    case transport::ElementType::i32:
      return std::make_unique<Operation<std::int32_t>>(setting);
    case transport::ElementType::i64:
      return std::make_unique<Operation<std::int64_t>>(setting);
    case transport::ElementType::u8:
      return std::make_unique<Operation<std::uint8_t>>(setting);
    default:
      return std::make_unique<Operation<float>>(setting);
  }
}

/// How many elements a collective has per rank, and where its smaller side lies when in place.
struct CollectiveShape {
  std::size_t in = 0;
  std::size_t out = 0;
  std::size_t offset = 0;  ///< of the smaller one in the larger
};

/// What the collectives have in common: an input that is filled with a pattern, an output that is
/// compared with others. In place they are one array.
template <transport::Element T>
class CollectiveOperation : public BenchOperation {
 public:
  void rewrite() override { pattern_.fill(in_); }
  void run() override { post().wait(); }
  void read_back() override { read_ = read_all<T>(out_); }
  void spoil() override {
    tools::spoil<T>(larger_);
    tools::spoil<T>(apart_);
  }

 protected:
  CollectiveOperation(const BenchSetting& setting, const CollectiveShape& shape, Pattern<T> pattern)
      : ranks_(*setting.ranks),
        larger_(std::max(shape.in, shape.out), T{}, setting.memory),
        apart_(setting.in_place ? 0 : std::min(shape.in, shape.out), T{}, setting.memory),
        pattern_(pattern) {
    const std::span<T> larger(larger_);
    const std::size_t least = std::min(shape.in, shape.out);
    const std::span<T> other = setting.in_place ? larger.subspan(shape.offset, least) : apart_;
    in_ = shape.in == larger.size() ? larger : other;
    out_ = shape.in == larger.size() ? other : larger;
  }

  [[nodiscard]] virtual transport::Request post() = 0;

  [[nodiscard]] transport::Communicator& ranks() noexcept { return ranks_; }
  [[nodiscard]] std::span<const T> in() const noexcept { return in_; }
  [[nodiscard]] std::span<T> out() const noexcept { return out_; }

 private:
  transport::Communicator& ranks_;
  std::pmr::vector<T> larger_;
  std::pmr::vector<T> apart_;
  std::span<T> in_ = {};
  std::span<T> out_ = {};
  Pattern<T> pattern_;
  volatile std::uint64_t read_ = 0;
};

/// Elements of one rank's part when `bytes` are cut evenly, at least one.
[[nodiscard]] inline std::size_t part_of(const BenchSetting& setting) noexcept {
  const std::size_t count = setting.bytes / transport::size_of(setting.type);
  return std::max<std::size_t>(count / setting.members.size(), 1);
}

/// The World rank of this member.
[[nodiscard]] inline int own_rank(const BenchSetting& setting) noexcept {
  return setting.members[static_cast<std::size_t>(setting.ranks->rank())];
}

/// (P-1)/P: the share of the data that must leave a rank.
[[nodiscard]] inline double leaving_share(std::size_t ranks) noexcept {
  return (static_cast<double>(ranks) - 1.0) / static_cast<double>(ranks);
}

}  // namespace rondo::tools
