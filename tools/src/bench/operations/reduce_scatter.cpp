#include "bench/collective_operation.hpp"
#include "bench/operations/operations.hpp"

namespace rondo::tools {
namespace {

template <transport::Element T>
class ReduceScatter final : public CollectiveOperation<T> {
 public:
  explicit ReduceScatter(const BenchSetting& setting)
      : CollectiveOperation<T>(setting, shape_of(setting), Pattern<T>::given(own_rank(setting))),
        reduction_(setting.reduction),
        size_(setting.members.size()),
        offset_(shape_of(setting).offset),
        expected_(Pattern<T>::reduced(setting.members, setting.reduction)) {}

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = this->in().size_bytes(),
            .count = this->in().size(),
            .bus_factor = leaving_share(size_)};
  }
  [[nodiscard]] std::int64_t count_wrong() override {
    return expected_.count_wrong(this->out(), offset_);
  }

 private:
  static CollectiveShape shape_of(const BenchSetting& setting) {
    const std::size_t part = part_of(setting);
    return {.in = part * setting.members.size(),
            .out = part,
            .offset = part * static_cast<std::size_t>(setting.ranks->rank())};
  }
  [[nodiscard]] transport::Request post() override {
    return this->ranks().reduce_scatter(this->in(), this->out(), reduction_);
  }

  transport::ReduceOp reduction_;
  std::size_t size_;
  std::size_t offset_;
  Pattern<T> expected_;
};

}  // namespace

std::unique_ptr<BenchOperation> make_reduce_scatter(const BenchSetting& setting) {
  return make_typed<ReduceScatter>(setting);
}

}  // namespace rondo::tools
