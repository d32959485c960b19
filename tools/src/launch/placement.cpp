// Divides the cores of a machine among the ranks of a job.
//
// Cores are sorted by NUMA domain, so that equal parts of their list are neighbours. With at least
// one rank per domain each domain is divided among its own ranks; with fewer ranks each gets whole
// domains. Only if a small domain would then have more ranks than cores, all cores are divided
// without regard to domains.

#include "launch/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "failure.hpp"

namespace rondo::tools {
namespace {

using Cores = std::vector<Core>;

// Part `index` of `parts` nearly equal parts of `cores`.
Cores part(std::span<const Core> cores, std::size_t index, std::size_t parts) {
  const std::size_t first = cores.size() * index / parts;
  const std::size_t last = cores.size() * (index + 1) / parts;
  return {cores.begin() + static_cast<std::ptrdiff_t>(first),
          cores.begin() + static_cast<std::ptrdiff_t>(last)};
}

// The ranks [first, last) that domain `index` of `domains` houses.
struct RankRange {
  std::size_t first;
  std::size_t last;
};

RankRange ranks_of(std::size_t index, std::size_t domains, std::size_t ranks) {
  return {ranks * index / domains, ranks * (index + 1) / domains};
}

// Cores are sorted by domain.
std::span<const Core> domain(const Cores& cores, int index) {
  const auto range = std::ranges::equal_range(cores, index, {}, &Core::numa_domain);
  return {range.begin(), range.end()};
}

// At least one rank per domain: each domain is divided among its own ranks. Empty when a small
// domain would have more ranks than cores.
std::vector<Cores> divide_domains(const Machine& machine, std::size_t ranks) {
  const auto domains = static_cast<std::size_t>(machine.numa_domains);
  std::vector<Cores> shares;
  for (std::size_t d = 0; d < domains; ++d) {
    const auto cores = domain(machine.cores, static_cast<int>(d));
    const RankRange range = ranks_of(d, domains, ranks);
    const std::size_t parts = range.last - range.first;
    if (parts > cores.size()) return {};
    for (std::size_t i = 0; i < parts; ++i) shares.push_back(part(cores, i, parts));
  }
  return shares;
}

// Fewer ranks than domains: each rank gets whole domains.
std::vector<Cores> gather_domains(const Machine& machine, std::size_t ranks) {
  std::vector<Cores> shares(ranks);
  const auto domains = static_cast<std::size_t>(machine.numa_domains);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t d = domains * r / ranks; d < domains * (r + 1) / ranks; ++d) {
      const auto cores = domain(machine.cores, static_cast<int>(d));
      shares[r].insert(shares[r].end(), cores.begin(), cores.end());
    }
  }
  return shares;
}

// Domains first; all cores without regard to domains where that leaves a rank without a core.
std::vector<Cores> divide(const Machine& machine, std::size_t ranks) {
  std::vector<Cores> shares = ranks < static_cast<std::size_t>(machine.numa_domains)
                                  ? gather_domains(machine, ranks)
                                  : divide_domains(machine, ranks);
  if (!shares.empty()) return shares;
  for (std::size_t r = 0; r < ranks; ++r) shares.push_back(part(machine.cores, r, ranks));
  return shares;
}

// One thread is always allowed: ranks may share cores, but threads were asked for on purpose.
void refuse_too_many_threads(const PlacementRequest& request, std::size_t ranks,
                             std::size_t cores) {
  const auto threads = static_cast<std::size_t>(request.threads);
  if (threads <= 1 || ranks * threads <= cores || request.oversubscribe) return;
  throw UsageError(fmt::format(
      "{} ranks x {} threads need {} cores, but only {} can be used here; ask for fewer threads, "
      "or add --oversubscribe",
      ranks, threads, ranks * threads, cores));
}

}  // namespace

Placement place(const Machine& machine, const PlacementRequest& request) {
  const std::size_t cores = machine.cores.size();
  const auto ranks =
      static_cast<std::size_t>(request.ranks > 0 ? request.ranks : machine.numa_domains);
  refuse_too_many_threads(request, ranks, cores);

  Placement placement;
  placement.cores.resize(ranks);
  if (ranks > cores) {
    placement.threads = std::max(request.threads, 1);
    placement.note = fmt::format("{} ranks share {} cores: not bound", ranks, cores);
    return placement;
  }
  std::vector<Cores> shares = divide(machine, ranks);
  const auto smallest = std::ranges::min(shares, {}, &Cores::size).size();
  placement.threads = request.threads > 0 ? request.threads : static_cast<int>(smallest);
  if (request.binding == Binding::none) {
    placement.note = "not bound, as asked";
  } else if (static_cast<std::size_t>(placement.threads) > smallest) {
    placement.note = fmt::format("{} threads exceed the {} cores of a rank's share: not bound",
                                 placement.threads, smallest);
  } else {
    placement.cores = std::move(shares);
  }
  return placement;
}

std::string describe(const std::vector<Core>& cores) {
  std::vector<int> numbers;
  numbers.reserve(cores.size());
  for (const Core& core : cores) numbers.push_back(core.cpus.front());
  std::ranges::sort(numbers);
  std::string text = numbers.size() == 1 ? "core " : "cores ";
  // Runs of neighbours become "FIRST-LAST".
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    text += fmt::format("{}{}", i > 0 ? "," : "", numbers[i]);
    if (end > i) text += fmt::format("-{}", numbers[end]);
    i = end + 1;
  }
  return text;
}

}  // namespace rondo::tools
