#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "links/link.hpp"
#include "links/shm/peer.hpp"
#include "links/shm/receiver.hpp"
#include "links/shm/sender.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::links::shm {

/// Messages between the ranks of one node, and to oneself, over shared memory.
class ShmLink final : public Link {
 public:
  /// As open_shm_link().
  ShmLink(int rank, std::span<transport::shm::RankMemory* const> memories, bool may_sleep);

  void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                 Transfer& transfer) override;
  void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                 Transfer& transfer) override;
  bool progress() override;
  void cancel(Transfer& transfer) override;

  /// Nothing: whoever waits sleeps on its doorbell, which peers ring.
  [[nodiscard]] std::optional<int> arm() override { return std::nullopt; }
  /// Nothing: the ranks of a node have each other's memory already.
  [[nodiscard]] std::string address() const override { return {}; }
  void connect(int rank, const std::string& address) override;
  void add_memory(std::span<std::byte> memory) override;

  [[nodiscard]] std::string route() const override;
  [[nodiscard]] std::string error_text(const Transfer& transfer) const override;

 private:
  [[nodiscard]] Peer& own() noexcept { return peers_[rank_]; }

  std::size_t rank_;
  std::vector<Peer> peers_;
  Sender sender_;
  Receiver receiver_;
};

}  // namespace rondo::transport::links::shm
