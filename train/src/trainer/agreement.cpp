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
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <xxhash.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::train {
namespace {

enum class ErrorKind : std::uint8_t { none, config, data, numeric, argument, transport, other };

/// A failure as it travels; longer texts are cut.
struct Report {
  ErrorKind kind = ErrorKind::none;
  std::string text = {};
};

using Message = std::array<std::uint8_t, 1024>;

// World::abort() carries nothing but a text, so every reason that is given here begins with the
// kind of the error, and only what stands directly behind the transport's own words tells it.
constexpr std::string_view before_reason = " aborted the job: ";
constexpr std::array<std::pair<ErrorKind, std::string_view>, 6> names_of_errors{{
    {ErrorKind::config, "configuration error: "},
    {ErrorKind::data, "data error: "},
    {ErrorKind::numeric, "numeric error: "},
    {ErrorKind::argument, "invalid argument: "},
    {ErrorKind::transport, "transport error: "},
    {ErrorKind::other, "unforeseen error: "},
}};

// Memory that one rank lacks is no matter of its peers.
ErrorKind kind_of(const transport::Error& error) {
  return error.code() == transport::Errc::out_of_memory ? ErrorKind::other : ErrorKind::transport;
}

Report report_of(const std::exception_ptr& error) {
  if (error == nullptr) return {};
  try {
    std::rethrow_exception(error);
  } catch (const ConfigError& known) {
    return {ErrorKind::config, known.what()};
  } catch (const DataError& known) {
    return {ErrorKind::data, known.what()};
  } catch (const NumericError& known) {
    return {ErrorKind::numeric, known.what()};
  } catch (const std::invalid_argument& known) {
    return {ErrorKind::argument, known.what()};
  } catch (const transport::Error& known) {
    return {kind_of(known), known.what()};
  } catch (const std::exception& other) {
    return {ErrorKind::other, other.what()};
  } catch (...) {
    return {ErrorKind::other, "an exception of an unknown type"};
  }
}

[[noreturn]] void raise(ErrorKind kind, const std::string& text) {
  switch (kind) {
    case ErrorKind::config:
      throw ConfigError(text);
    case ErrorKind::data:
      throw DataError(text);
    case ErrorKind::numeric:
      throw NumericError(text);
    case ErrorKind::argument:
      throw std::invalid_argument(text);
    case ErrorKind::transport:
      throw transport::Error(transport::Errc::aborted, text);
    case ErrorKind::none:
    case ErrorKind::other:
      break;
  }
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
  for (const auto& [kind, name] : names_of_errors) {
    if (kind == report.kind) return std::string(name) + report.text;
  }
  return report.text;
}

// An abort by somebody else tells none.
ErrorKind kind_told_by(std::string_view text) {
  const std::size_t reason = text.find(before_reason);
  if (reason == std::string_view::npos) return ErrorKind::transport;
  text.remove_prefix(reason + before_reason.size());
  for (const auto& [kind, name] : names_of_errors) {
    if (text.starts_with(name)) return kind;
  }
  return ErrorKind::transport;
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
  const auto kind = static_cast<ErrorKind>(message[0]);
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
    const ErrorKind kind = kind_told_by(error.what());
    if (kind == ErrorKind::transport) throw;
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
  world.abort(abort_reason({.kind = ErrorKind::numeric, .text = text}));
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

ParameterHash canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  ParameterHash result{};
  std::ranges::copy(bytes.digest, result.begin());
  return result;
}

}  // namespace

ParameterHash hash_of(const std::vector<std::span<const float>>& arrays) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  for (const std::span<const float> array : arrays) {
    XXH3_128bits_update(state.get(), array.data(), array.size_bytes());
  }
  return canonical(XXH3_128bits_digest(state.get()));
}

ParameterHash digest_of(std::span<const std::byte> bytes) {
  return canonical(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string to_text(const ParameterHash& hash) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text;
  for (const unsigned byte : hash) {
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

namespace {

using RankHashes = std::vector<std::uint8_t>;  // of all ranks, one after another

bool are_equal(const RankHashes& hashes, int a, int b) {
  const auto of = [&](int rank) {
    constexpr std::size_t bytes = std::tuple_size_v<ParameterHash>;
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
void check_replicas(transport::Communicator& all, ProcessGrid grid, const ParameterHash& mine,
                    std::int64_t epoch) {
  RankHashes hashes(static_cast<std::size_t>(all.size()) * mine.size());
  all.allgather(std::span<const std::uint8_t>(mine), std::span(hashes)).wait();
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
