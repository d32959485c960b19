#include "schemes/script.hpp"

#include <stdexcept>

namespace rondo::sync {
namespace {

std::string describe(const Turn& turn) {
  const char* kind = "a push";
  if (turn.kind == Turn::Kind::skip) kind = "a skip";
  if (turn.kind == Turn::Kind::park) kind = "a park";
  return std::string(kind) + " after " + std::to_string(turn.minibatches) + " mini-batches";
}

void check(const Turn& turn, int workers) {
  const bool empty = turn.minibatches == 0;
  if (turn.worker >= 0 && turn.worker < workers && turn.minibatches >= 0 &&
      (turn.kind == Turn::Kind::park || empty == (turn.kind == Turn::Kind::skip))) {
    return;
  }
  throw std::invalid_argument("cyclic: the script has " + describe(turn) + " of worker " +
                              std::to_string(turn.worker) + " of " + std::to_string(workers));
}

}  // namespace

Script::Script(std::span<const Turn> trace, int worker, int workers) {
  for (const Turn& turn : trace) {
    check(turn, workers);
    if (turn.worker == worker) mine_.push_back(turn);
  }
}

void Script::follow(const Turn& turn) {
  const Turn* expected = next();
  if (expected == nullptr) return;
  if (turn != *expected) {
    throw std::runtime_error("cyclic: worker " + std::to_string(turn.worker) + " had " +
                             describe(turn) + ", where its script has " + describe(*expected));
  }
  ++position_;
}

}  // namespace rondo::sync
