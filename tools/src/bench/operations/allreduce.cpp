#include "bench/collective_operation.hpp"
#include "bench/operations/operations.hpp"

namespace rondo::tools {
namespace {

template <transport::Element T>
class Allreduce final : public CollectiveOperation<T> {
 public:
  explicit Allreduce(const BenchSetting& setting)
      : CollectiveOperation<T>(setting, shape_of(setting), Pattern<T>::given(own_rank(setting))),
        reduction_(setting.reduction),
        size_(setting.members.size()),
        expected_(Pattern<T>::reduced(setting.members, setting.reduction)) {}

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = this->in().size_bytes(),
            .count = this->in().size(),
            .bus_factor = 2.0 * leaving_share(size_)};
  }
  [[nodiscard]] std::int64_t count_wrong() override { return expected_.count_wrong(this->out()); }

 private:
  static CollectiveShape shape_of(const BenchSetting& setting) {
    const std::size_t count = setting.bytes / sizeof(T);
    return {.in = count, .out = count};
  }
  [[nodiscard]] transport::Request post() override {
    return this->ranks().allreduce(this->in(), this->out(), reduction_);
  }

  transport::ReduceOp reduction_;
  std::size_t size_;
  Pattern<T> expected_;
};

}  // namespace

std::unique_ptr<BenchOperation> make_allreduce(const BenchSetting& setting) {
  return make_typed<Allreduce>(setting);
}

}  // namespace rondo::tools
