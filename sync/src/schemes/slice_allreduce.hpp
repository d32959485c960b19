#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/request.hpp>

namespace rondo::sync {

/// Sums an array whose pieces belong to several slices, each over the ranks of its own. Adjacent
/// pieces of the same slice travel together.
class SliceAllreduce {
 public:
  /// The next piece, of `size` elements; before the first post(). `slice` is lent.
  void add(transport::Communicator& slice, std::size_t size);

  /// Posts them in order, all of an array that is as long as the pieces together, and counts it.
  void post(std::span<float> values, SchemeCounters& counters);
  void post(std::span<float> values);
  void wait();

  /// Is there another rank to meet?
  [[nodiscard]] bool reduces() const noexcept;

 private:
  struct Piece {
    transport::Communicator* slice;
    std::size_t size;
    transport::Request request = {};

    [[nodiscard]] bool is_reduced() const noexcept { return size > 0 && slice->size() > 1; }
  };

  std::vector<Piece> pieces_;
};

}  // namespace rondo::sync
