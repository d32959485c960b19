// Moves values between ranks around the kernels of layers: a change of layout between two nodes,
// and the halo around a part that is split in space. Each also says what it allocates, so that a
// plan knows the memory of a rank before any rank runs.

#include "layers/split_kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace rondo::train {
namespace {

Exchange exchange_of(const KernelContext& context, const Partition& from, const Partition& to) {
  const int rank = context.communicators.rank();
  return {context.communicators.all(),
          redistribution(from, to, rank),
          from.box_of(rank),
          to.box_of(rank),
          context.memory,
          Arrival::replaces,
          context.type};
}

/// Gradients go back as values came: a rank that holds a copy of a value holds its whole gradient,
/// so none are added up.
class RedistributionKernel final : public OneForwardKernel {
 public:
  RedistributionKernel(const KernelContext& context, const Partition& from, const Partition& to)
      : there_(exchange_of(context, from, to)) {
    if (context.trains()) back_.emplace(exchange_of(context, to, from));
  }

  void backward_parameters(const BackwardOperands& /*operands*/) override {}
  void backward_input(const BackwardOperands& operands) override {
    if (operands.dx.data == nullptr) return;  // the model's input: nobody wants its gradient
    back_->start(operands.dy.data, operands.dx.data);
    back_->finish(operands.dx.data);
  }

 private:
  void forward(const ForwardOperands& operands) override {
    there_.start(operands.x.data, operands.y.data);
    there_.finish(operands.y.data);
  }

  Exchange there_;
  std::optional<Exchange> back_;  ///< none: no gradient is wanted
};

}  // namespace

std::unique_ptr<LayerKernel> make_redistribution(const KernelContext& context,
                                                 const Partition& from, const Partition& to) {
  return std::make_unique<RedistributionKernel>(context, from, to);
}

// There and back: in training the gradient goes the opposite way.
std::size_t redistribution_bytes(const Partition& from, const Partition& to, int rank,
                                 tensor::DataType type) {
  return Exchange::bytes(redistribution(from, to, rank), type) +
         Exchange::bytes(redistribution(to, from, rank), type);
}

NeededPart::NeededPart(const KernelContext& context, const Partition& held,
                       std::span<const Box> needs, const Box& reads)
    : reads_own_(reads == held.box_of(context.communicators.rank())),
      exchange_(context.communicators.all(),
                redistribution(held, needs, context.communicators.rank()),
                held.box_of(context.communicators.rank()), reads, context.memory, Arrival::replaces,
                context.type) {
  if (!reads_own_) {
    copy_ = tensor::AnyTensor(reads.shape(), context.type, context.engine.layer_memory());
  }
}

void NeededPart::start(const tensor::ConstAnyView& own) {
  if (reads_own_) {
    exchange_.start(own.data);
    read_ = own;
  } else {
    exchange_.start(own.data, copy_.data());
    read_ = std::as_const(copy_).view();
  }
}

tensor::ConstAnyView NeededPart::finish() {
  // Without a copy nothing arrives: the rank reads what it holds, and only sends.
  exchange_.finish(copy_.data());
  return read_;
}

std::size_t NeededPart::bytes(const Partition& held, std::span<const Box> needs, const Box& reads,
                              int rank, tensor::DataType type) {
  const std::size_t copy = reads == held.box_of(rank) ? 0 : bytes_of(reads.size(), type);
  return copy + Exchange::bytes(redistribution(held, needs, rank), type);
}

// Zero has the same bits in all types.
void clear(const tensor::AnyView& view) {
  std::fill_n(static_cast<std::byte*>(view.data), bytes_of(view.shape.size(), view.type),
              std::byte{0});
}

void add_memory(tensor::KernelMemory& sum, const tensor::KernelMemory& more) noexcept {
  sum.own += more.own;
  // Scratchpad and reorder buffer are shared by all kernels of an engine, so the largest counts.
  sum.scratchpad = std::max(sum.scratchpad, more.scratchpad);
  sum.reorder_buffer = std::max(sum.reorder_buffer, more.reorder_buffer);
}

}  // namespace rondo::train
