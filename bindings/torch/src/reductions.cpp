// Maps the reductions of torch.distributed, and the types that they take, to the transport's.

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

// The types of with_elements().
bool is_known(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kBool:
      return true;
    default:  // newer versions have integers without a sign, for example
      return false;
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
    case at::kHalf:
      return use(std::span(static_cast<transport::Float16*>(data), count));
    case at::kChar:
      return use(std::span(static_cast<std::int8_t*>(data), count));
    case at::kShort:
      return use(std::span(static_cast<std::int16_t*>(data), count));
    case at::kByte:
    case at::kBool:
      return use(std::span(static_cast<std::uint8_t*>(data), count));
    default:
      TORCH_INTERNAL_ASSERT(false, "find_op() refuses all other types");
  }
}

}  // namespace

transport::ReduceOp find_op(at::ScalarType type, const c10d::ReduceOp& op) {
  using transport::ReduceOp;
  const bool floating = at::isFloatingType(type);
  TORCH_CHECK(is_known(type), "rondo reduces no tensors of type ", type,
              "; convert them, or view complex ones as real");
  const bool truth = type == at::kBool;
  switch (op.op_) {
    case Kind::SUM:
      return truth ? ReduceOp::max : ReduceOp::sum;
    case Kind::PRODUCT:
      return truth ? ReduceOp::min : ReduceOp::prod;
    case Kind::MIN:
      return ReduceOp::min;
    case Kind::MAX:
      return ReduceOp::max;
    case Kind::AVG:
      TORCH_CHECK(floating, "rondo: ReduceOp.AVG is for floating point, and the tensor is of type ",
                  type);
      return ReduceOp::avg;
    default:
      break;
  }
  TORCH_CHECK(op.op_ <= Kind::BXOR, "rondo does not know ReduceOp.", name_of(op.op_));
  TORCH_CHECK(!floating, "rondo: ReduceOp.", name_of(op.op_),
              " is for integers, and the tensor is of type ", type);
  return op.op_ == Kind::BAND  ? ReduceOp::bit_and
         : op.op_ == Kind::BOR ? ReduceOp::bit_or
                               : ReduceOp::bit_xor;
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
