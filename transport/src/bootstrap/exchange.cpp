// How the ranks of World::create() find each other: by one allgather of the host program.
//
// Each rank puts a card of fixed size into it: what machine it is on, and whether it can take part.
// Rank 0's card also has the job's id, a random secret, and the addresses of its host with the port
// of its store. With these a rank knows all that a launcher would have told it, and joins as if by
// attach(). The secret goes the way of the program's own messages, which it trusts already.
//
// A host has addresses that lead nowhere. Each rank of another machine therefore tries rank 0's
// one after the other, and takes the first at which something answers; the handshake with the store
// proves later that it is the right one.

#include "bootstrap/exchange.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <rondo/transport/error.hpp>

#include "bootstrap/auth.hpp"
#include "bootstrap/fabric.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/wire.hpp"

namespace rondo::transport::bootstrap {
namespace {

constexpr std::size_t card_bytes = 2048;
constexpr std::size_t longest_problem = 512;
constexpr std::size_t longest_host = 64;
constexpr std::size_t most_addresses = 8;

struct JobCard {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::string version = {};
  std::string host = {};
  std::string machine = {};
  std::string problem = {};      // why this rank cannot take part
  std::uint32_t fake_nodes = 0;  // more than 1: there must be a store
  // Of rank 0 alone:
  std::string job = {};
  std::string secret = {};
  std::uint16_t port = 0;
  std::string addresses = {};  // separated by spaces

  static auto fields(auto& card) {
    return std::tie(card.rank, card.size, card.version, card.host, card.machine, card.problem,
                    card.fake_nodes, card.job, card.secret, card.port, card.addresses);
  }
};

using JobCards = std::vector<JobCard>;

[[noreturn]] void fail(const std::string& what) {
  throw Error(Errc::rendezvous_failed, "rendezvous: " + what);
}

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto number = static_cast<unsigned char>(byte);
    text += digits[number >> 4];
    text += digits[number & 0xFU];
  }
  return text;
}

// Those by which other hosts may reach this one. Link-local IPv6 needs an interface to be of use.
std::string reachable_addresses(std::string_view pattern) {
  std::string text;
  std::size_t count = 0;
  for (const Interface& interface : select_interfaces(list_interfaces(), pattern)) {
    for (const std::string& address : interface.addresses) {
      if (address.starts_with("fe80:") || count == most_addresses) continue;
      text += (text.empty() ? "" : " ") + address;
      count += 1;
    }
  }
  return text;
}

// The port is opened before anybody knows whether there will be a store: a rank that hears of it
// can connect at once.
void open_store(JobCard& card, Agreement& agreement, const std::string& pattern) {
  constexpr std::size_t job_bytes = 16;
  constexpr std::size_t secret_bytes = 32;
  card.job = hexadecimal(random_bytes(job_bytes));
  card.secret = random_bytes(secret_bytes);
  // What is no literal address means all of this host.
  agreement.listener = listen_at({.host = "all addresses", .port = 0});
  card.port = own_address(agreement.listener.get()).port();
  // A machine without a network is enough for ranks that are all on it.
  try {
    card.addresses = reachable_addresses(pattern);
  } catch (const Error&) {
    card.addresses.clear();
  }
}

JobCard card_of(int rank, int size, const WorldOptions& options, Agreement& agreement) {
  JobCard card{.rank = static_cast<std::uint32_t>(rank),
               .size = static_cast<std::uint32_t>(size),
               .version = RONDO_VERSION,
               .host = host_name().substr(0, longest_host),
               .machine = machine_key()};
  // This rank's problem must reach the others: they are in the exchange already, or soon will be.
  try {
    LaunchInfo& launch = agreement.launch;
    read_link_settings(launch);
    const int nodes = options.fabric.fake_nodes > 0 ? options.fabric.fake_nodes : launch.fake_nodes;
    card.fake_nodes = static_cast<std::uint32_t>(std::max(nodes, 0));
    const std::string& asked = options.fabric.interface;
    if (rank == 0) open_store(card, agreement, asked.empty() ? launch.interface : asked);
  } catch (const std::exception& error) {
    card.problem = std::string(error.what()).substr(0, longest_problem);
  }
  return card;
}

JobCards exchange(const JobCard& mine, const Allgather& allgather) {
  std::string own = pack(mine);
  own.resize(card_bytes);
  std::string all(card_bytes * mine.size, '\0');
  allgather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  JobCards cards;
  for (std::uint32_t r = 0; r < mine.size; ++r) {
    const std::string_view part = std::string_view(all).substr(r * card_bytes, card_bytes);
    Unpacker unpacker(part);
    JobCard& card = cards.emplace_back();
    unpacker.read(card);
    if (card.version.empty() || card.rank != r) {
      fail("the allgather given to World::create() has put no card of rank " + std::to_string(r) +
           " where it belongs; it must store rank r's bytes at r times their number, and all "
           "ranks must run the same version");
    }
  }
  return cards;
}

void check(const JobCards& cards) {
  for (const JobCard& card : cards) {
    const std::string who = "rank " + std::to_string(card.rank) + " on host " + card.host;
    if (card.version != cards.front().version) {
      fail(who + " runs version " + card.version + ", rank 0 " + cards.front().version +
           "; install the same on all hosts");
    }
    if (card.size != cards.size()) {
      fail(who + " says that there are " + std::to_string(card.size) + " ranks, this one " +
           std::to_string(cards.size()));
    }
    if (!card.problem.empty()) fail(who + " cannot take part: " + card.problem);
  }
}

// The first address of rank 0 at which something listens.
std::string choose_address(const JobCard& first) {
  using namespace std::chrono_literals;
  std::string_view rest = first.addresses;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    const std::string host(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    for (const Address& address : resolve({.host = host, .port = first.port})) {
      if (connect_until(address, Clock::now() + 2s).valid()) return host;
    }
  }
  fail("no address of rank 0 on host " + first.host + " leads there from host " + host_name() +
       ": tried '" + first.addresses + "', port " + std::to_string(first.port) +
       "; name an interface that does, by FabricOptions::interface or RONDO_INTERFACE");
}

}  // namespace

Agreement agree_on_job(int rank, int size, const Allgather& allgather,
                       const WorldOptions& options) {
  Agreement agreement;
  LaunchInfo& launch = agreement.launch;
  launch.rank = rank;
  launch.size = size;
  const JobCards cards = exchange(card_of(rank, size, options, agreement), allgather);
  check(cards);
  const JobCard& first = cards.front();
  launch.job = first.job;
  launch.secret = first.secret;

  const auto same = [&](const JobCard& card) { return card.machine == first.machine; };
  const bool one_machine = std::ranges::all_of(cards, same);
  const bool fakes =
      std::ranges::any_of(cards, [](const auto& card) { return card.fake_nodes > 1; });
  if (one_machine && !fakes) {
    agreement.listener = {};
    return agreement;
  }
  launch.coordinator = Endpoint{.host = "127.0.0.1", .port = first.port};
  launch.listener = rank == 0 ? agreement.listener.get() : -1;
  if (!one_machine && rank != 0) launch.coordinator->host = choose_address(first);
  return agreement;
}

}  // namespace rondo::transport::bootstrap
