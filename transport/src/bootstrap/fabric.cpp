#include "bootstrap/fabric.hpp"

#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <rondo/transport/error.hpp>

#include "links/delayed_link.hpp"
#include "links/plugin.hpp"

namespace rondo::transport::rendezvous {
namespace {

constexpr std::array<std::string_view, 2> preference = {"ucx", "ofi"};

bool lists(const std::string& plugins, std::string_view name) {
  return (" " + plugins + " ").find(" " + std::string(name) + " ") != std::string::npos;
}

// The first rank that lacks the plug-in, or -1.
int first_without(const std::vector<AddressCard>& cards, std::string_view name) {
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if (!lists(cards[r].plugins, name)) return static_cast<int>(r);
  }
  return -1;
}

void check_one_machine(const std::vector<AddressCard>& cards) {
  for (std::size_t r = 1; r < cards.size(); ++r) {
    if (cards[r].machine_key == cards[0].machine_key) continue;
    throw Error(Errc::rendezvous_failed,
                "fabric 'shm' joins the fake nodes of one machine, but rank " + std::to_string(r) +
                    " is on " + cards[r].host + " and rank 0 on " + cards[0].host +
                    "; choose ucx, ofi or auto");
  }
}

std::string problem_here(std::string_view name) {
  const std::string problem = problem_of_plugin(std::string(name));
  return problem.empty() ? "" : "; here: " + problem;
}

}  // namespace

FabricChoice parse_fabric(const std::string& name) {
  const std::size_t colon = name.find(':');
  FabricChoice choice{.plugin = name.substr(0, colon),
                      .provider = colon == std::string::npos ? "" : name.substr(colon + 1),
                      .reason = "as asked"};
  const bool known = choice.plugin == "ucx" || choice.plugin == "ofi" ||
                     (choice.plugin == "shm" && colon == std::string::npos) || name == "auto";
  if (!known || (colon != std::string::npos && choice.provider.empty())) {
    throw std::invalid_argument("rondo::transport: fabric '" + name +
                                "' is none of auto, ucx, ucx:TRANSPORTS, ofi, ofi:PROVIDER, shm");
  }
  return choice;
}

std::string usable_plugins(const std::string& name) {
  const std::string wanted = parse_fabric(name).plugin;
  std::string usable;
  for (const std::string_view plugin : preference) {
    if (wanted != "auto" && wanted != plugin) continue;
    if (problem_of_plugin(std::string(plugin)).empty()) usable += std::string(plugin) + " ";
  }
  return usable;
}

FabricChoice choose_fabric(const FabricOptions& options, const std::vector<AddressCard>& cards) {
  FabricChoice choice = parse_fabric(options.name);
  if (choice.plugin == "shm") {
    check_one_machine(cards);
    return choice;
  }
  if (choice.plugin != "auto") {
    const int without = first_without(cards, choice.plugin);
    if (without < 0) return choice;
    throw Error(Errc::link_unavailable,
                "fabric '" + options.name + "' was asked for, but rank " + std::to_string(without) +
                    " on " + cards[static_cast<std::size_t>(without)].host +
                    " cannot load its plug-in" + problem_here(choice.plugin) +
                    "; install it there, or choose another fabric");
  }
  for (const std::string_view name : preference) {
    if (first_without(cards, name) >= 0) continue;
    return {.plugin = std::string(name),
            .provider = {},
            .reason = "auto: the first of ucx, ofi that works on all ranks"};
  }
  throw Error(
      Errc::link_unavailable,
      "no link reaches the ranks of other nodes: no plug-in of ucx, ofi works on all ranks" +
          problem_here("ucx") + problem_here("ofi"));
}

std::unique_ptr<Link> with_injected_delays(std::unique_ptr<Link> link,
                                           const FabricOptions& options) {
  const bool slow = options.injected_latency.count() > 0 || options.injected_bytes_per_second > 0;
  if (!slow) return link;
  return std::make_unique<DelayedLink>(std::move(link), options.injected_latency,
                                       options.injected_bytes_per_second);
}

}  // namespace rondo::transport::rendezvous
