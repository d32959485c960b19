#include "launch/environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "exit_status.hpp"

namespace rondo::tools {
namespace {

constexpr std::array<std::string_view, 7> own_names = {
    "RONDO_COORDINATOR", "RONDO_RANK",      "RONDO_SIZE",    "RONDO_THREADS",
    "RONDO_LISTENER",    "RONDO_SECRET_FD", "RONDO_RECORDER"};

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

bool is_replaced(std::string_view entry, const RankEnvironment& rank) {
  const std::string_view name = name_of(entry);
  return std::ranges::count(own_names, name) > 0 ||
         std::ranges::any_of(rank.settings, [&](const auto& own) { return name_of(own) == name; });
}

const char* text_from(const char* name) { return std::getenv(name); }

int number_from(const char* name) {
  const char* text = text_from(name);
  if (text == nullptr) return 0;
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc{} || end != view.data() + view.size() || value < 0) {
    throw UsageError(fmt::format("{}={} in the environment is not a number from 0 on", name, text));
  }
  return value;
}

}  // namespace

bool is_rank() { return text_from("RONDO_RANK") != nullptr; }

std::string rank_name() {
  const char* text = text_from("RONDO_RANK");
  return text != nullptr ? text : "0";
}

int size_from_environment() { return number_from("RONDO_SIZE"); }

int threads_from_environment() { return number_from("RONDO_THREADS"); }

int fake_nodes_from_environment() { return number_from("RONDO_FAKE_NODES"); }

std::vector<std::string> environment_of(const RankEnvironment& rank) {
  std::vector<std::string> entries;
  bool omp_is_set = false;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view view(*entry);
    if (is_replaced(view, rank)) continue;
    if (view.starts_with("OMP_NUM_THREADS=")) omp_is_set = true;
    entries.emplace_back(view);
  }
  entries.push_back("RONDO_COORDINATOR=" + rank.coordinator);
  entries.push_back(fmt::format("RONDO_RANK={}", rank.rank));
  entries.push_back(fmt::format("RONDO_SIZE={}", rank.size));
  entries.push_back(fmt::format("RONDO_THREADS={}", rank.threads));
  if (rank.listener >= 0) entries.push_back(fmt::format("RONDO_LISTENER={}", rank.listener));
  if (rank.secret >= 0) entries.push_back(fmt::format("RONDO_SECRET_FD={}", rank.secret));
  if (rank.recorder >= 0) entries.push_back(fmt::format("RONDO_RECORDER={}", rank.recorder));
  entries.insert(entries.end(), rank.settings.begin(), rank.settings.end());
  if (!omp_is_set) entries.push_back(fmt::format("OMP_NUM_THREADS={}", rank.threads));
  return entries;
}

}  // namespace rondo::tools
