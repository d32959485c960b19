#include "bench/collective_operation.hpp"
#include "bench/operations/operations.hpp"

namespace rondo::tools {
namespace {

// A message goes there and back; the time is that of one way.
template <transport::Element T>
class Latency final : public BenchOperation {
 public:
  explicit Latency(const BenchSetting& setting)
      : ranks_(*setting.ranks),
        peer_(ranks_.rank() == setting.first ? setting.second : setting.first),
        begins_(ranks_.rank() == setting.first),
        takes_part_(begins_ || ranks_.rank() == setting.second),
        out_(setting.bytes / sizeof(T), T{}, setting.memory),
        in_(setting.bytes / sizeof(T), T{}, setting.memory),
        pattern_(Pattern<T>::moved(ranks_.rank())),
        expected_(Pattern<T>::moved(peer_)) {}

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = out_.size() * sizeof(T), .count = out_.size(), .calls = 2 * round_trips()};
  }

  void rewrite() override { pattern_.fill(out_); }
  void run() override {
    if (!takes_part_) return;
    for (int trip = 0; trip < round_trips(); ++trip) {
      if (begins_) send();
      ranks_.recv(std::span<T>(in_), peer_).wait();
      if (!begins_) send();
    }
  }
  void read_back() override { read_ = read_all<T>(in_); }
  void spoil() override {
    tools::spoil<T>(out_);
    tools::spoil<T>(in_);
  }
  [[nodiscard]] std::int64_t count_wrong() override {
    return takes_part_ ? expected_.count_wrong(in_) : 0;
  }

 private:
  // Reading the clock takes longer than a small message.
  [[nodiscard]] int round_trips() const noexcept { return out_.size() * sizeof(T) <= 8192 ? 8 : 1; }
  void send() { ranks_.send(std::span<const T>(out_), peer_).wait(); }

  transport::Communicator& ranks_;
  int peer_;
  bool begins_;
  bool takes_part_;
  std::pmr::vector<T> out_;
  std::pmr::vector<T> in_;
  Pattern<T> pattern_;
  Pattern<T> expected_;
  volatile std::uint64_t read_ = 0;
};

}  // namespace

std::unique_ptr<BenchOperation> make_latency(const BenchSetting& setting) {
  return make_typed<Latency>(setting);
}

}  // namespace rondo::tools
