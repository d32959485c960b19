#include "bench/collective_operation.hpp"
#include "bench/operations/operations.hpp"

namespace rondo::tools {
namespace {

template <transport::Element T>
class Alltoall final : public CollectiveOperation<T> {
 public:
  explicit Alltoall(const BenchSetting& setting)
      : CollectiveOperation<T>(setting, shape_of(setting), Pattern<T>::moved(own_rank(setting))),
        members_(setting.members) {}

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = this->in().size_bytes(),
            .count = this->in().size(),
            .bus_factor = leaving_share(members_.size())};
  }
  [[nodiscard]] std::int64_t count_wrong() override {
    const std::size_t part = this->in().size() / members_.size();
    const std::size_t offset = part * static_cast<std::size_t>(this->ranks().rank());
    std::int64_t wrong = 0;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      wrong +=
          Pattern<T>::moved(members_[m]).count_wrong(this->out().subspan(m * part, part), offset);
    }
    return wrong;
  }

 private:
  static CollectiveShape shape_of(const BenchSetting& setting) {
    const std::size_t count = part_of(setting) * setting.members.size();
    return {.in = count, .out = count};
  }
  [[nodiscard]] transport::Request post() override {
    return this->ranks().alltoall(this->in(), this->out());
  }

  std::vector<int> members_;
};

}  // namespace

std::unique_ptr<BenchOperation> make_alltoall(const BenchSetting& setting) {
  return make_typed<Alltoall>(setting);
}

}  // namespace rondo::tools
