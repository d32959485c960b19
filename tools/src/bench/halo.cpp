// The exchange of halos: each rank has a tile of an image, and its neighbours need the edges.
//
// Ranks form a grid that is as square as possible. Tiles are stored with a frame of one pixel that
// belongs to the neighbours, so messages are strided; corners are messages of their own.

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
      // What the neighbour sends is on its opposite side.
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

  // What the busiest rank sends, in edges: a corner is one pixel of an edge.
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

std::unique_ptr<BenchOperation> make_halo(const BenchSetting& setting) {
  return make_typed<Halo>(setting);
}

}  // namespace rondo::tools
