#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rondo::train {

// A way to reach a state of the search.
struct Label {
  double seconds = 0.0;
  std::uint64_t words = 0;
  std::size_t step = 0;  // its last step, by which the way is found again
};

// The ways to reach one state of which none has both fewer seconds and fewer words than another:
// seconds rise, words fall. Where words do not matter only the fastest is kept.
//
// At most 64 are kept; of more every second one is left out, but never the fastest nor the
// smallest.
class LabelFront {
 public:
  // Would a way with these numbers be kept?
  [[nodiscard]] bool wants(double seconds, std::uint64_t words, bool words_matter) const noexcept;
  // A way that is wanted.
  void insert(const Label& label, bool words_matter);

  [[nodiscard]] const std::vector<Label>& labels() const noexcept { return labels_; }

 private:
  void thin_out();

  std::vector<Label> labels_;
};

}  // namespace rondo::train
