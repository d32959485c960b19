#pragma once

#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <rondo/transport/communicator.hpp>

namespace rondo::torch_backend {

/// How one reduction of torch.distributed is done with what the transport reduces: sums, minima and
/// maxima of f32, f64, bf16, i32, i64 and u8.
///
/// - Half becomes fp32, int8 and int16 become int32, and the result is converted back; bool becomes
///   u8, where `or` is a maximum and `and` a minimum.
/// - Averages are sums, divided afterwards.
/// - Products and bitwise operations are gathered from all ranks and joined here, in rank order:
///   they move P-1 times the bytes.
class Reduction {
 public:
  /// Throws c10::Error if `op` is not defined for this type of elements.
  Reduction(at::ScalarType type, const c10d::ReduceOp& op);

  /// The type in which elements travel.
  [[nodiscard]] at::ScalarType wire_type() const noexcept { return wire_type_; }
  /// Must inputs be gathered, and joined by fold()?
  [[nodiscard]] bool gathered() const noexcept { return gathered_; }
  [[nodiscard]] transport::ReduceOp wire_op() const noexcept { return wire_op_; }

  /// What is left to do with a sum: divides by the number of ranks in an average.
  void finish(at::Tensor& result, int ranks) const;
  /// Joins the rows of `gathered`, one for each rank, in rank order.
  [[nodiscard]] at::Tensor fold(const at::Tensor& gathered) const;

 private:
  c10d::ReduceOp::RedOpType op_;
  at::ScalarType wire_type_;
  transport::ReduceOp wire_op_ = transport::ReduceOp::sum;
  bool gathered_ = false;
};

/// `tensor`'s elements in the order of memory, as the transport takes them. It must be dense and of
/// a type that the transport reduces, or of any type if `bytes` (which only moves it).
[[nodiscard]] transport::Request allreduce(transport::Communicator& communicator,
                                           const at::Tensor& tensor, transport::ReduceOp op);
[[nodiscard]] transport::Request reduce(transport::Communicator& communicator, const at::Tensor& in,
                                        const at::Tensor& out, int root, transport::ReduceOp op);
[[nodiscard]] transport::Request reduce_scatter(transport::Communicator& communicator,
                                                const at::Tensor& in, const at::Tensor& out,
                                                transport::ReduceOp op,
                                                std::span<const std::size_t> counts);

}  // namespace rondo::torch_backend
