#include "schemes/slice_allreduce.hpp"

#include <algorithm>

namespace rondo::sync {

void SliceAllreduce::add(transport::Communicator& slice, std::size_t size) {
  if (!pieces_.empty() && pieces_.back().slice == &slice) {
    pieces_.back().size += size;
  } else {
    pieces_.push_back({&slice, size});
  }
}

void SliceAllreduce::post(std::span<float> values, SchemeCounters& counters) {
  post(values);
  for (const Piece& piece : pieces_) {
    if (!piece.is_reduced()) continue;
    ++counters.collectives;
    counters.global_bytes += piece.size * sizeof(float);
  }
}

void SliceAllreduce::post(std::span<float> values) {
  std::size_t offset = 0;
  for (Piece& piece : pieces_) {
    if (piece.is_reduced()) {
      piece.request = piece.slice->allreduce(values.subspan(offset, piece.size));
    }
    offset += piece.size;
  }
}

void SliceAllreduce::wait() {
  for (Piece& piece : pieces_) piece.request.wait();
}

bool SliceAllreduce::reduces() const noexcept {
  return std::ranges::any_of(pieces_, &Piece::is_reduced);
}

}  // namespace rondo::sync
