// Finds out which of the ways to join the nodes works (candidates.cpp), and which is the fastest.
//
// All ranks try a way together: they exchange the addresses of their links, or why one cannot be
// opened; then they send each other messages, and tell each other what has come of it (probe.cpp).
// So they come to the same decision. Networks of equal standing whose speed is unknown are all
// measured; RDMA networks that are equally fast are measured once more as rails of one link.
//
// The interface by which the store was reached decides nothing but ties: often it is that of a
// slow network.

#include "bootstrap/trial.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <rondo/transport/blocked_signals.hpp>
#include <rondo/transport/error.hpp>

#include "bootstrap/interfaces.hpp"
#include "bootstrap/probe.hpp"
#include "bootstrap/wire.hpp"
#include "collective/flat/schedules.hpp"
#include "links/plugin.hpp"
#include "message/link.hpp"

namespace rondo::transport::bootstrap {
namespace {

// A rank's link over one of the ways to join the nodes.
struct LinkAddress {
  std::string address = {};
  std::string problem = {};  // why there is no address

  static auto fields(auto& self) { return std::tie(self.address, self.problem); }
};

/// The ways to join the nodes, tried one after the other by all ranks together until one works.
class Trial {
 public:
  Trial(SideChannel& channel, const JobRank& self, const FabricOptions& options,
        const Membership& membership, const std::vector<HostOffers>& nodes)
      : channel_(&channel),
        self_(&self),
        options_(&options),
        membership_(&membership),
        nodes_(&nodes),
        candidates_(find_candidates(parse_fabric(options.name), nodes)) {
    for (const Peer& peer : membership.peers) node_of_rank_.push_back(peer.info.node);
    left_out_ = std::move(candidates_.left_out);
  }

  /// Throws Error(link_unavailable) when none works.
  [[nodiscard]] std::unique_ptr<Link> run() {
    const auto& all = candidates_.ordered;
    for (std::size_t first = 0; first < all.size();) {
      const std::size_t last = end_of_group(first);
      std::unique_ptr<Link> link = last - first > 1 ? fastest(first, last) : only(first);
      if (link != nullptr) return link;
      first = last;
    }
    fail();
  }

  /// Why the link that run() has returned, and what was left out; for people.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

 private:
  struct Tried {
    std::unique_ptr<Link> link = {};
    std::uint64_t nanoseconds = 0;
    std::string problem = {};
  };

  // The other links have one device, and over TCP UCX gains nothing from several.
  [[nodiscard]] static bool can_have_rails(const Candidate& candidate) {
    return candidate.kind == "verbs" && candidate.plugin == "ucx";
  }

  // A group from `first` on has all that are equal but for their speed, if that must be measured;
  // all that are equally fast, if they may become rails; else one.
  [[nodiscard]] std::size_t end_of_group(std::size_t first) const {
    const auto& all = candidates_.ordered;
    std::size_t last = first + 1;
    std::size_t equal = 1;
    bool unknown = all[first].megabits == 0;
    for (; last < all.size() && all[last].is_beside(all[first]); ++last) {
      unknown = unknown || all[last].megabits == 0;
      const bool is_as_fast = all[last].megabits == all[first].megabits;
      if (is_as_fast && can_have_rails(all[first])) equal += 1;
    }
    return unknown ? last : first + equal;
  }

  [[nodiscard]] bool is_last(std::size_t index) const {
    return is_last_network(candidates_.ordered, index, dead_);
  }

  std::unique_ptr<Link> only(std::size_t index) {
    const Candidate& candidate = candidates_.ordered[index];
    // Where nothing arrives, another library cannot do better.
    if (dead_.contains(candidate.ports())) return nullptr;
    Tried tried = attempt(candidate, false, is_last(index));
    if (tried.link == nullptr) return nullptr;
    choose(candidate, reason_for(index));
    return std::move(tried.link);
  }

  // The first stays unless another is twice as fast: measured times are never quite the same.
  std::unique_ptr<Link> fastest(std::size_t first, std::size_t last) {
    std::vector<Tried> tried;
    std::size_t best = last;
    for (std::size_t i = first; i < last; ++i) {
      const Candidate& candidate = candidates_.ordered[i];
      const bool is_dead = dead_.contains(candidate.ports());
      tried.push_back(is_dead ? Tried{} : attempt(candidate, true, best == last && is_last(i)));
      if (tried.back().link == nullptr) continue;
      const auto time = [&](std::size_t index) { return tried[index - first].nanoseconds; };
      if (best == last || time(best) > 2 * time(i)) best = i;
    }
    if (best == last) return nullptr;
    Tried& chosen = tried[best - first];
    if (auto link = together(first, best, tried)) return link;
    for (std::size_t i = first; i < last; ++i) {
      if (i == best || tried[i - first].link == nullptr) continue;
      left_out_.push_back(candidates_.ordered[i].label() + ": measured " +
                          speed_text(tried[i - first].nanoseconds));
    }
    choose(candidates_.ordered[best], "measured " + speed_text(chosen.nanoseconds) +
                                          ", and no other that joins all nodes is twice as fast");
    return std::move(chosen.link);
  }

  // All that are about as fast as the best, as rails of one link. Null unless that is clearly
  // faster: where the processors limit both, or the wires are one, rails only cost calls.
  std::unique_ptr<Link> together(std::size_t first, std::size_t best,
                                 const std::vector<Tried>& tried) {
    const Candidate& alone = candidates_.ordered[best];
    if (!can_have_rails(alone)) return nullptr;
    const std::uint64_t time = tried[best - first].nanoseconds;
    std::vector<const Candidate*> rails{&alone};
    for (std::size_t i = 0; i < tried.size(); ++i) {
      const bool is_as_fast = tried[i].link != nullptr && 4 * tried[i].nanoseconds <= 5 * time;
      if (first + i != best && is_as_fast) rails.push_back(&candidates_.ordered[first + i]);
    }
    if (rails.size() == 1) return nullptr;
    const Candidate joined = join_rails(rails);
    Tried all = attempt(joined, true, false);
    if (all.link == nullptr) return nullptr;
    if (3 * all.nanoseconds > 2 * time) {
      left_out_.push_back(joined.label() + " together: measured " + speed_text(all.nanoseconds));
      return nullptr;
    }
    choose(joined, "measured " + speed_text(all.nanoseconds) + ", over " + alone.label() +
                       " alone " + speed_text(time));
    return std::move(all.link);
  }

  // Collective. A rank that cannot open its link takes part in the exchanges all the same, or the
  // others would wait for it.
  Tried attempt(const Candidate& candidate, bool measures, bool is_last) {
    Tried tried;
    LinkAddress mine;
    try {
      tried.link = open(candidate);
      mine.address = tried.link->address();
    } catch (const Error& error) {
      mine.problem = error.what();
    }
    const auto addresses = exchange(*channel_, mine);
    tried.problem = problem_of(addresses, first_problem(addresses));
    if (tried.problem.empty()) {
      const ProbeResult mine_probed = connect_and_probe(*tried.link, addresses, measures, is_last);
      const auto probed = exchange_while_moving(*tried.link, mine_probed);
      tried.problem = problem_of(probed, first_cause(probed));
      tried.nanoseconds = std::ranges::max(probed, {}, &ProbeResult::nanoseconds).nanoseconds;
      if (carries_nothing(probed)) dead_.insert(candidate.ports());
    }
    if (tried.problem.empty()) return tried;
    tried.link.reset();
    problems_.push_back(tried.problem);
    left_out_.push_back(candidate.label() + ": " + tried.problem);
    return tried;
  }

  [[nodiscard]] std::unique_ptr<Link> open(const Candidate& candidate) const {
    const auto node = static_cast<std::size_t>(own_node());
    return open_plugin(candidate.plugin, {.rank = self_->rank,
                                          .size = self_->size,
                                          .provider = candidate.provider,
                                          .device = candidate.device_of(node, place_on_node()),
                                          .peers = likely_peers()});
  }

  // The place of this rank among those of its node.
  [[nodiscard]] std::size_t place_on_node() const {
    const auto here = node_of_rank_.begin() + self_->rank;
    return static_cast<std::size_t>(std::count(node_of_rank_.begin(), here, *here));
  }

  [[nodiscard]] int own_node() const {
    return node_of_rank_[static_cast<std::size_t>(self_->rank)];
  }

  // The algorithms talk to a few of the ranks on other nodes.
  [[nodiscard]] int likely_peers() const {
    const auto ranks = node_of_rank_.size();
    const auto here = static_cast<std::size_t>(std::ranges::count(node_of_rank_, own_node()));
    return static_cast<int>(std::min(ranks - here, schedule::most_partners(ranks)));
  }

  ProbeResult connect_and_probe(Link& link, const std::vector<LinkAddress>& addresses,
                                bool measures, bool is_last) const {
    try {
      for (std::size_t r = 0; r < addresses.size(); ++r) {
        if (node_of_rank_[r] == own_node()) continue;
        link.connect(static_cast<int>(r), addresses[r].address);
      }
    } catch (const Error& error) {
      return {.problem = error.what()};
    }
    // Without another way a host that is merely slow gets more time.
    const std::chrono::seconds limit = is_last ? last_limit : probe_limit;
    ProbeResult result = probe(link, neighbours_of(self_->rank, node_of_rank_), measures, limit,
                               [this] { return channel_->failure(); });
    if (!result.problem.empty()) result.problem = link.route() + " " + result.problem;
    return result;
  }

  // The last answers may still be in the link: it is moved on until all ranks have what they need.
  std::vector<ProbeResult> exchange_while_moving(Link& link, const ProbeResult& mine) {
    auto exchanged = [&] {
      const BlockedSignals blocked;  // the program's handlers run on threads of its own
      return std::async(std::launch::async, [&] { return exchange(*channel_, mine); });
    }();
    constexpr std::chrono::microseconds pause{200};
    while (exchanged.wait_for(pause) != std::future_status::ready) (void)link.progress();
    return exchanged.get();
  }

  // The number of ranks when none has any.
  [[nodiscard]] static std::size_t first_problem(const std::vector<LinkAddress>& addresses) {
    const auto has_one = [](const LinkAddress& address) { return !address.problem.empty(); };
    return static_cast<std::size_t>(std::ranges::find_if(addresses, has_one) - addresses.begin());
  }

  // "rank 3 on h2: ..."; empty when there is no such rank.
  template <typename Card>
  [[nodiscard]] std::string problem_of(const std::vector<Card>& cards, std::size_t rank) const {
    if (rank == cards.size()) return {};
    return "rank " + std::to_string(rank) + " on " + membership_->peers[rank].info.host + ": " +
           cards[rank].problem;
  }

  [[nodiscard]] static std::string speed_text(std::uint64_t nanoseconds) {
    std::array<char, 32> text{};
    const double megabytes = static_cast<double>(probe_bytes) * 1e3;
    std::snprintf(text.data(), text.size(), "%.3g MB/s",
                  megabytes / static_cast<double>(std::max<std::uint64_t>(nanoseconds, 1)));
    return text.data();
  }

  // Why a candidate comes before those behind it.
  [[nodiscard]] std::string reason_for(std::size_t index) const {
    const auto& all = candidates_.ordered;
    const Candidate& candidate = all[index];
    if (candidate.kind != "tcp") return "the first high-speed network that joins all nodes";
    if (all.size() == 1) return "the only network that joins all nodes";
    if (names_interfaces(options_->interface)) return "the first of those that were named";
    const bool is_faster = index + 1 < all.size() && all[index + 1].is_beside(candidate) &&
                           all[index + 1].megabits < candidate.megabits;
    if (is_faster) {
      return "the fastest network that joins all nodes, " + std::to_string(candidate.megabits) +
             " Mbit/s";
    }
    return candidate.of_store ? "the network by which the store was reached"
                              : "the first network that joins all nodes";
  }

  void choose(const Candidate& candidate, const std::string& why) {
    reason_ = (options_->name == "auto" ? "auto: " : "as asked: ") + why;
    const auto differs = [&](const std::string& device) {
      return device != candidate.devices.front();
    };
    if (std::ranges::any_of(candidate.devices, differs)) {
      reason_ += "; on " + (*nodes_)[0].host + " over " + candidate.devices[0];
      constexpr std::size_t shown = 8;
      for (std::size_t i = 1; i < std::min(shown, nodes_->size()); ++i) {
        reason_ += ", on " + (*nodes_)[i].host + " over " + candidate.devices[i];
      }
      if (nodes_->size() > shown) reason_ += ", ...";
    }
    for (const std::string& one : left_out_) reason_ += "; left out: " + one;
  }

  [[noreturn]] void fail() const {
    std::string text;
    for (const std::string& problem : problems_) text += (text.empty() ? "" : "; ") + problem;
    if (problems_.empty()) {
      text = "fabric '" + options_->name + "' finds no network that joins all nodes";
      for (const std::string& one : left_out_) text += "; left out: " + one;
    }
    throw Error(Errc::link_unavailable, text);
  }

  static constexpr std::chrono::seconds probe_limit{3};
  static constexpr std::chrono::seconds last_limit{20};

  SideChannel* channel_;
  const JobRank* self_;
  const FabricOptions* options_;
  const Membership* membership_;
  const std::vector<HostOffers>* nodes_;
  std::vector<int> node_of_rank_ = {};
  Candidates candidates_;
  std::set<Candidate::Ports> dead_ = {};
  std::vector<std::string> left_out_ = {};
  std::vector<std::string> problems_ = {};
  std::string reason_ = {};
};

}  // namespace

ChosenLink choose_link(SideChannel& channel, const JobRank& self, const FabricOptions& options,
                       const Membership& membership, const std::vector<HostOffers>& nodes) {
  Trial trial(channel, self, options, membership, nodes);
  auto link = trial.run();
  return {.link = std::move(link), .reason = trial.reason()};
}

}  // namespace rondo::transport::bootstrap
