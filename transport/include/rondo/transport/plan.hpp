#pragma once

#include <memory>

#include <rondo/transport/export.hpp>
#include <rondo/transport/request.hpp>

namespace rondo::transport {

struct OperationRecord;
class CommunicatorCore;

/// An operation whose arguments were given and checked once, and that is started many times (what
/// MPI calls persistent). Starting it allocates nothing.
///
/// - **Buffers** are those of the call that made it. They are lent while one of its operations
///   is pending, and are this rank's otherwise.
/// - **Matching** is that of the operation itself: a rank may start a plan where another posts the
///   operation by itself. Several starts may be outstanding if the buffers allow it.
/// - **Threads.** Belongs to the World's thread. May outlive its Communicator.
class RONDO_TRANSPORT_API Plan {
 public:
  Plan(Plan&& other) noexcept;
  Plan& operator=(Plan&& other) noexcept;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan();

  /// Posts the operation.
  [[nodiscard]] Request start();

 private:
  friend class Communicator;
  Plan(std::shared_ptr<CommunicatorCore> core, OperationRecord& prototype) noexcept;

  std::shared_ptr<CommunicatorCore> core_;
  OperationRecord* prototype_;
};

}  // namespace rondo::transport
