#pragma once

#include <cstddef>
#include <span>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <rondo/transport/communicator.hpp>

namespace rondo::torch_backend {

/// The transport's reduction for one of torch.distributed. A bool is 0 or 1, whose sum and `or` are
/// a maximum, whose product and `and` are a minimum. Throws c10::Error if `op` is not defined for
/// this type of elements.
[[nodiscard]] transport::ReduceOp find_op(at::ScalarType type, const c10d::ReduceOp& op);

/// `tensor`'s elements in the order of memory, as the transport takes them. It must be dense.
[[nodiscard]] transport::Request allreduce(transport::Communicator& communicator,
                                           const at::Tensor& tensor, transport::ReduceOp op);
[[nodiscard]] transport::Request reduce(transport::Communicator& communicator, const at::Tensor& in,
                                        const at::Tensor& out, int root, transport::ReduceOp op);
[[nodiscard]] transport::Request reduce_scatter(transport::Communicator& communicator,
                                                const at::Tensor& in, const at::Tensor& out,
                                                transport::ReduceOp op,
                                                std::span<const std::size_t> counts);

}  // namespace rondo::torch_backend
