#include "plan/label_front.hpp"

#include <algorithm>

namespace rondo::train {
namespace {

constexpr std::size_t most_labels = 64;

}  // namespace

bool LabelFront::wants(double seconds, std::uint64_t words, bool words_matter) const noexcept {
  return std::ranges::none_of(labels_, [&](const Label& label) {
    return label.seconds <= seconds && (!words_matter || label.words <= words);
  });
}

void LabelFront::insert(const Label& label, bool words_matter) {
  std::erase_if(labels_, [&](const Label& other) {
    return label.seconds <= other.seconds && (!words_matter || label.words <= other.words);
  });
  labels_.insert(std::ranges::upper_bound(labels_, label.seconds, {}, &Label::seconds), label);
  if (labels_.size() > most_labels) thin_out();
}

void LabelFront::thin_out() {
  std::vector<Label> thinned;
  for (std::size_t i = 0; i + 1 < labels_.size(); i += 2) thinned.push_back(labels_[i]);
  thinned.push_back(labels_.back());
  labels_ = std::move(thinned);
}

}  // namespace rondo::train
