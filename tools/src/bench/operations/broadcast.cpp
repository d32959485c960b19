#include "bench/collective_operation.hpp"
#include "bench/operations/operations.hpp"

namespace rondo::tools {
namespace {

// From rank 0.
template <transport::Element T>
class Broadcast final : public CollectiveOperation<T> {
 public:
  explicit Broadcast(const BenchSetting& setting)
      : CollectiveOperation<T>(setting, shape_of(setting), Pattern<T>::moved(own_rank(setting))),
        expected_(Pattern<T>::moved(setting.members.front())) {}

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = this->in().size_bytes(), .count = this->in().size()};
  }
  [[nodiscard]] std::int64_t count_wrong() override { return expected_.count_wrong(this->out()); }

 private:
  static CollectiveShape shape_of(const BenchSetting& setting) {
    const std::size_t count = setting.bytes / sizeof(T);
    return {.in = count, .out = count};
  }
  [[nodiscard]] transport::Request post() override {
    return this->ranks().broadcast(this->out(), 0);
  }

  Pattern<T> expected_;
};

}  // namespace

std::unique_ptr<BenchOperation> make_broadcast(const BenchSetting& setting) {
  return make_typed<Broadcast>(setting);
}

}  // namespace rondo::tools
