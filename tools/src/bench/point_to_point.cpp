// Messages between ranks: there and back (latency), many in flight (bandwidth), signals (token),
// and the exchange of halos. In the first three, ranks that do not take part only wait at the
// starting line.
//
// For halos, each rank has a tile of an image, and its neighbours need the edges. Ranks form a grid
// that is as square as possible. Tiles are stored with a frame of one pixel that belongs to the
// neighbours, so messages are strided; corners are messages of their own.
//
// Results are patterns that depend on the sending rank and the element, so that a message from the
// wrong rank, or with an offset, is noticed.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/transport/communicator.hpp>

#include "bench/operation.hpp"

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

  // There and back are two messages.
  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = out_.size() * sizeof(T), .count = out_.size(), .calls = 2 * round_trips()};
  }

  void rewrite() override { pattern_.fill(out_); }
  // Several round trips make one sample where messages are small; facts().calls says how many.
  void run() override {
    if (!takes_part_) return;
    for (int trip = 0; trip < round_trips(); ++trip) {
      // The first rank sends and then waits, the second one waits and then sends: at any time one
      // message is on its way.
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

// So many messages are in flight that the link is never idle, but their buffers fit into memory.
constexpr std::size_t most_in_flight_bytes = std::size_t{32} << 20U;
constexpr std::size_t most_in_flight = 64;

// A window of messages, all in flight at once, one way or both ways.
template <transport::Element T>
class Bandwidth final : public BenchOperation {
 public:
  explicit Bandwidth(const BenchSetting& setting)
      : ranks_(*setting.ranks),
        count_(setting.bytes / sizeof(T)),
        // Many small messages or a few large ones, but always two: else a link would be idle
        // between them.
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

  // The time is divided by the messages of the window; both ways count twice on the bus.
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
      // Receives go first, so that a message finds its buffer when it arrives.
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
  // Apart from the messages of the window.
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
        put_token(second_);
        await_token(second_);
      } else if (rank == second_) {
        await_token(first_);
        put_token(first_);
      }
    }
  }

  [[nodiscard]] std::int64_t count_wrong() override { return wrong_; }

 private:
  static constexpr int round_trips = 8;

  // A signal is a number in the peer's memory: no message, no matching.
  void put_token(int peer) { ranks_.put_signal(peer, number_).wait(); }
  void await_token(int peer) {
    std::uint64_t value = 0;
    ranks_.wait_signal(peer, value).wait();
    if (value != number_) ++wrong_;
  }

  transport::Communicator& ranks_;
  int first_;
  int second_;
  // Counts up, so that a token that is lost or repeated is seen.
  std::uint64_t number_ = 0;
  std::int64_t wrong_ = 0;
};

using transport::Strided;

// One rank's tile of an image, square, its channels together, in a frame of one pixel that
// belongs to the neighbours. Edges and corners are exchanged; sizes are those of one edge.
template <transport::Element T>
class Halo final : public BenchOperation {
 public:
  explicit Halo(const BenchSetting& setting)
      : ranks_(*setting.ranks),
        grid_(ProcessGrid::of(ranks_.size())),
        channels_(channels_for(setting.bytes / sizeof(T))),
        width_(setting.bytes / sizeof(T) / channels_),
        tile_((width_ + 2) * (width_ + 2) * channels_, T{}, setting.memory),
        pattern_(Pattern<T>::moved(ranks_.rank())) {
    for (int down = -1; down <= 1; ++down) {
      for (int right = -1; right <= 1; ++right) {
        // A neighbour that is this rank itself (a grid of one row or column) exchanges nothing.
        const int peer = grid_.neighbour(ranks_.rank(), down, right);
        if (peer >= 0 && peer != ranks_.rank()) add_side(peer, down, right);
      }
    }
  }

  [[nodiscard]] BenchFacts facts() const override {
    const std::size_t edge = width_ * channels_;
    return {.bytes = edge * sizeof(T), .count = edge, .bus_factor = edges_of_the_busiest_rank()};
  }

  void rewrite() override {
    for (std::size_t y = 0; y < width_; ++y) {
      pattern_.fill({pixel(y + 1, 1), width_ * channels_}, y * width_ * channels_);
    }
  }
  void run() override { ranks_.sendrecv(neighbours_).wait(); }
  void read_back() override {
    std::uint64_t sum = 0;
    for_each_received_row(
        [&](const Side&, std::span<const T> row, std::size_t) { sum += read_all<T>(row); });
    read_ = sum;
  }
  void spoil() override { tools::spoil<T>(tile_); }

  [[nodiscard]] std::int64_t count_wrong() override {
    std::int64_t wrong = 0;
    for_each_received_row([&](const Side& side, std::span<const T> row, std::size_t offset) {
      wrong += Pattern<T>::moved(side.peer).count_wrong(row, offset);
    });
    return wrong;
  }

 private:
  // Where the tile borders on one neighbour's.
  struct Side {
    int peer;
    int down;
    int right;
  };

  // As the images of a convolution have them, where the edge is long enough.
  static std::size_t channels_for(std::size_t count) noexcept { return count % 16 == 0 ? 16 : 1; }

  // Pixel (0, 0) is the frame's corner.
  [[nodiscard]] T* pixel(std::size_t y, std::size_t x) noexcept {
    return tile_.data() + (y * (width_ + 2) + x) * channels_;
  }

  // First pixel that is sent to the side at `step`, and that is received from it, along one axis.
  [[nodiscard]] std::size_t sent(int step) const noexcept { return step > 0 ? width_ : 1; }
  [[nodiscard]] std::size_t received(int step) const noexcept {
    if (step == 0) return 1;
    return step > 0 ? width_ + 1 : 0;
  }
  [[nodiscard]] std::size_t extent(int step) const noexcept { return step == 0 ? width_ : 1; }

  // Directions count from 0 to 8; the tag of a message is the direction in which it travels.
  void add_side(int peer, int down, int right) {
    const std::size_t rows = extent(down);
    const std::size_t row = extent(right) * channels_;
    // Edges are columns or rows of the tile: a row of elements for each pixel row, with the frame's
    // stride.
    const std::size_t stride = (width_ + 2) * channels_;
    const int direction = 3 * (down + 1) + right + 1;
    neighbours_.emplace_back(peer,
                             Strided<const T>(pixel(sent(down), sent(right)), rows, row, stride),
                             Strided<T>(pixel(received(down), received(right)), rows, row, stride),
                             direction, 8 - direction);
    sides_.push_back({peer, down, right});
  }

  // Calls `visit` with each row of the frame, and its position in the neighbour's own tile.
  template <typename Visit>
  void for_each_received_row(Visit visit) {
    for (const Side& side : sides_) {
      // The neighbour sends what is on its opposite side.
      const std::size_t x = sent(-side.right) - 1;
      for (std::size_t i = 0; i < extent(side.down); ++i) {
        const std::size_t y = sent(-side.down) - 1 + i;
        visit(side,
              std::span<const T>(pixel(received(side.down) + i, received(side.right)),
                                 extent(side.right) * channels_),
              (y * width_ + x) * channels_);
      }
    }
  }

  // The edges that the busiest rank sends: a corner is one pixel of an edge.
  [[nodiscard]] double edges_of_the_busiest_rank() const noexcept {
    const double corner = 1.0 / static_cast<double>(width_);
    double most = 0.0;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      double edges = 0.0;
      for (int down = -1; down <= 1; ++down) {
        for (int right = -1; right <= 1; ++right) {
          const int peer = grid_.neighbour(rank, down, right);
          if (peer >= 0 && peer != rank) edges += down != 0 && right != 0 ? corner : 1.0;
        }
      }
      most = std::max(most, edges);
    }
    return most;
  }

  transport::Communicator& ranks_;
  ProcessGrid grid_;
  std::size_t channels_;
  std::size_t width_;
  std::pmr::vector<T> tile_;
  Pattern<T> pattern_;
  std::vector<transport::Neighbour> neighbours_ = {};
  std::vector<Side> sides_ = {};
  volatile std::uint64_t read_ = 0;
};

}  // namespace

std::unique_ptr<BenchOperation> make_latency(const BenchSetting& setting) {
  return make_typed<Latency>(setting);
}

std::unique_ptr<BenchOperation> make_bandwidth(const BenchSetting& setting) {
  return make_typed<Bandwidth>(setting);
}

std::unique_ptr<BenchOperation> make_token(const BenchSetting& setting) {
  return std::make_unique<Token>(setting);
}

std::unique_ptr<BenchOperation> make_halo(const BenchSetting& setting) {
  return make_typed<Halo>(setting);
}

}  // namespace rondo::tools
