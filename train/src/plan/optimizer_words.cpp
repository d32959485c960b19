#include <rondo/train/optimizer_words.hpp>

namespace rondo::train {

int optimizer_words(const Experiment::Optimizer& optimizer) {
  return optimizer.name == "sgd" ? 1 : 2;
}

}  // namespace rondo::train
