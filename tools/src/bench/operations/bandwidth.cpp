#include <algorithm>

#include "bench/collective_operation.hpp"
#include "bench/operations/operations.hpp"

namespace rondo::tools {
namespace {

constexpr std::size_t most_in_flight_bytes = std::size_t{32} << 20U;
constexpr std::size_t most_in_flight = 64;

// A window of messages, all in flight at once, one way or both ways.
template <transport::Element T>
class Bandwidth final : public BenchOperation {
 public:
  explicit Bandwidth(const BenchSetting& setting)
      : ranks_(*setting.ranks),
        count_(setting.bytes / sizeof(T)),
        window_(std::clamp<std::size_t>(most_in_flight_bytes / setting.bytes, 2, most_in_flight)),
        peer_(ranks_.rank() == setting.first ? setting.second : setting.first),
        both_ways_(setting.both_ways),
        sends_(ranks_.rank() == setting.first || (both_ways_ && ranks_.rank() == setting.second)),
        receives_(ranks_.rank() == setting.second ||
                  (both_ways_ && ranks_.rank() == setting.first)),
        out_(sends_ ? count_ : 0, T{}, setting.memory),
        in_(receives_ ? count_ * window_ : 0, T{}, setting.memory),
        pattern_(Pattern<T>::moved(ranks_.rank())),
        expected_(Pattern<T>::moved(peer_)) {
    requests_.reserve(2 * window_);
  }

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = count_ * sizeof(T),
            .count = count_,
            .bus_factor = both_ways_ ? 2.0 : 1.0,
            .calls = static_cast<int>(window_)};
  }

  void rewrite() override { pattern_.fill(out_); }

  void run() override {
    const std::span<T> in(in_);
    requests_.clear();
    for (std::size_t i = 0; i < window_; ++i) {
      if (receives_) requests_.push_back(ranks_.recv(in.subspan(i * count_, count_), peer_));
      if (sends_) requests_.push_back(ranks_.send(std::span<const T>(out_), peer_));
    }
    for (transport::Request& request : requests_) request.wait();
    // One way: the sender's last message counts only once it has arrived.
    if (both_ways_ || sends_ == receives_) return;
    if (sends_) ranks_.recv(std::span<T>(&end_, 1), peer_, end_tag).wait();
    if (receives_) ranks_.send(std::span<const T>(&end_, 1), peer_, end_tag).wait();
  }

  void read_back() override { read_ = read_all<T>(in_); }
  void spoil() override {
    tools::spoil<T>(out_);
    tools::spoil<T>(in_);
  }
  [[nodiscard]] std::int64_t count_wrong() override {
    const std::span<const T> in(in_);
    std::int64_t wrong = 0;
    for (std::size_t at = 0; at < in.size(); at += count_) {
      wrong += expected_.count_wrong(in.subspan(at, count_));
    }
    return wrong;
  }

 private:
  static constexpr int end_tag = 1;

  transport::Communicator& ranks_;
  std::size_t count_;
  std::size_t window_;
  int peer_;
  bool both_ways_;
  bool sends_;
  bool receives_;
  std::pmr::vector<T> out_;
  std::pmr::vector<T> in_;
  T end_ = {};
  Pattern<T> pattern_;
  Pattern<T> expected_;
  std::vector<transport::Request> requests_ = {};
  volatile std::uint64_t read_ = 0;
};

}  // namespace

std::unique_ptr<BenchOperation> make_bandwidth(const BenchSetting& setting) {
  return make_typed<Bandwidth>(setting);
}

}  // namespace rondo::tools
