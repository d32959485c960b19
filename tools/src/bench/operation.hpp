#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include <rondo/transport/element.hpp>
#include <rondo/transport/reduce_op.hpp>

namespace rondo::transport {
class Communicator;
}

namespace rondo::tools {

/// What one measurement is made of.
struct BenchSetting {
  transport::Communicator* ranks = nullptr;  ///< who takes part; lent
  std::vector<int> members = {};             ///< their ranks in the World
  std::size_t bytes = 0;
  transport::ElementType type = transport::ElementType::f32;
  transport::ReduceOp reduction = transport::ReduceOp::sum;
  bool in_place = true;
  std::pmr::memory_resource* memory = nullptr;  ///< where buffers lie
  int first = 0;                                ///< point-to-point: the pair of ranks
  int second = 0;
  bool both_ways = false;  ///< bandwidth in both directions at once
};

/// What a measurement's numbers refer to.
struct BenchFacts {
  std::size_t bytes = 0;  ///< as they were cut for the ranks; nccl-tests' "size"
  std::size_t count = 0;  ///< the same in elements
  double bus_factor = 1;  ///< bus bandwidth over algorithm bandwidth, as nccl-tests define it
  int calls = 1;          ///< of one run(): what its time is divided by
};

/// An operation to be measured, with its buffers. All ranks make the same, and call the same.
class BenchOperation {
 public:
  BenchOperation() = default;
  BenchOperation(const BenchOperation&) = delete;
  BenchOperation& operator=(const BenchOperation&) = delete;
  virtual ~BenchOperation() = default;

  [[nodiscard]] virtual BenchFacts facts() const = 0;

  /// Writes the input, as backward does before a reduction.
  virtual void rewrite() {}
  /// Posts and waits.
  virtual void run() = 0;
  /// Reads the output, as an optimizer does after a reduction.
  virtual void read_back() {}

  /// Makes all buffers wrong.
  virtual void spoil() {}
  /// This rank's wrong elements after spoil(), rewrite() and run().
  [[nodiscard]] virtual std::int64_t count_wrong() = 0;
};

}  // namespace rondo::tools
