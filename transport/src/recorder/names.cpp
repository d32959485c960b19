// The names of operations, types and states, as error messages and flight records have them.
// Each array holds the names of one enumeration in its order.

#include "recorder/names.hpp"

#include <array>
#include <cstddef>

#include "base/best_effort.hpp"

namespace rondo::transport {
namespace {

constexpr std::array collective_names{"allreduce",      "broadcast", "allgather", "barrier",
                                      "reduce_scatter", "reduce",    "alltoall",  "gather",
                                      "scatter",        "alltoallv", "scan",      "exscan"};
constexpr std::array call_names{"send", "recv", "sendrecv", "put_signal", "wait_signal"};
constexpr std::array type_names{"f32", "f64", "bf16", "i32", "i64", "u8",
                                "f16", "i8",  "i16",  "u16", "u32", "u64"};
constexpr std::array reduction_names{"sum", "min",     "max",    "prod",
                                     "avg", "bit_and", "bit_or", "bit_xor"};
constexpr std::array stage_names{"queued",   "published", "running",
                                 "draining", "complete",  "failed"};
constexpr std::array waiting_names{"auto", "spin", "yield", "block"};

static_assert(collective_names.size() == static_cast<std::size_t>(shm::Collective::exscan) + 1);
static_assert(call_names.size() == static_cast<std::size_t>(PointToPointCall::wait_signal) + 1);
static_assert(type_names.size() == static_cast<std::size_t>(ElementType::u64) + 1);
static_assert(reduction_names.size() == static_cast<std::size_t>(ReduceOp::bit_xor) + 1);
static_assert(stage_names.size() == static_cast<std::size_t>(Stage::failed) + 1);
static_assert(waiting_names.size() == static_cast<std::size_t>(Waiting::block) + 1);

// The memory of a flight record may hold anything: a number that is none of the enumeration's has
// a name, too.
template <typename Names, typename Enumeration>
const char* name_in(const Names& names, Enumeration value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < names.size() ? names[index] : "?";
}

}  // namespace

const char* name_of(shm::Collective collective) noexcept {
  return name_in(collective_names, collective);
}
const char* name_of(PointToPointCall call) noexcept { return name_in(call_names, call); }
const char* name_of(ElementType type) noexcept { return name_in(type_names, type); }
const char* name_of(ReduceOp op) noexcept { return name_in(reduction_names, op); }
const char* name_of(Stage stage) noexcept { return name_in(stage_names, stage); }
const char* name_of(Waiting waiting) noexcept { return name_in(waiting_names, waiting); }

bool reduces(shm::Collective collective) noexcept {
  return collective == shm::Collective::allreduce || collective == shm::Collective::reduce ||
         collective == shm::Collective::reduce_scatter || collective == shm::Collective::scan ||
         collective == shm::Collective::exscan;
}

// As short as a line of a table, with all that ranks can differ in.
std::string describe(const shm::Fingerprint& fingerprint, std::uint64_t number) {
  std::string text = name_of(fingerprint.collective);
  text += " #" + std::to_string(number);
  if (fingerprint.collective == shm::Collective::barrier) return text;
  // In an alltoallv each rank has its own number of elements.
  const bool has_count = fingerprint.collective != shm::Collective::alltoallv;
  text += " of " + (has_count ? std::to_string(fingerprint.count) + " " : std::string()) +
          name_of(fingerprint.type);
  if (reduces(fingerprint.collective)) {
    text += std::string(" (") + name_of(fingerprint.op) + ")";
  }
  if (fingerprint.collective == shm::Collective::broadcast ||
      fingerprint.collective == shm::Collective::scatter) {
    text += " from rank " + std::to_string(fingerprint.root);
  }
  if (fingerprint.collective == shm::Collective::reduce ||
      fingerprint.collective == shm::Collective::gather) {
    text += " to rank " + std::to_string(fingerprint.root);
  }
  if (fingerprint.counts_hash != 0) {
    text += " (shares hash " + std::to_string(fingerprint.counts_hash % 1'000'000) + ")";
  }
  return text;
}

std::string text_of(const Error& error) {
  const std::string what = error.what();
  const std::string suffix = ": " + error.code().message();
  return what.ends_with(suffix) ? what.substr(0, what.size() - suffix.size()) : what;
}

void write_note(shm::FailureNote& note, const Error& error) noexcept {
  note.code = error.code().value();
  note.rank = error.detail().rank;
  if (!if_memory_allows([&] { note.set_text(text_of(error)); })) note.set_text(error.what());
}

}  // namespace rondo::transport
