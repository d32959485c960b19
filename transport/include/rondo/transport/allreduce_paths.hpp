#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rondo/transport/export.hpp>

namespace rondo::transport {

class AlgorithmTable;

/// How an allreduce runs between nodes, or between all ranks.
enum class AllreduceAlgorithm : std::uint8_t {
  doubling,  ///< "rd": recursive doubling; few messages
  halving,   ///< "rh": recursive halving, and doubling back; twice the messages, few bytes
  ring,      ///< "ring": many messages, few bytes; adds while it receives
};

/// How an allreduce goes between nodes.
struct AllreducePath {
  AllreduceAlgorithm algorithm = AllreduceAlgorithm::ring;
  bool flat = false;  ///< between all ranks, also those of one node
};

/// Which way a World would take, for who predicts what communication costs: no World is needed.
class RONDO_TRANSPORT_API AllreducePaths {
 public:
  /// `table` as FabricOptions::allreduce: empty, the choice follows from the number of ends. Throws
  /// std::invalid_argument, which says where it is wrong.
  explicit AllreducePaths(const std::string& table = {});

  /// The path of an allreduce of `bytes` between so many `ends`: nodes, or ranks if each has a node
  /// of its own.
  [[nodiscard]] AllreducePath of(std::size_t ends, std::size_t bytes) const noexcept;

  /// Into how many blocks an allreduce of `bytes` is cut where nodes have several ranks, so that
  /// what ranks do on a node hides behind what other blocks do between nodes. `owners` of a node's
  /// ranks exchange: one by doubling, all of them by halving or in a ring.
  [[nodiscard]] static std::size_t blocks(std::size_t bytes, std::size_t owners,
                                          std::size_t nodes) noexcept;

 private:
  std::shared_ptr<const AlgorithmTable> given_;  // null: by the ends
};

}  // namespace rondo::transport
