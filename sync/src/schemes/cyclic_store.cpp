#include "schemes/cyclic_store.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>

namespace rondo::sync {
namespace {

/// The first worker of this rank's node, among the nodes of all workers.
int first_of_node(transport::World& world, transport::Communicator& workers) {
  std::vector<std::int32_t> nodes(static_cast<std::size_t>(workers.size()));
  const std::int32_t mine = world.ranks()[static_cast<std::size_t>(world.rank())].node;
  workers.allgather(std::span(&mine, 1), std::span(nodes)).wait();
  return static_cast<int>(std::ranges::find(nodes, mine) - nodes.begin());
}

}  // namespace

CyclicStore::CyclicStore(transport::World& world, transport::Communicator& workers,
                         std::size_t parameters, std::size_t state)
    : parameters_(parameters),
      own_(&world.arena()),
      own_words_(StoreWords{}.size(), 0, &world.arena()) {
  const int first = first_of_node(world, workers);
  own_.resize(workers.rank() == first ? parameters + state : 1, 0.0F);
  if (own_.empty()) own_.resize(1);  // a model without parameters
  const auto arrays = workers.share(std::span(own_));
  const auto words = workers.share(std::span(own_words_));
  std::ranges::transform(arrays, std::back_inserter(reached_),
                         [](std::span<float> array) { return !array.empty(); });
  all_ = arrays[index(first)].first(parameters + state);
  words_ = words[index(first)];
}

std::int64_t CyclicStore::get(StoreWord word) const noexcept {
  // Acquire: whoever sees a park sees the words that were set before it.
  return std::atomic_ref(words_[static_cast<std::size_t>(word)]).load(std::memory_order_acquire);
}

void CyclicStore::set(StoreWord word, std::int64_t value) noexcept {
  // Release: pairs with the acquire in get().
  std::atomic_ref(words_[static_cast<std::size_t>(word)]).store(value, std::memory_order_release);
}

StoreWords CyclicStore::words() const noexcept {
  StoreWords words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = get(static_cast<StoreWord>(i));
  return words;
}

// The parks come after all that they announce.
void CyclicStore::set_words(const StoreWords& words) noexcept {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (static_cast<StoreWord>(i) != StoreWord::parks) set(static_cast<StoreWord>(i), words[i]);
  }
  set(StoreWord::parks, words[static_cast<std::size_t>(StoreWord::parks)]);
}

}  // namespace rondo::sync
