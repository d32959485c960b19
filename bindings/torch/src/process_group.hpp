#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <c10/core/GradMode.h>

#include "engine.hpp"

namespace rondo::torch_backend {

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif
using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

/// A new group, whose ranks meet at `store`.
c10::intrusive_ptr<Base> create_group(const StorePointer& store, int rank, int size,
                                      std::chrono::milliseconds timeout);

/// A process group of torch.distributed whose tensors on the CPU are moved and reduced by a World.
///
/// Tensors may be strided as they like; those that are not contiguous are copied. Any thread may
/// call. Arguments are those of torch.distributed's documentation; wrong ones throw c10::Error, and
/// what goes wrong later is thrown by wait() or is the future's error, with the rank at fault in
/// it.
///
/// Functions without `override` override one in newer versions of PyTorch alone.
class ProcessGroup final : public Base {
 public:
  ProcessGroup(std::shared_ptr<Engine> engine, int rank, int size,
               std::chrono::milliseconds timeout);
  ~ProcessGroup() override;

  const std::string getBackendName() const override { return "rondo"; }
  [[nodiscard]] bool supportsSplitting() const { return true; }
  c10::intrusive_ptr<Base::Options> getBackendOptions();
  /// For `ranks` of this group, all of which call; null on others. Nothing else is exchanged.
  c10::intrusive_ptr<Base> split(const StorePointer& store, const std::vector<int>& ranks,
                                 const c10::intrusive_ptr<Base::Options>& options);
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  /// Fails what is pending, here and on the other ranks.
  void abort() { engine_->abort(); }
  /// As the destructor, while others still hold the group.
  void shutdown();

  [[nodiscard]] const std::shared_ptr<Engine>& engine() const noexcept { return engine_; }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options);

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options);
  WorkPointer allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs,
                     const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                      const c10d::ScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
                            const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                       const c10d::AllToAllOptions& options) override;

  WorkPointer send(Tensors& tensors, int peer, int tag) override;
  WorkPointer recv(Tensors& tensors, int peer, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool all_ranks) override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }

 private:
  using OperationPointer = c10::intrusive_ptr<Operation>;
  /// An operation until it is posted. Autograd records none of the copies that are made meanwhile.
  struct Preparation {
    c10::NoGradGuard no_grad;
    OperationPointer operation;

    Operation& operator*() const { return *operation; }
    Operation* operator->() const { return operation.get(); }
  };
  Preparation make(c10d::OpType type, Tensors outputs, std::chrono::milliseconds timeout);
  void add_allreduce(Operation& operation, std::vector<Engine::Start>& starts, at::Tensor& tensor,
                     const c10d::ReduceOp& op);
  WorkPointer allreduce_sparse(at::Tensor tensor, const c10d::AllreduceOptions& options);
  WorkPointer post(const Preparation& prepared, const Engine::Start& start);
  WorkPointer post(const Preparation& prepared, const std::vector<Engine::Start>& starts);
  using Counts = std::vector<std::size_t>;
  WorkPointer exchange(const Preparation& prepared, const at::Tensor& output,
                       const Counts& output_bytes, const at::Tensor& input,
                       const Counts& input_bytes);
  [[nodiscard]] Counts bytes_by_rank(const at::Tensor& tensor,
                                     const std::vector<int64_t>& sizes) const;
  void check_rank(const char* what, int64_t rank) const;

  std::shared_ptr<Engine> engine_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<uint64_t> sequence_{0};
};

}  // namespace rondo::torch_backend
