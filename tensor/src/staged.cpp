#include "staged.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace rondo::tensor {
namespace {

std::string text_of(const Shape& shape) {
  return std::to_string(shape.n) + "x" + std::to_string(shape.h) + "x" + std::to_string(shape.w) +
         "x" + std::to_string(shape.c);
}

bool is_dense(const View<const float>& view) { return view.dense() || view.shape.n <= 1; }

void copy_images(const Engine::Impl& engine, const View<const float>& from,
                 const View<float>& into) {
  for_each_part(engine.threads(), [&](int part) {
    const Cut images = cut(from.shape.n, part, engine.threads());
    for (auto n = images.first; n < images.last; ++n) {
      std::copy_n(from.image(n), from.shape.image(), into.image(n));
    }
  });
}

}  // namespace

void require_shape(std::string_view call, std::string_view argument, const View<const float>& given,
                   const Shape& expected) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(std::string(call) + ": " + std::string(argument) + " " + why);
  };
  if (given.shape != expected) {
    refuse("is " + text_of(given.shape) + ", but " + text_of(expected) +
           " (n x h x w x c) is expected");
  }
  if (expected.size() == 0) return;
  if (given.data == nullptr) refuse("has no memory");
  if (expected.n > 1 && given.image_stride < expected.image()) {
    refuse("has images that overlap (stride " + std::to_string(given.image_stride) + ")");
  }
}

const float* dense_input(Engine::Impl& engine, const View<const float>& view, std::size_t slot) {
  if (is_dense(view)) return view.data;
  float* const copy = engine.staging(slot, view.shape.size());
  copy_images(engine, view, {copy, view.shape});
  return copy;
}

DenseOutput::DenseOutput(Engine::Impl& engine, const View<float>& view, std::size_t slot)
    : engine_(engine),
      view_(view),
      data_(is_dense(view) ? view.data : engine.staging(slot, view.shape.size())) {}

void DenseOutput::finish() {
  if (data_ != view_.data) copy_images(engine_, View<const float>(data_, view_.shape), view_);
}

}  // namespace rondo::tensor
