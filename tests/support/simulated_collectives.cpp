// The data of each collective, and what must come out. Every rank's elements have values of their
// own, and sums are of integers: so a wrong, missing or repeated element changes the result.

#include "support/simulated_collectives.hpp"

#include <cstdint>
#include <set>
#include <stdexcept>
#include <vector>

#include "collective/flat/schedules.hpp"
#include "support/hierarchy_cuts.hpp"
#include "support/link_data.hpp"
#include "support/link_traffic.hpp"
#include "support/simulated_ranks.hpp"

namespace rondo::test {
namespace {

namespace algorithms = transport::algorithms;
using transport::Algorithm;
using transport::Posted;
using transport::shm::Collective;

constexpr std::size_t element_bytes = sizeof(std::int32_t);
constexpr std::size_t longest_segment = std::size_t{512} << 10U;

void expect(bool holds, const char* what, std::size_t rank) {
  if (!holds) throw std::runtime_error("rank " + std::to_string(rank) + ": " + what);
}

void expect_equal(const Ints& found, const Ints& expected, std::size_t rank) {
  expect(found == expected, "the result is wrong", rank);
}

std::set<std::size_t> roots_of(std::size_t ranks) {
  constexpr std::size_t few = 64;
  if (ranks > few) return {0, 1, ranks / 2, ranks - 1};
  std::set<std::size_t> all;
  for (std::size_t r = 0; r < ranks; ++r) all.insert(r);
  return all;
}

// Runs what was posted, and adds what was sent. Where the form is given, ranks must send as it
// says.
SimulatedTraffic run(const Algorithm& algorithm, const std::vector<Posted>& posted,
                     SimulatedRanks& ranks, const LinkAlgorithm* form) {
  ranks.run(algorithm, posted);
  SimulatedTraffic traffic{.operations = 1};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const LinkTraffic sent{.messages = ranks.counters(r).sent_messages,
                           .bytes = ranks.counters(r).sent_bytes};
    if (form != nullptr) {
      const LinkTraffic expected =
          link_traffic_of(*form, posted[r], r, ranks.size(), longest_segment);
      expect(sent == expected, "it did not send what the closed form says", r);
    }
    traffic.messages += sent.messages;
    traffic.bytes += sent.bytes;
  }
  return traffic;
}

void add(SimulatedTraffic& sum, const SimulatedTraffic& more) {
  sum.operations += more.operations;
  sum.messages += more.messages;
  sum.bytes += more.bytes;
}

SimulatedTraffic check_allreduce(const Algorithm& algorithm, LinkAlgorithm form, std::size_t ranks,
                                 std::size_t elements) {
  SimulatedRanks simulated(ranks, {});
  Buffers<std::int32_t> data = link_inputs(ranks, elements);
  std::vector<Posted> posted;
  for (Ints& mine : data) {
    posted.push_back(posted_of(Collective::allreduce, input_of(mine), output_of(mine)));
  }
  const SimulatedTraffic traffic = run(algorithm, posted, simulated, &form);
  const Ints sums = link_sums(ranks, elements);
  for (std::size_t r = 0; r < ranks; ++r) expect_equal(data[r], sums, r);
  return traffic;
}

// A cache line for every rank's chunk, and a few elements more.
SimulatedTraffic check_ring_allreduce(std::size_t ranks) {
  return check_allreduce(algorithms::ring, LinkAlgorithm::ring, ranks, 16 * ranks + 5);
}

SimulatedTraffic check_doubling_allreduce(std::size_t ranks) {
  return check_allreduce(algorithms::doubling_allreduce, LinkAlgorithm::doubling, ranks, 5);
}

SimulatedTraffic check_halving_allreduce(std::size_t ranks) {
  return check_allreduce(algorithms::halving_allreduce, LinkAlgorithm::halving, ranks,
                         16 * ranks + 5);
}

// Most halves are empty.
SimulatedTraffic check_halving_of_few(std::size_t ranks) {
  return check_allreduce(algorithms::halving_allreduce, LinkAlgorithm::halving, ranks, 40);
}

// The shares of ranks, in elements: equal, or between 0 and 2.
std::size_t share_of(std::size_t rank, bool equal) { return equal ? 2 : rank % 3; }

void set_shares(Posted& posted, std::size_t ranks, bool equal) {
  if (equal) {
    posted.row_bytes_each = share_of(0, true) * element_bytes;
    return;
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    posted.row_bytes_of.push_back(share_of(r, false) * element_bytes);
  }
}

std::size_t elements_of(std::size_t ranks, bool equal) {
  std::size_t sum = 0;
  for (std::size_t r = 0; r < ranks; ++r) sum += share_of(r, equal);
  return sum;
}

SimulatedTraffic check_reduce_scatter(std::size_t ranks, bool equal) {
  SimulatedRanks simulated(ranks, {});
  const std::size_t elements = elements_of(ranks, equal);
  const Buffers<std::int32_t> in = link_inputs(ranks, elements);
  Buffers<std::int32_t> out;
  for (std::size_t r = 0; r < ranks; ++r) out.emplace_back(share_of(r, equal), -1);
  std::vector<Posted> posted;
  for (std::size_t r = 0; r < ranks; ++r) {
    posted.push_back(posted_of(Collective::reduce_scatter, input_of(in[r]), output_of(out[r])));
    set_shares(posted.back(), ranks, equal);
  }
  const LinkAlgorithm form = LinkAlgorithm::ring;
  const SimulatedTraffic traffic = run(algorithms::ring, posted, simulated, &form);
  const Ints sums = link_sums(ranks, elements);
  std::size_t at = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto first = sums.begin() + static_cast<std::ptrdiff_t>(at);
    at += out[r].size();
    expect_equal(out[r], Ints(first, sums.begin() + static_cast<std::ptrdiff_t>(at)), r);
  }
  return traffic;
}

SimulatedTraffic check_equal_reduce_scatter(std::size_t ranks) {
  return check_reduce_scatter(ranks, true);
}
SimulatedTraffic check_listed_reduce_scatter(std::size_t ranks) {
  return check_reduce_scatter(ranks, false);
}

SimulatedTraffic check_allgather(std::size_t ranks, bool equal) {
  SimulatedRanks simulated(ranks, {});
  Buffers<std::int32_t> in(ranks);
  Buffers<std::int32_t> out(ranks, Ints(elements_of(ranks, equal), -1));
  Ints all;
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < share_of(r, equal); ++i) in[r].push_back(link_value(r, i));
    all.insert(all.end(), in[r].begin(), in[r].end());
  }
  std::vector<Posted> posted;
  for (std::size_t r = 0; r < ranks; ++r) {
    posted.push_back(posted_of(Collective::allgather, input_of(in[r]), output_of(out[r])));
    set_shares(posted.back(), ranks, equal);
  }
  const LinkAlgorithm form = LinkAlgorithm::ring;
  const SimulatedTraffic traffic = run(algorithms::ring, posted, simulated, &form);
  for (std::size_t r = 0; r < ranks; ++r) expect_equal(out[r], all, r);
  return traffic;
}

SimulatedTraffic check_equal_allgather(std::size_t ranks) { return check_allgather(ranks, true); }
SimulatedTraffic check_listed_allgather(std::size_t ranks) { return check_allgather(ranks, false); }

SimulatedTraffic check_broadcast(std::size_t ranks) {
  SimulatedRanks simulated(ranks, {});
  constexpr std::size_t elements = 5;
  SimulatedTraffic traffic;
  for (const std::size_t root : roots_of(ranks)) {
    Buffers<std::int32_t> data = link_inputs(ranks, elements);
    const Ints expected = data[root];
    std::vector<Posted> posted;
    for (Ints& mine : data) {
      posted.push_back(posted_of(Collective::broadcast, input_of(mine), output_of(mine)));
      posted.back().fingerprint.root = static_cast<std::int32_t>(root);
    }
    const LinkAlgorithm form = LinkAlgorithm::tree;
    add(traffic, run(algorithms::tree_broadcast, posted, simulated, &form));
    for (std::size_t r = 0; r < ranks; ++r) expect_equal(data[r], expected, r);
  }
  return traffic;
}

SimulatedTraffic check_reduce(std::size_t ranks) {
  SimulatedRanks simulated(ranks, {});
  constexpr std::size_t elements = 5;
  SimulatedTraffic traffic;
  const Buffers<std::int32_t> in = link_inputs(ranks, elements);
  const Ints sums = link_sums(ranks, elements);
  for (const std::size_t root : roots_of(ranks)) {
    Ints out(elements, -1);
    std::vector<Posted> posted;
    for (std::size_t r = 0; r < ranks; ++r) {
      posted.push_back(posted_of(Collective::reduce, input_of(in[r]),
                                 r == root ? output_of(out) : transport::Block{}));
      posted.back().fingerprint.root = static_cast<std::int32_t>(root);
    }
    const LinkAlgorithm form = LinkAlgorithm::tree;
    add(traffic, run(algorithms::tree_reduce, posted, simulated, &form));
    expect_equal(out, sums, root);
  }
  return traffic;
}

// The value that rank `from` has for rank `to`.
std::int32_t value_for(std::size_t from, std::size_t to, std::size_t i) {
  return static_cast<std::int32_t>(from * 4'099 + to * 3 + i);
}

SimulatedTraffic check_alltoall(std::size_t ranks) {
  SimulatedRanks simulated(ranks, {});
  Buffers<std::int32_t> in(ranks);
  Buffers<std::int32_t> out(ranks, Ints(ranks, -1));
  std::vector<Posted> posted;
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t to = 0; to < ranks; ++to) in[r].push_back(value_for(r, to, 0));
    posted.push_back(posted_of(Collective::alltoall, input_of(in[r]), output_of(out[r])));
    posted.back().row_bytes_each = element_bytes;
  }
  const LinkAlgorithm form = LinkAlgorithm::pairwise;
  const SimulatedTraffic traffic = run(algorithms::pairwise_alltoall, posted, simulated, &form);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t from = 0; from < ranks; ++from) {
      expect(out[r][from] == value_for(from, r, 0), "a part is wrong", r);
    }
  }
  return traffic;
}

// Elements that go from one rank to another: none to two.
std::size_t part_of_pair(std::size_t from, std::size_t to) { return (from * 5 + to * 7) % 3; }

SimulatedTraffic check_alltoallv(std::size_t ranks) {
  SimulatedRanks simulated(ranks, {});
  Buffers<std::int32_t> in(ranks);
  Buffers<std::int32_t> out(ranks);
  std::vector<Posted> posted;
  std::uint64_t between_ranks = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<std::size_t> sent_at{0};
    std::vector<std::size_t> received_at{0};
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      const std::size_t part = part_of_pair(r, peer);
      for (std::size_t i = 0; i < part; ++i) in[r].push_back(value_for(r, peer, i));
      if (peer != r) between_ranks += part * element_bytes;
      sent_at.push_back(in[r].size() * element_bytes);
      received_at.push_back(received_at.back() + part_of_pair(peer, r) * element_bytes);
    }
    out[r].assign(received_at.back() / element_bytes, -1);
    posted.push_back(posted_of(Collective::alltoallv, input_of(in[r]), output_of(out[r])));
    posted.back().sent_at = std::move(sent_at);
    posted.back().received_at = std::move(received_at);
  }
  const SimulatedTraffic traffic = run(algorithms::exchange, posted, simulated, nullptr);
  expect(traffic.bytes == between_ranks, "not every part was sent once", 0);
  for (std::size_t r = 0; r < ranks; ++r) {
    std::size_t at = 0;
    for (std::size_t from = 0; from < ranks; ++from) {
      for (std::size_t i = 0; i < part_of_pair(from, r); ++i) {
        expect(out[r][at++] == value_for(from, r, i), "a part is wrong", r);
      }
    }
  }
  return traffic;
}

std::vector<std::size_t> even_parts(std::size_t ranks) {
  std::vector<std::size_t> begins;
  for (std::size_t r = 0; r <= ranks; ++r) begins.push_back(r * element_bytes);
  return begins;
}

SimulatedTraffic check_gather_and_scatter(std::size_t ranks) {
  SimulatedRanks simulated(ranks, {});
  SimulatedTraffic traffic;
  Buffers<std::int32_t> parts = link_inputs(ranks, 1);
  Ints all;
  for (const Ints& part : parts) all.push_back(part[0]);
  for (const std::size_t root : roots_of(ranks)) {
    Ints gathered(ranks, -1);
    Buffers<std::int32_t> scattered(ranks, Ints(1, -1));
    std::vector<Posted> gathers;
    std::vector<Posted> scatters;
    for (std::size_t r = 0; r < ranks; ++r) {
      const bool is_root = r == root;
      gathers.push_back(posted_of(Collective::gather, input_of(parts[r]),
                                  is_root ? output_of(gathered) : transport::Block{}));
      scatters.push_back(posted_of(Collective::scatter,
                                   is_root ? input_of(all) : transport::ConstBlock{},
                                   output_of(scattered[r])));
      gathers[r].fingerprint.root = scatters[r].fingerprint.root = static_cast<std::int32_t>(root);
      if (is_root) gathers[r].received_at = scatters[r].sent_at = even_parts(ranks);
    }
    add(traffic, run(algorithms::exchange, gathers, simulated, nullptr));
    add(traffic, run(algorithms::exchange, scatters, simulated, nullptr));
    expect_equal(gathered, all, root);
    for (std::size_t r = 0; r < ranks; ++r) expect_equal(scattered[r], parts[r], r);
  }
  const std::uint64_t operations = traffic.operations;
  expect(traffic.bytes == operations * (ranks - 1) * element_bytes, "a part was sent twice", 0);
  return traffic;
}

SimulatedTraffic check_scan(std::size_t ranks) {
  SimulatedRanks simulated(ranks, {});
  constexpr std::size_t elements = 3;
  SimulatedTraffic traffic;
  for (const Collective collective : {Collective::scan, Collective::exscan}) {
    const Buffers<std::int32_t> in = link_inputs(ranks, elements);
    Buffers<std::int32_t> out(ranks, Ints(elements, 0));
    std::vector<Posted> posted;
    for (std::size_t r = 0; r < ranks; ++r) {
      posted.push_back(posted_of(collective, input_of(in[r]), output_of(out[r])));
    }
    add(traffic, run(algorithms::scan, posted, simulated, nullptr));
    Ints sums(elements, 0);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (collective == Collective::exscan) expect_equal(out[r], sums, r);
      for (std::size_t i = 0; i < elements; ++i) sums[i] += in[r][i];
      if (collective == Collective::scan) expect_equal(out[r], sums, r);
    }
  }
  return traffic;
}

// No rank may leave before the one that comes last has come.
SimulatedTraffic check_barrier(std::size_t ranks) {
  SimulatedRanks simulated(ranks, {});
  const std::vector<Posted> posted(ranks, posted_of(Collective::barrier, {}, {}));
  constexpr double late = 1e6;
  SimulatedTraffic traffic;
  for (const std::size_t last : roots_of(ranks)) {
    std::vector<double> starts(ranks, 0.0);
    starts[last] = late;
    const std::vector<double> ends =
        simulated.run(algorithms::dissemination_barrier, posted, 0.0, starts);
    traffic.operations += 1;
    for (std::size_t r = 0; r < ranks; ++r) {
      expect(ends[r] >= late, "it left a barrier before the last rank had come", r);
      const std::uint64_t messages = simulated.counters(r).sent_messages;
      expect(messages == transport::schedule::dissemination_rounds(ranks),
             "it did not send what the closed form says", r);
      traffic.messages += messages;
    }
  }
  return traffic;
}

}  // namespace

const std::vector<SimulatedCollective>& simulated_collectives() {
  static const std::vector<SimulatedCollective> all = {
      {"allreduce by rings", &check_ring_allreduce},
      {"allreduce by doubling", &check_doubling_allreduce},
      {"allreduce by halving", &check_halving_allreduce},
      {"allreduce by halving of few", &check_halving_of_few},
      {"reduce_scatter", &check_equal_reduce_scatter},
      {"reduce_scatter of listed counts", &check_listed_reduce_scatter},
      {"allgather", &check_equal_allgather},
      {"allgather of listed counts", &check_listed_allgather},
      {"broadcast", &check_broadcast},
      {"reduce", &check_reduce},
      {"alltoall", &check_alltoall},
      {"alltoallv", &check_alltoallv},
      {"gather and scatter", &check_gather_and_scatter},
      {"scan and exscan", &check_scan},
      {"barrier", &check_barrier},
      {"cuts by node of one array", &check_cuts_of_one_array},
      {"cuts by node of shares", &check_cuts_of_shares},
  };
  return all;
}

}  // namespace rondo::test
