#include <rondo/transport/communicator.hpp>

#include "bench/operations/operations.hpp"

namespace rondo::tools {
namespace {

class Barrier final : public BenchOperation {
 public:
  explicit Barrier(const BenchSetting& setting) : ranks_(*setting.ranks) {}

  [[nodiscard]] BenchFacts facts() const override { return {}; }
  void run() override { ranks_.barrier().wait(); }
  [[nodiscard]] std::int64_t count_wrong() override { return 0; }  // it has no data

 private:
  transport::Communicator& ranks_;
};

}  // namespace

std::unique_ptr<BenchOperation> make_barrier(const BenchSetting& setting) {
  return std::make_unique<Barrier>(setting);
}

}  // namespace rondo::tools
