#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/partition.hpp>
#include <rondo/transport/communicator.hpp>

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

/// The same of work that only rank 0 does, for however long: the others wait without a limit, and
/// are told if rank 0 fails.
void agree_on_first_rank(transport::World& world, const std::function<void()>& work);

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

/// Throws an Error on every rank where one has other `facts` than rank 0: `before`, in what they
/// differ, then `advice`. Collective.
template <typename Error>
void expect_alike(transport::World& world, const std::vector<Fact>& facts, std::string_view advice,
                  std::string_view before = {}) {
  const std::string difference = difference_from_first_rank(world, facts);
  agree_on(world, [&] {
    if (!difference.empty()) throw Error(std::string(before) + difference + std::string(advice));
  });
}

/// Runs `work`, in which ranks communicate. When it throws on one rank alone, whatever that is, the
/// World is aborted with the reason; ranks that wait for each other then throw the same type, with
/// the rank named. Errors of agree_on() and throw_on_all() abort nothing.
void end_together(transport::World& world, const std::function<void()>& work);

/// Within such work: throws a NumericError that all ranks throw in this place, each by itself.
[[noreturn]] void throw_on_all(const std::string& text);

/// Is the exception that is being handled one that all ranks throw?
[[nodiscard]] bool is_thrown_by_all() noexcept;

/// Within such work: aborts the World by a NumericError that this rank alone knows of, and throws
/// it.
[[noreturn]] void end_not_finite_alone(transport::World& world, const std::string& text);

/// Compares the checksums of what ranks in one position of the grid's replicas must hold in equal
/// bits: `mine` is this rank's. Throws NumericError on every rank of the grid, also where only
/// ranks of another position differ; it names those that differ from the first one of their
/// position. Collective over `all`, the ranks of the grid.
void check_replicas(transport::Communicator& all, ProcessGrid grid, const std::string& mine,
                    std::int64_t epoch);

}  // namespace rondo::train
