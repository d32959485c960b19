// How ranks that must not go on apart learn of each other's errors, and how they prove that they
// hold the same.
//
// Before the run, and wherever all ranks are at the same place, each tells in one small allreduce
// whether it has failed; only when one has do they exchange the type and the text of the first
// failure, so that all throw the same type (agree_on). In the middle of a step ranks are at
// different places: there the one that fails aborts the world, and the kind of its error travels in
// the first words of the reason (end_together).
//
// Replicas that train the same parameters must hold the same bits. Hashes of them are compared
// after an epoch; a difference means that builds, threads or data differ, and training on would
// hide it.

#include "trainer/agreement.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "weights/checksum.hpp"

namespace rondo::train {
namespace {

/// A type of error that keeps its type on other ranks.
struct KindOfError {
  // World::abort() carries nothing but a text, so every reason that is given here begins with this
  // name, and only what stands directly behind the transport's own words tells it.
  std::string_view name;
  bool (*is)(const std::exception& error);
  void (*raise)(const std::string& text);
};

template <typename Error>
bool has_type(const std::exception& error) {
  return dynamic_cast<const Error*>(&error) != nullptr;
}

template <typename Error>
void raise_as(const std::string& text) {
  throw Error(text);
}

bool is_any(const std::exception& /*error*/) { return true; }

// Memory that one rank lacks is no matter of its peers.
bool is_of_transport(const std::exception& error) {
  const auto* known = dynamic_cast<const transport::Error*>(&error);
  return known != nullptr && known->code() != transport::Errc::out_of_memory;
}

void raise_aborted(const std::string& text) {
  throw transport::Error(transport::Errc::aborted, text);
}

// Reports say an index of this list; the last one is of all other errors.
constexpr std::array kinds_of_errors{
    KindOfError{"configuration error: ", has_type<ConfigError>, raise_as<ConfigError>},
    KindOfError{"data error: ", has_type<DataError>, raise_as<DataError>},
    KindOfError{"numeric error: ", has_type<NumericError>, raise_as<NumericError>},
    KindOfError{"invalid argument: ", has_type<std::invalid_argument>,
                raise_as<std::invalid_argument>},
    KindOfError{"transport error: ", is_of_transport, raise_aborted},
    KindOfError{"unforeseen error: ", is_any, raise_as<std::runtime_error>},
};
constexpr std::size_t numeric_error = 2;
constexpr std::size_t transport_error = 4;
constexpr std::size_t no_error = kinds_of_errors.size();
constexpr std::size_t other_error = no_error - 1;

/// A failure as it travels; longer texts are cut.
struct Report {
  std::size_t kind = no_error;
  std::string text = {};
};

using Message = std::array<std::uint8_t, 1024>;

constexpr std::string_view before_reason = " aborted the job: ";

Report report_of(const std::exception_ptr& error) {
  if (error == nullptr) return {};
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    const auto kind = std::ranges::find_if(kinds_of_errors,
                                           [&](const KindOfError& one) { return one.is(known); });
    return {static_cast<std::size_t>(kind - kinds_of_errors.begin()), known.what()};
  } catch (...) {
    return {other_error, "an exception of an unknown type"};
  }
}

[[noreturn]] void raise(std::size_t kind, const std::string& text) {
  kinds_of_errors[std::min(kind, other_error)].raise(text);
  throw std::runtime_error(text);
}

constexpr std::size_t longest_value = 100;  // in a message

std::string disagreement(const Fact& mine, const Fact& first, int rank) {
  const std::string who = mine.name + ": rank " + std::to_string(rank) + " has ";
  if (std::max(mine.value.size(), first.value.size()) > longest_value) {
    return who + "another value than rank 0";
  }
  return who + mine.value + ", and rank 0 has " + first.value;
}

std::string abort_reason(const Report& report) {
  return std::string(kinds_of_errors[report.kind].name) + report.text;
}

// An abort by somebody else tells none.
std::size_t kind_told_by(std::string_view text) {
  const std::size_t reason = text.find(before_reason);
  if (reason == std::string_view::npos) return transport_error;
  text.remove_prefix(reason + before_reason.size());
  const auto told = std::ranges::find_if(
      kinds_of_errors, [&](const KindOfError& kind) { return text.starts_with(kind.name); });
  return told == kinds_of_errors.end() ? transport_error
                                       : static_cast<std::size_t>(told - kinds_of_errors.begin());
}

Message pack(const Report& report) {
  Message message{};
  message[0] = static_cast<std::uint8_t>(report.kind);
  const std::size_t length = std::min(report.text.size(), message.size() - 2);
  std::copy_n(report.text.begin(), length, message.begin() + 1);  // and a zero behind it
  return message;
}

// What was thrown last on all ranks, or is known to all of them, on this rank's thread.
thread_local std::exception_ptr thrown_by_all;

// An error that all ranks throw together leaves the World as it was: the program may train again.
bool leaves_the_world() {
  return std::current_exception() == std::exchange(thrown_by_all, nullptr);
}

// A rank alone has nobody to tell, and its program may train again in the same World.
void tell_others(transport::World& world) {
  if (world.size() > 1) world.abort(abort_reason(report_of(std::current_exception())));
}

}  // namespace

void agree_on(transport::World& world, const std::function<void()>& work) {
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  transport::Communicator& all = world.communicator();
  std::array first_failing{error == nullptr ? world.size() : world.rank()};
  all.allreduce(std::span<int>(first_failing), transport::ReduceOp::min).wait();
  // The lowest rank that has failed: all of them know it after the allreduce.
  const int rank = first_failing[0];
  if (rank == world.size()) return;

  const Report own = report_of(error);
  Message message = pack(own);
  all.broadcast(std::span<std::uint8_t>(message), rank).wait();
  const std::size_t kind = message[0];
  try {
    // A rank that failed in the same way keeps its own error, which says more about itself.
    if (own.kind == kind) std::rethrow_exception(error);
    // The message is a kind, then a text that ends with a zero.
    const std::string text(message.begin() + 1, std::find(message.begin() + 1, message.end(), 0));
    raise(kind, "rank " + std::to_string(rank) + ": " + text);
  } catch (...) {
    thrown_by_all = std::current_exception();
    throw;
  }
}

void end_together(transport::World& world, const std::function<void()>& work) {
  try {
    work();
  } catch (const transport::Error& error) {
    if (leaves_the_world()) throw;
    // A lost peer, for example: the others may not have heard of it yet.
    if (error.code() != transport::Errc::aborted) {
      tell_others(world);
      throw;
    }
    const std::size_t kind = kind_told_by(error.what());
    if (kind == transport_error) throw;
    raise(kind, error.what());
  } catch (...) {
    if (leaves_the_world()) throw;
    tell_others(world);
    throw;
  }
}

void throw_on_all(const std::string& text) {
  try {
    throw NumericError(text);
  } catch (...) {
    thrown_by_all = std::current_exception();
    throw;
  }
}

bool is_thrown_by_all() noexcept { return std::current_exception() == thrown_by_all; }

void end_not_finite_alone(transport::World& world, const std::string& text) {
  world.abort(abort_reason({.kind = numeric_error, .text = text}));
  throw_on_all(text);  // to all others by the abort
}

void agree_on_first_rank(transport::World& world, const std::function<void()>& work) {
  std::exception_ptr error;
  if (world.rank() == 0) {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  }
  std::array done{0};
  transport::Request told = world.communicator().broadcast(std::span<int>(done), 0);
  static_cast<void>(told.wait_for(std::chrono::nanoseconds::max()));
  agree_on(world, [&] {
    if (error) std::rethrow_exception(error);
  });
}

std::string text_of_first_rank(transport::World& world, const std::string& text) {
  transport::Communicator& all = world.communicator();
  std::array size{static_cast<std::int64_t>(text.size())};
  all.broadcast(std::span<std::int64_t>(size), 0).wait();
  std::vector<std::uint8_t> bytes(text.begin(), text.end());
  bytes.resize(static_cast<std::size_t>(size[0]));
  if (!bytes.empty()) all.broadcast(std::span<std::uint8_t>(bytes), 0).wait();
  return {bytes.begin(), bytes.end()};
}

// The values travel one behind the other, each with a zero behind it.
std::string difference_from_first_rank(transport::World& world, const std::vector<Fact>& facts) {
  std::string values;
  for (const Fact& fact : facts) values += fact.value + '\0';
  const std::string all_of_first = text_of_first_rank(world, values);
  std::size_t next = 0;
  for (const Fact& mine : facts) {
    const std::size_t end = std::min(all_of_first.find('\0', next), all_of_first.size());
    const Fact first{mine.name, all_of_first.substr(next, end - next)};
    if (mine.value != first.value) return disagreement(mine, first, world.rank());
    next = std::min(end + 1, all_of_first.size());
  }
  return {};
}

namespace {

// The checksums of all ranks, one after another.
using RankHashes = std::vector<std::uint8_t>;

bool are_equal(const RankHashes& hashes, int a, int b) {
  const auto of = [&](int rank) {
    constexpr std::size_t bytes = checksum_digits;
    return std::span(hashes).subspan(static_cast<std::size_t>(rank) * bytes, bytes);
  };
  return std::ranges::equal(of(a), of(b));
}

// "rank(s) 1, 3 differ from rank 0"; empty: all replicas hold the same there.
std::string difference_at(int position, ProcessGrid grid, const RankHashes& hashes) {
  const int first = grid.rank_at(0, position);
  std::string differing;
  for (int replica = 1; replica < grid.pc; ++replica) {
    const int rank = grid.rank_at(replica, position);
    if (are_equal(hashes, first, rank)) continue;
    differing += (differing.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (differing.empty()) return {};
  return "rank(s) " + differing + " differ from rank " + std::to_string(first);
}

}  // namespace

// All ranks compare all positions, so that all throw where one replica differs in one position.
void check_replicas(transport::Communicator& all, ProcessGrid grid, const std::string& mine,
                    std::int64_t epoch) {
  const std::vector<std::uint8_t> own(mine.begin(), mine.end());
  RankHashes hashes(static_cast<std::size_t>(all.size()) * own.size());
  all.allgather(std::span<const std::uint8_t>(own), std::span(hashes)).wait();
  std::string differences;
  for (int position = 0; position < grid.pr; ++position) {
    const std::string difference = difference_at(position, grid, hashes);
    if (!difference.empty()) differences += (differences.empty() ? "" : "; ") + difference;
  }
  if (differences.empty()) return;
  throw_on_all("after epoch " + std::to_string(epoch) +
               " the replicas do not hold the same parameters: " + differences +
               "; run all ranks with the same build, threads and data");
}

}  // namespace rondo::train
