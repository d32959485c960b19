// How ranks that must not go on apart learn of each other's errors. Every rank tells in one small
// allreduce whether it has failed; only when one has do they exchange the type and the text of the
// first failure, so that all throw the same type.

#include "trainer/agreement.hpp"

#include <algorithm>
#include <array>
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

namespace rondo::train {
namespace {

enum class Kind : std::uint8_t { none, config, data, numeric, argument, transport, other };

/// A failure as it travels; longer texts are cut.
struct Report {
  Kind kind = Kind::none;
  std::string text = {};
};

using Message = std::array<std::uint8_t, 1024>;

// World::abort() carries nothing but a text, so the kind of an error is in its first words. Errors
// of the transport have none: what an abort makes of them on other ranks is their kind already.
constexpr std::array<std::pair<Kind, std::string_view>, 5> names_of_kinds{{
    {Kind::config, "configuration error: "},
    {Kind::data, "data error: "},
    {Kind::numeric, "numeric error: "},
    {Kind::argument, "invalid argument: "},
    {Kind::other, "unforeseen error: "},
}};

// Memory that one rank lacks is no matter of its peers.
Kind kind_of(const transport::Error& error) {
  return error.code() == transport::Errc::out_of_memory ? Kind::other : Kind::transport;
}

Report report_of(const std::exception_ptr& error) {
  if (error == nullptr) return {};
  try {
    std::rethrow_exception(error);
  } catch (const ConfigError& known) {
    return {Kind::config, known.what()};
  } catch (const DataError& known) {
    return {Kind::data, known.what()};
  } catch (const NumericError& known) {
    return {Kind::numeric, known.what()};
  } catch (const std::invalid_argument& known) {
    return {Kind::argument, known.what()};
  } catch (const transport::Error& known) {
    return {kind_of(known), known.what()};
  } catch (const std::exception& other) {
    return {Kind::other, other.what()};
  } catch (...) {
    return {Kind::other, "an exception of an unknown type"};
  }
}

[[noreturn]] void raise(Kind kind, const std::string& text) {
  switch (kind) {
    case Kind::config:
      throw ConfigError(text);
    case Kind::data:
      throw DataError(text);
    case Kind::numeric:
      throw NumericError(text);
    case Kind::argument:
      throw std::invalid_argument(text);
    case Kind::transport:
      throw transport::Error(transport::Errc::aborted, text);
    case Kind::none:
    case Kind::other:
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
  for (const auto& [kind, name] : names_of_kinds) {
    if (kind == report.kind) return std::string(name) + report.text;
  }
  return report.text;
}

// The kind that stands first in the text, in which transport has put words of its own around the
// reason.
Kind kind_told_by(std::string_view text) {
  Kind told = Kind::transport;
  std::size_t first = std::string_view::npos;
  for (const auto& [kind, name] : names_of_kinds) {
    const std::size_t found = text.find(name);
    if (found >= first) continue;
    first = found;
    told = kind;
  }
  return told;
}

Message pack(const Report& report) {
  Message message{};
  message[0] = static_cast<std::uint8_t>(report.kind);
  const std::size_t length = std::min(report.text.size(), message.size() - 2);
  std::copy_n(report.text.begin(), length, message.begin() + 1);  // and a zero behind it
  return message;
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
  const int rank = first_failing[0];
  if (rank == world.size()) return;

  const Report own = report_of(error);
  Message message = pack(own);
  all.broadcast(std::span<std::uint8_t>(message), rank).wait();
  const auto kind = static_cast<Kind>(message[0]);
  if (own.kind == kind) std::rethrow_exception(error);
  const std::string text(message.begin() + 1, std::find(message.begin() + 1, message.end(), 0));
  raise(kind, "rank " + std::to_string(rank) + ": " + text);
}

void end_together(transport::World& world, const std::function<void()>& work) {
  try {
    work();
  } catch (const NumericError&) {
    throw;  // found in what all ranks have summed up or gathered, so all of them throw it
  } catch (const transport::Error& error) {
    if (error.code() != transport::Errc::aborted) {
      world.abort(abort_reason(report_of(std::current_exception())));
      throw;
    }
    const Kind kind = kind_told_by(error.what());
    if (kind == Kind::transport) throw;
    raise(kind, error.what());
  } catch (...) {
    world.abort(abort_reason(report_of(std::current_exception())));
    throw;
  }
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

}  // namespace rondo::train
