#include "bench/collective_operation.hpp"
#include "bench/operations/operations.hpp"

namespace rondo::tools {
namespace {

// To rank 0.
template <transport::Element T>
class Reduce final : public CollectiveOperation<T> {
 public:
  explicit Reduce(const BenchSetting& setting)
      : CollectiveOperation<T>(setting, shape_of(setting), Pattern<T>::given(own_rank(setting))),
        reduction_(setting.reduction),
        expected_(Pattern<T>::reduced(setting.members, setting.reduction)) {}

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = this->in().size_bytes(), .count = this->in().size()};
  }
  [[nodiscard]] std::int64_t count_wrong() override {
    return this->ranks().rank() == 0 ? expected_.count_wrong(this->out()) : 0;
  }

 private:
  static CollectiveShape shape_of(const BenchSetting& setting) {
    const std::size_t count = setting.bytes / sizeof(T);
    return {.in = count, .out = count};
  }
  [[nodiscard]] transport::Request post() override {
    return this->ranks().reduce(this->in(), this->out(), 0, reduction_);
  }

  transport::ReduceOp reduction_;
  Pattern<T> expected_;
};

}  // namespace

std::unique_ptr<BenchOperation> make_reduce(const BenchSetting& setting) {
  return make_typed<Reduce>(setting);
}

}  // namespace rondo::tools
