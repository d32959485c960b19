#include "bench/collective_operation.hpp"
#include "bench/operations/operations.hpp"

namespace rondo::tools {
namespace {

template <transport::Element T>
class Allgather final : public CollectiveOperation<T> {
 public:
  explicit Allgather(const BenchSetting& setting)
      : CollectiveOperation<T>(setting, shape_of(setting), Pattern<T>::moved(own_rank(setting))),
        members_(setting.members) {}

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = this->out().size_bytes(),
            .count = this->out().size(),
            .bus_factor = leaving_share(members_.size())};
  }
  [[nodiscard]] std::int64_t count_wrong() override {
    const std::size_t part = this->in().size();
    std::int64_t wrong = 0;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      wrong += Pattern<T>::moved(members_[m]).count_wrong(this->out().subspan(m * part, part));
    }
    return wrong;
  }

 private:
  static CollectiveShape shape_of(const BenchSetting& setting) {
    const std::size_t part = part_of(setting);
    return {.in = part,
            .out = part * setting.members.size(),
            .offset = part * static_cast<std::size_t>(setting.ranks->rank())};
  }
  [[nodiscard]] transport::Request post() override {
    return this->ranks().allgather(this->in(), this->out());
  }

  std::vector<int> members_;
};

}  // namespace

std::unique_ptr<BenchOperation> make_allgather(const BenchSetting& setting) {
  return make_typed<Allgather>(setting);
}

}  // namespace rondo::tools
