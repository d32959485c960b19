#pragma once

#include <functional>
#include <string>
#include <vector>

namespace rondo::transport {
class World;
}

namespace rondo::train {

// An error ends a run on all ranks alike: with an exception of the same type, so that a program
// which chooses its exit status by it ends with the same one on every rank. ConfigError, DataError,
// NumericError, std::invalid_argument and transport::Error keep their types on other ranks; all
// else becomes std::runtime_error there.

/// Runs `work`, which does not communicate, on every rank; when it threw on some rank, throws on
/// all of them: its own error on a rank that has one of that type, else that of the first failing
/// rank, with the rank named in front. Collective.
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

/// Runs `work`, in which ranks communicate. When it throws on one rank alone, whatever that is, the
/// World is aborted with the reason; ranks that wait for each other then throw the same type, with
/// the rank named. NumericError is thrown by all ranks, each by itself, and aborts nothing.
void end_together(transport::World& world, const std::function<void()>& work);

}  // namespace rondo::train
