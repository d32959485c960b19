// A convolution split in space, in two steps: first the rows of y that need no halo, while the halo
// travels, then the rows above and below them. Each step is a convolution of its own over some
// rows, with padding only where the image ends, and all share the packed weights of the whole one.

#include "layers/interior_first.hpp"

namespace rondo::train {
namespace {

template <typename View>
View rows_of(View image, Range rows) {
  const auto [n, h, w, c] = image.shape;
  tensor::with_type(image.type, [&]<typename T>(T /*of*/) {
    image.data = image.template as<T>().data + rows.first * w * c;
  });
  image.shape = {1, rows.size(), w, c};
  return image;
}

Range from(std::int64_t origin, Range range) { return {range.first - origin, range.last - origin}; }

}  // namespace

struct InteriorFirst::Maker {
  tensor::Convolution& whole;
  const Window& window;
  std::int64_t height = 0;
  Range own = {};

  /// The rows `outputs` from memory that begins with row `origin`.
  void make(Range outputs, std::int64_t origin, std::vector<Rows>& into) const {
    if (outputs.empty()) return;
    const Reach reach = inputs_read(window, outputs, height);
    tensor::ConvolutionSpec spec = whole.spec();
    spec.input.h = reach.range.size();
    spec.pad_top = reach.before;
    spec.pad_bottom = reach.after;
    spec.input_gradient = tensor::InputGradient::unused;
    spec.weight_gradient = tensor::WeightGradient::unused;
    into.push_back(
        {from(origin, reach.range), from(own.first, outputs), tensor::Convolution(whole, spec)});
  }
};

bool InteriorFirst::pays(const Halo& halo, const Box& held, const Box& reads,
                         std::int64_t weights) noexcept {
  // Some rows of one image are dense memory; of several images they are not. Two or three kernels
  // read the weights more often than one, which pays only where the activations are larger.
  const bool rows_are_dense = held.n.size() == 1 && reads.w == held.w && halo.inner.w == halo.own.w;
  const bool most_are_inner = !halo.inner.h.empty() && 2 * halo.inner.h.size() >= halo.own.h.size();
  return reads != held && rows_are_dense && most_are_inner && weights <= 4 * held.size();
}

// The rows of y fall into three ranges: above the inner rows, the inner rows, below them.
InteriorFirst::InteriorFirst(tensor::Convolution& whole, const Halo& halo, const Windows& windows,
                             std::int64_t height, const Box& held, const Box& reads) {
  const Maker maker{whole, windows.h, height, halo.own.h};
  maker.make(halo.inner.h, held.h.first, inner_);
  maker.make({halo.own.h.first, halo.inner.h.first}, reads.h.first, border_);
  maker.make({halo.inner.h.last, halo.own.h.last}, reads.h.first, border_);
}

void InteriorFirst::Rows::run(const tensor::ConstAnyView& x, std::span<const float> bias,
                              const tensor::AnyView& y) {
  kernel.forward(rows_of(x, inputs), bias, rows_of(y, outputs));
}

void InteriorFirst::inner(const tensor::ConstAnyView& held, std::span<const float> bias,
                          const tensor::AnyView& y) {
  for (Rows& rows : inner_) rows.run(held, bias, y);
}

void InteriorFirst::border(const tensor::ConstAnyView& read, std::span<const float> bias,
                           const tensor::AnyView& y) {
  for (Rows& rows : border_) rows.run(read, bias, y);
}

}  // namespace rondo::train
