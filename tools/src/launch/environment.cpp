#include "launch/environment.hpp"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "exit_status.hpp"

namespace rondo::tools {
namespace {

constexpr std::array<std::string_view, 4> own_names = {"RONDO_COORDINATOR", "RONDO_RANK",
                                                       "RONDO_SIZE", "RONDO_THREADS"};

bool is_own(std::string_view entry) {
  const std::string_view name = entry.substr(0, entry.find('='));
  for (const std::string_view own : own_names) {
    if (name == own) return true;
  }
  return false;
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

std::string make_local_coordinator() {
  std::array<unsigned char, 16> bits{};
  if (getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size())) {
    throw std::system_error(errno, std::generic_category(), "getrandom");
  }
  std::string text = "local:";
  for (const unsigned char byte : bits) text += fmt::format("{:02x}", byte);
  return text;
}

std::vector<std::string> environment_of(const RankEnvironment& rank) {
  std::vector<std::string> entries;
  bool omp_is_set = false;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view view(*entry);
    if (is_own(view)) continue;
    if (view.starts_with("OMP_NUM_THREADS=")) omp_is_set = true;
    entries.emplace_back(view);
  }
  entries.push_back("RONDO_COORDINATOR=" + rank.coordinator);
  entries.push_back(fmt::format("RONDO_RANK={}", rank.rank));
  entries.push_back(fmt::format("RONDO_SIZE={}", rank.size));
  entries.push_back(fmt::format("RONDO_THREADS={}", rank.threads));
  if (!omp_is_set) entries.push_back(fmt::format("OMP_NUM_THREADS={}", rank.threads));
  return entries;
}

}  // namespace rondo::tools
