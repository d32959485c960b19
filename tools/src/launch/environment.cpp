// The environment variables between a launcher and its ranks: the launcher writes them, a rank
// reads them, and a rank that was asked for something else refuses.
//
// The variables are those of the library (transport/README.md): ranks that another launcher starts
// have the same. RONDO_THREADS and RONDO_LOCAL_RANK are the program's own.

#include "launch/environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string_view>

#include <rondo/transport/error.hpp>
#include <rondo/transport/launcher.hpp>
#include <rondo/transport/links.hpp>

#include "failure.hpp"

namespace rondo::tools {
namespace {

// Variables that describe one rank of one job: what an outer job has set must not reach the ranks
// of an inner one.
constexpr std::array<std::string_view, 8> own_names = {
    "RONDO_COORDINATOR", "RONDO_RANK",     "RONDO_SIZE",      "RONDO_LOCAL_RANK",
    "RONDO_THREADS",     "RONDO_LISTENER", "RONDO_SECRET_FD", "RONDO_RECORDER"};

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

// Whether an inherited entry is about another job, or is set anew by `rank`.
bool is_replaced(std::string_view entry, const RankEnvironment& rank) {
  const std::string_view name = name_of(entry);
  return std::ranges::count(own_names, name) > 0 ||
         std::ranges::any_of(rank.settings, [&](const auto& own) { return name_of(own) == name; });
}

// Null when it is not set, or empty: the library takes both alike.
const char* variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? nullptr : text;
}

// 0 when the variable is not set. Throws UsageError for anything but a whole number.
int number_from(const char* name) {
  const char* text = variable(name);
  if (text == nullptr) return 0;
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc{} || end != view.data() + view.size() || value < 0) {
    throw UsageError(fmt::format("{}={} in the environment is not a number from 0 on", name, text));
  }
  return value;
}

// Would a single node have no use for `request`?
bool needs_nodes(const FabricRequest& request) {
  return request.fabric || request.interface || request.latency_us || request.bandwidth_gbs;
}

// Throws std::invalid_argument for what the library calls a bootstrap that has failed: a mistake
// in the environment is one of who started this process, and trying again does not mend it.
std::optional<transport::LaunchedRank> launched_rank() {
  try {
    return transport::launched();
  } catch (const transport::Error& error) {
    std::string text = error.what();
    const std::string code = ": " + error.code().message();
    if (text.ends_with(code)) text.resize(text.size() - code.size());
    throw std::invalid_argument(text);
  }
}

// By hand somebody may have set one of them alone, or something wrong.
void refuse_wrong_rank() {
  if (variable("RONDO_RANK") == nullptr) return;
  if (variable("RONDO_SIZE") != nullptr && variable("RONDO_COORDINATOR") != nullptr) {
    static_cast<void>(launched_rank());
    return;
  }
  // Every rank says it: which one it is, is not known for sure.
  throw std::invalid_argument(
      "RONDO_RANK is set, so this process is a rank, but RONDO_SIZE or RONDO_COORDINATOR is not; "
      "set all three, as `rondo run` does, or unset RONDO_RANK");
}

// Finds once, before any rank is started, what each of them would find wrong by itself.
void refuse_unusable_links(const FabricRequest& request) {
  const char* const fabric = variable("RONDO_FABRIC");
  if (!request.fabric && fabric != nullptr) {
    const std::string problem = transport::problem_of_fabric_name(fabric);
    if (!problem.empty()) throw UsageError("RONDO_FABRIC: " + problem);
  }
  const char* const interface = variable("RONDO_INTERFACE");
  if (!request.interface && interface == nullptr) return;
  try {
    static_cast<void>(transport::networks(request.interface.value_or(interface)));
  } catch (const transport::Error& error) {
    throw UsageError(describe(std::current_exception()).text);
  }
}

// Under another launcher -n may repeat what is so, but not change it.
void refuse_other_size(int ranks) {
  const int size = size_from_environment();
  // 0: RONDO_SIZE is missing, which is told later.
  if (ranks == 0 || size == 0 || ranks == size) return;
  throw UsageError(fmt::format(
      "this process is one of {} ranks already, so it cannot start {}; leave out -n here, and "
      "give it to what starts the ranks",
      size, ranks));
}

// For the World that this process is about to join.
void put_into_environment(const FabricRequest& request) {
  for (const std::string& entry : environment_of(request)) {
    const std::size_t equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
}

// The options were turned into the same variables for the launcher, so comparing texts is enough.
void refuse_other_fabric(const FabricRequest& request) {
  for (const std::string& entry : environment_of(request)) {
    const std::size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    const std::string wanted = entry.substr(equals + 1);
    const char* here = std::getenv(name.c_str());
    if (here != nullptr && wanted == here) continue;
    throw UsageError(
        fmt::format("this process is a rank already, and ranks take their links from the "
                    "environment: there {} is {}, but '{}' is asked for; set it for every rank, or "
                    "give the option to `rondo run`, which sets it",
                    name, here == nullptr ? "not set" : fmt::format("'{}'", here), wanted));
  }
}

}  // namespace

// RONDO_RANK alone is the mark of a rank of `rondo run`, whatever stands in it, if anything does:
// what is wrong with it is told when the rank joins the others.
bool is_rank() { return variable("RONDO_RANK") != nullptr || launched_rank().has_value(); }

bool is_launched_by_others() { return variable("RONDO_RANK") == nullptr && is_rank(); }

std::string rank_name() {
  if (const char* text = variable("RONDO_RANK")) return text;
  const auto rank = launched_rank();
  return rank ? std::to_string(rank->rank) : "0";
}

bool is_first_of_host() {
  if (variable("RONDO_RANK") != nullptr) {
    const char* const local = variable("RONDO_LOCAL_RANK");
    return local == nullptr || std::string_view(local) == "0";
  }
  const auto rank = launched_rank();
  return !rank || rank->local_rank <= 0;
}

int size_from_environment() {
  if (variable("RONDO_RANK") != nullptr) return number_from("RONDO_SIZE");
  const auto rank = launched_rank();
  return rank ? rank->size : 0;
}

int threads_from_environment() { return number_from("RONDO_THREADS"); }

int fake_nodes_from_environment() { return number_from("RONDO_FAKE_NODES"); }

std::filesystem::path own_records_in(const std::filesystem::path& folder) {
  return variable("RONDO_RECORDER") == nullptr ? folder : std::filesystem::path();
}

std::vector<std::string> environment_of(const RankEnvironment& rank) {
  std::vector<std::string> entries;
  bool omp_is_set = false;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view view(*entry);
    // Everything else is inherited, so that a user's settings for oneDNN or UCX reach the ranks.
    if (is_replaced(view, rank)) continue;
    if (view.starts_with("OMP_NUM_THREADS=")) omp_is_set = true;
    entries.emplace_back(view);
  }
  // What is not inherited: only this rank has it.
  entries.push_back("RONDO_COORDINATOR=" + rank.coordinator);
  entries.push_back(fmt::format("RONDO_RANK={}", rank.rank));
  entries.push_back(fmt::format("RONDO_SIZE={}", rank.size));
  entries.push_back(fmt::format("RONDO_LOCAL_RANK={}", rank.local_rank));
  entries.push_back(fmt::format("RONDO_THREADS={}", rank.threads));
  if (rank.listener >= 0) entries.push_back(fmt::format("RONDO_LISTENER={}", rank.listener));
  if (rank.secret >= 0) entries.push_back(fmt::format("RONDO_SECRET_FD={}", rank.secret));
  if (rank.recorder >= 0) entries.push_back(fmt::format("RONDO_RECORDER={}", rank.recorder));
  entries.insert(entries.end(), rank.settings.begin(), rank.settings.end());
  // A user's own number of OpenMP threads counts more than the placement's.
  if (!omp_is_set) entries.push_back(fmt::format("OMP_NUM_THREADS={}", rank.threads));
  return entries;
}

int fake_nodes_of(const FabricRequest& request, int ranks) {
  const int nodes = request.fake_nodes.value_or(std::max(fake_nodes_from_environment(), 1));
  if (nodes > ranks) {
    throw UsageError(fmt::format(
        "{} fake nodes need at least as many ranks, but there are {}; give -n {} or more", nodes,
        ranks, nodes));
  }
  // Options that could have no effect are refused, so that nobody takes an unslowed run for a
  // slowed one.
  if (nodes == 1 && needs_nodes(request)) {
    throw UsageError(
        "--fabric, --interface, --latency-us and --bandwidth-gbs are about links between nodes, "
        "but there is one node; add --fake-nodes 2");
  }
  if (nodes > 1) refuse_unusable_links(request);
  return nodes;
}

std::vector<std::string> environment_of(const FabricRequest& request) {
  std::vector<std::string> entries;
  if (request.fake_nodes)
    entries.push_back(fmt::format("RONDO_FAKE_NODES={}", *request.fake_nodes));
  if (request.fabric) entries.push_back("RONDO_FABRIC=" + *request.fabric);
  if (request.interface) entries.push_back("RONDO_INTERFACE=" + *request.interface);
  if (request.latency_us)
    entries.push_back(fmt::format("RONDO_LATENCY_US={}", *request.latency_us));
  if (request.bandwidth_gbs) {
    entries.push_back(fmt::format("RONDO_BANDWIDTH_GBS={}", *request.bandwidth_gbs));
  }
  return entries;
}

void refuse_other_job(int ranks, const FabricRequest& fabric) {
  refuse_other_size(ranks);
  // Other launchers give the same options to all ranks, and know nothing of what they mean.
  if (is_launched_by_others()) {
    put_into_environment(fabric);
  } else {
    refuse_other_fabric(fabric);
  }
  refuse_wrong_rank();
}

}  // namespace rondo::tools
