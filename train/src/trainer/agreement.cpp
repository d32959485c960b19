#include "trainer/agreement.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::train {
namespace {

enum class Kind : std::uint8_t { none, config, data, argument, other };

/// A failure as it travels; longer texts are cut.
struct Report {
  Kind kind = Kind::none;
  std::string text = {};
};

using Message = std::array<std::uint8_t, 1024>;

Report report_of(const std::exception_ptr& error) {
  if (error == nullptr) return {};
  try {
    std::rethrow_exception(error);
  } catch (const ConfigError& known) {
    return {Kind::config, known.what()};
  } catch (const DataError& known) {
    return {Kind::data, known.what()};
  } catch (const std::invalid_argument& known) {
    return {Kind::argument, known.what()};
  } catch (const std::exception& other) {
    return {Kind::other, other.what()};
  }
}

[[noreturn]] void raise(Kind kind, const std::string& text) {
  switch (kind) {
    case Kind::config:
      throw ConfigError(text);
    case Kind::data:
      throw DataError(text);
    case Kind::argument:
      throw std::invalid_argument(text);
    case Kind::none:
    case Kind::other:
      break;
  }
  throw std::runtime_error(text);
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

  Message message = pack(report_of(error));
  all.broadcast(std::span<std::uint8_t>(message), rank).wait();
  if (error != nullptr) std::rethrow_exception(error);
  const std::string text(message.begin() + 1, std::find(message.begin() + 1, message.end(), 0));
  raise(static_cast<Kind>(message[0]), "rank " + std::to_string(rank) + ": " + text);
}

}  // namespace rondo::train
