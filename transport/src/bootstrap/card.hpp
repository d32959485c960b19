#pragma once

#include <string>
#include <vector>

#include <rondo/transport/world.hpp>

namespace rondo::transport::rendezvous {

/// What a rank tells all others about itself before there are any links.
struct AddressCard {
  int pid = 0;
  std::string host = {};
  /// Equal for ranks that can map each other's memory: boot id, network namespace, fake node.
  std::string node_key = {};
  /// Boot id and network namespace alone.
  std::string machine_key = {};
  /// What must be equal on all ranks, for people to read.
  std::string settings = {};
  /// The link plug-ins that work here, by preference: "ucx ofi".
  std::string plugins = {};
  /// Of the fabric; in a second round.
  std::string address = {};
  /// Why there is none.
  std::string problem = {};
};

[[nodiscard]] std::string to_text(const AddressCard& card);
/// Throws Error(rendezvous_failed) when the text is not a card.
[[nodiscard]] AddressCard card_from(const std::string& text);

/// "version 0.1.0, 4 ranks, fabric auto, ...".
[[nodiscard]] std::string describe_settings(int size, const WorldOptions& options);

/// Where this process runs, as AddressCard::machine_key.
[[nodiscard]] std::string machine_key();

/// Which node each rank is on: equal keys are one node, counted in order of the first rank.
[[nodiscard]] std::vector<int> number_nodes(const std::vector<AddressCard>& cards);

/// Throws Error(link_unavailable) that names the first rank that has a problem.
void check_links(const std::vector<AddressCard>& cards);

/// Throws Error(rendezvous_failed) that names the first two ranks whose settings differ.
void check_settings(const std::vector<AddressCard>& cards);

}  // namespace rondo::transport::rendezvous
