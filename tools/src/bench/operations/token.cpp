#include <rondo/transport/communicator.hpp>

#include "bench/operations/operations.hpp"

namespace rondo::tools {
namespace {

// A number goes there and back; the time is that of one way.
class Token final : public BenchOperation {
 public:
  explicit Token(const BenchSetting& setting)
      : ranks_(*setting.ranks), first_(setting.first), second_(setting.second) {}

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = sizeof(std::uint64_t), .count = 1, .calls = 2 * round_trips};
  }

  void run() override {
    const int rank = ranks_.rank();
    for (int trip = 0; trip < round_trips; ++trip) {
      ++number_;
      if (rank == first_) {
        put(second_);
        take(second_);
      } else if (rank == second_) {
        take(first_);
        put(first_);
      }
    }
  }

  [[nodiscard]] std::int64_t count_wrong() override { return wrong_; }

 private:
  static constexpr int round_trips = 8;

  void put(int peer) { ranks_.put_signal(peer, number_).wait(); }
  void take(int peer) {
    std::uint64_t value = 0;
    ranks_.wait_signal(peer, value).wait();
    if (value != number_) ++wrong_;
  }

  transport::Communicator& ranks_;
  int first_;
  int second_;
  std::uint64_t number_ = 0;
  std::int64_t wrong_ = 0;
};

}  // namespace

std::unique_ptr<BenchOperation> make_token(const BenchSetting& setting) {
  return std::make_unique<Token>(setting);
}

}  // namespace rondo::tools
