#pragma once

#include <functional>
#include <string>
#include <vector>

namespace rondo::transport {
class World;
}

namespace rondo::train {

/// Runs `work`, which does not communicate, on every rank; when it threw on some rank, throws on
/// all of them: its own error on a rank that has one, else that of the first failing rank, with
/// the rank named in front. ConfigError, DataError and std::invalid_argument keep their types,
/// others become std::runtime_error. Collective.
void agree_on(transport::World& world, const std::function<void()>& work);

/// `text` of rank 0. Collective.
[[nodiscard]] std::string text_of_first_rank(transport::World& world, const std::string& text);

/// Something that all ranks must have alike: what it is called, and what this rank has.
struct Fact {
  std::string name = {};
  std::string value = {};
};

/// In what this rank's `facts` differ from those of rank 0, "NAME: rank 2 has X, and rank 0 has Y";
/// empty when they do not. Every rank names the same facts in the same order. Collective.
[[nodiscard]] std::string difference_from_first_rank(transport::World& world,
                                                     const std::vector<Fact>& facts);

}  // namespace rondo::train
