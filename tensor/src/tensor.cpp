// Dense arrays in memory of a resource, aligned to a cache line and zeroed.

#include <rondo/tensor/tensor.hpp>

#include <algorithm>
#include <utility>

namespace rondo::tensor {
namespace {

constexpr std::size_t cache_line = 64;

std::size_t bytes_of(const Shape& shape) {
  return static_cast<std::size_t>(shape.size()) * sizeof(float);
}

}  // namespace

Tensor::Tensor(Shape shape, std::pmr::memory_resource* memory) : shape_(shape), memory_(memory) {
  if (shape_.size() == 0) return;
  data_ = static_cast<float*>(memory_->allocate(bytes_of(shape_), cache_line));
  std::ranges::fill(span(), 0.0F);
}

Tensor::Tensor(Tensor&& other) noexcept
    : shape_(std::exchange(other.shape_, {})),
      memory_(other.memory_),
      data_(std::exchange(other.data_, nullptr)) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  return *this;
}

Tensor::~Tensor() {
  if (data_ != nullptr) memory_->deallocate(data_, bytes_of(shape_), cache_line);
}

std::span<float> Tensor::span() noexcept {
  return {data_, static_cast<std::size_t>(shape_.size())};
}

std::span<const float> Tensor::span() const noexcept {
  return {data_, static_cast<std::size_t>(shape_.size())};
}

}  // namespace rondo::tensor
