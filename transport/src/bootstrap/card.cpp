#include "bootstrap/card.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <rondo/transport/error.hpp>

#include "core/names.hpp"

namespace rondo::transport::rendezvous {
namespace {

constexpr std::array fields = {&AddressCard::host,        &AddressCard::node_key,
                               &AddressCard::machine_key, &AddressCard::settings,
                               &AddressCard::plugins,     &AddressCard::address,
                               &AddressCard::problem};

// Fields one after the other, each behind its length: a host's name may hold anything.
void write(std::string& text, const std::string& field) {
  const std::uint64_t length = field.size();
  text.append(reinterpret_cast<const char*>(&length), sizeof length);
  text += field;
}

std::string read(const std::string& text, std::size_t& at) {
  std::uint64_t length = 0;
  const bool has_length = text.size() - at >= sizeof length;
  if (has_length) std::memcpy(&length, text.data() + at, sizeof length);
  if (!has_length || text.size() - at - sizeof length < length) {
    throw Error(Errc::rendezvous_failed,
                "rendezvous: a rank said something else than what it is; do all ranks run the "
                "same version?");
  }
  at += sizeof length + length;
  return text.substr(at - length, length);
}

}  // namespace

std::string to_text(const AddressCard& card) {
  std::string text;
  write(text, std::to_string(card.pid));
  for (std::string AddressCard::* field : fields) write(text, card.*field);
  return text;
}

AddressCard card_from(const std::string& text) {
  std::size_t at = 0;
  AddressCard card;
  card.pid = std::atoi(read(text, at).c_str());
  for (std::string AddressCard::* field : fields) card.*field = read(text, at);
  return card;
}

std::string describe_settings(int size, const WorldOptions& options) {
  const FabricOptions& fabric = options.fabric;
  std::string text = "version " RONDO_VERSION ", " + std::to_string(size) + " ranks, fabric " +
                     fabric.name + ", small_bytes " + std::to_string(options.small_bytes) +
                     ", waiting " + name_of(options.waiting);
  if (fabric.fake_nodes > 0) text += ", " + std::to_string(fabric.fake_nodes) + " fake nodes";
  if (!fabric.allreduce.empty()) text += ", allreduce " + fabric.allreduce;
  return text;
}

std::string machine_key() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space = {};
  if (::stat("/proc/self/ns/net", &space) != 0) return boot;
  return boot + "/" + std::to_string(space.st_ino);
}

std::vector<int> number_nodes(const std::vector<AddressCard>& cards) {
  std::vector<std::string> keys;
  std::vector<int> nodes;
  for (const AddressCard& card : cards) {
    const auto found = std::ranges::find(keys, card.node_key);
    nodes.push_back(static_cast<int>(found - keys.begin()));
    if (found == keys.end()) keys.push_back(card.node_key);
  }
  return nodes;
}

void check_links(const std::vector<AddressCard>& cards) {
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if (cards[r].problem.empty()) continue;
    throw Error(Errc::link_unavailable,
                "rank " + std::to_string(r) + " on " + cards[r].host + ": " + cards[r].problem);
  }
}

void check_settings(const std::vector<AddressCard>& cards) {
  for (std::size_t r = 1; r < cards.size(); ++r) {
    if (cards[r].settings == cards[0].settings) continue;
    throw Error(Errc::rendezvous_failed,
                "rendezvous: ranks disagree: rank 0 on " + cards[0].host + " has " +
                    cards[0].settings + "; rank " + std::to_string(r) + " on " + cards[r].host +
                    " has " + cards[r].settings + "; all ranks must pass the same options");
  }
}

}  // namespace rondo::transport::rendezvous
