#include "layers/needed_part.hpp"

namespace rondo::train {

NeededPart::NeededPart(const GridContext& context, const Partition& held,
                       std::span<const Box> needs, const Box& reads)
    : reads_own_(reads == held.box_of(context.communicators.rank())),
      exchange_(context.communicators.all(),
                redistribution(held, needs, context.communicators.rank()),
                held.box_of(context.communicators.rank()), reads, context.memory) {
  if (!reads_own_) copy_ = tensor::Tensor(reads.shape(), context.engine.layer_memory());
}

void NeededPart::start(tensor::View<const float> own) {
  if (reads_own_) {
    exchange_.start(own.data);
    read_ = own;
  } else {
    exchange_.start(own.data, copy_.data());
    read_ = copy_.view();
  }
}

tensor::View<const float> NeededPart::finish() {
  exchange_.finish(copy_.data());
  return read_;
}

}  // namespace rondo::train
