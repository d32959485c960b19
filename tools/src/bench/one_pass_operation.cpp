#include "bench/one_pass_operation.hpp"

#include <vector>

#include <rondo/transport/communicator.hpp>

#include "bench/one_pass.hpp"
#include "bench/pattern.hpp"

namespace rondo::tools {
namespace {

class OnePassOperation final : public BenchOperation {
 public:
  OnePassOperation(SharedBlock& shared, const BenchSetting& setting)
      : shared_(shared),
        ranks_(setting.ranks->size()),
        count_(setting.bytes / sizeof(float)),
        own_(shared.buffer(setting.ranks->rank()), count_),
        given_(Pattern<float>::given(setting.ranks->rank())),
        expected_(Pattern<float>::reduced(setting.members, transport::ReduceOp::sum)) {
    for (int rank = 0; rank < ranks_; ++rank) buffers_.push_back(shared.buffer(rank));
    const auto ranks = static_cast<std::size_t>(ranks_);
    const auto rank = static_cast<std::size_t>(setting.ranks->rank());
    // Cutting a few cache lines costs more than it saves.
    const bool cut = count_ >= 64 * ranks;
    first_ = cut ? count_ * rank / ranks : 0;
    last_ = cut ? count_ * (rank + 1) / ranks : (rank == 0 ? count_ : 0);
  }

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = own_.size_bytes(), .count = count_};
  }
  void rewrite() override { given_.fill(own_); }
  void run() override {
    shared_.barrier();
    one_pass_(buffers_.data(), ranks_, first_, last_);
    shared_.barrier();
  }
  void read_back() override { read_ = read_all<float>(own_); }
  void spoil() override { tools::spoil<float>(own_); }
  [[nodiscard]] std::int64_t count_wrong() override { return expected_.count_wrong(own_); }

 private:
  SharedBlock& shared_;
  int ranks_;
  std::size_t count_;
  std::span<float> own_;
  Pattern<float> given_;
  Pattern<float> expected_;
  std::vector<float*> buffers_ = {};
  OnePass one_pass_ = one_pass_for_this_processor();
  std::size_t first_ = 0;
  std::size_t last_ = 0;
  volatile std::uint64_t read_ = 0;
};

}  // namespace

std::unique_ptr<BenchOperation> make_one_pass(SharedBlock& shared, const BenchSetting& setting) {
  return std::make_unique<OnePassOperation>(shared, setting);
}

}  // namespace rondo::tools
