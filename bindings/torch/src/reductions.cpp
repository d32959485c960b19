// What torch.distributed reduces, in terms of what the transport reduces.

#include "reductions.hpp"

#include <cstdint>
#include <span>

#include <c10/util/Exception.h>

namespace rondo::torch_backend {

namespace {

using Kind = c10d::ReduceOp;

const char* name_of(Kind::RedOpType op) {
  switch (op) {
    case Kind::SUM:
      return "SUM";
    case Kind::AVG:
      return "AVG";
    case Kind::PRODUCT:
      return "PRODUCT";
    case Kind::MIN:
      return "MIN";
    case Kind::MAX:
      return "MAX";
    case Kind::BAND:
      return "BAND";
    case Kind::BOR:
      return "BOR";
    case Kind::BXOR:
      return "BXOR";
    default:
      return "PREMUL_SUM";
  }
}

at::ScalarType wire_type_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return at::kFloat;
    case at::kChar:
    case at::kShort:
      return at::kInt;
    case at::kBool:
      return at::kByte;
    default:
      return type;
  }
}

/// Calls `use` with the elements of a dense tensor, in the order of memory.
template <typename Use>
auto with_elements(const at::Tensor& tensor, Use use) {
  const auto count = static_cast<std::size_t>(tensor.numel());
  void* data = tensor.data_ptr();
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return use(std::span(static_cast<float*>(data), count));
    case at::kDouble:
      return use(std::span(static_cast<double*>(data), count));
    case at::kBFloat16:
      return use(std::span(static_cast<transport::Bfloat16*>(data), count));
    case at::kInt:
      return use(std::span(static_cast<std::int32_t*>(data), count));
    case at::kLong:
      return use(std::span(static_cast<std::int64_t*>(data), count));
    default:
      return use(std::span(static_cast<std::uint8_t*>(data), count));
  }
}

}  // namespace

Reduction::Reduction(at::ScalarType type, const c10d::ReduceOp& op)
    : op_(op.op_), wire_type_(wire_type_of(type)) {
  const bool floating = at::isFloatingType(type);
  const bool known = floating ? type == at::kFloat || type == at::kDouble || type == at::kHalf ||
                                    type == at::kBFloat16
                              : at::isIntegralType(type, true);
  TORCH_CHECK(known, "rondo reduces no tensors of type ", type,
              "; convert them, or view complex ones as real");
  TORCH_CHECK(op_ <= Kind::BXOR, "rondo does not know ReduceOp.", name_of(op_));
  const bool bitwise = op_ == Kind::BAND || op_ == Kind::BOR || op_ == Kind::BXOR;
  TORCH_CHECK(!(bitwise && floating), "rondo: ReduceOp.", name_of(op_),
              " is for integers, and the tensor is of type ", type);
  TORCH_CHECK(!(op_ == Kind::AVG && !floating),
              "rondo: ReduceOp.AVG is for floating point, and the tensor is of type ", type);
  // A bool is 0 or 1, whose sum and `or` are a maximum, whose product and `and` are a minimum.
  const bool truth = type == at::kBool;
  if (op_ == Kind::MIN || (truth && (op_ == Kind::BAND || op_ == Kind::PRODUCT))) {
    wire_op_ = transport::ReduceOp::min;
  } else if (op_ == Kind::MAX || (truth && (op_ == Kind::BOR || op_ == Kind::SUM))) {
    wire_op_ = transport::ReduceOp::max;
  } else {
    gathered_ = bitwise || op_ == Kind::PRODUCT;
  }
}

void Reduction::finish(at::Tensor& result, int ranks) const {
  if (op_ == Kind::AVG) result.div_(ranks);
}

at::Tensor Reduction::fold(const at::Tensor& gathered) const {
  at::Tensor result = gathered[0].clone();
  for (std::int64_t rank = 1; rank < gathered.size(0); ++rank) {
    switch (op_) {
      case Kind::BAND:
        result.bitwise_and_(gathered[rank]);
        break;
      case Kind::BOR:
        result.bitwise_or_(gathered[rank]);
        break;
      case Kind::BXOR:
        result.bitwise_xor_(gathered[rank]);
        break;
      default:
        result.mul_(gathered[rank]);
        break;
    }
  }
  return result;
}

transport::Request allreduce(transport::Communicator& communicator, const at::Tensor& tensor,
                             transport::ReduceOp op) {
  return with_elements(tensor, [&](auto data) { return communicator.allreduce(data, op); });
}

transport::Request reduce(transport::Communicator& communicator, const at::Tensor& in,
                          const at::Tensor& out, int root, transport::ReduceOp op) {
  return with_elements(in, [&](auto data) {
    using Element = typename decltype(data)::element_type;
    std::span<Element> result;
    if (communicator.rank() == root) result = {static_cast<Element*>(out.data_ptr()), data.size()};
    return communicator.reduce(std::span<const Element>(data), result, root, op);
  });
}

transport::Request reduce_scatter(transport::Communicator& communicator, const at::Tensor& in,
                                  const at::Tensor& out, transport::ReduceOp op,
                                  std::span<const std::size_t> counts) {
  return with_elements(in, [&](auto data) {
    using Element = typename decltype(data)::element_type;
    const std::span<Element> result(static_cast<Element*>(out.data_ptr()),
                                    static_cast<std::size_t>(out.numel()));
    return communicator.reduce_scatter(std::span<const Element>(data), result, op, counts);
  });
}

}  // namespace rondo::torch_backend
