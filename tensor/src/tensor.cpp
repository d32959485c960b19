// Dense arrays in memory of a resource, aligned to a cache line and zeroed, and what types their
// elements may have. Whether the CPU computes with a type is oneDNN's to say: it knows what it may
// use, also where the environment forbids it a part of the CPU.

#include <rondo/tensor/tensor.hpp>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include <oneapi/dnnl/dnnl.hpp>

#include "onednn_kernel.hpp"

namespace rondo::tensor {
namespace {

constexpr std::size_t value_alignment = 64;

}  // namespace

bool computes_bf16() noexcept { return may_use(dnnl_cpu_isa_avx512_core_bf16); }

void require_computable(DataType type) {
  if (type == DataType::f32 || computes_bf16()) return;
  throw std::runtime_error(
      "bf16 needs a CPU with AVX512_BF16 or AMX, and this one has neither, or ONEDNN_MAX_CPU_ISA "
      "forbids them; compute in fp32 here");
}

void refuse_type(DataType given, DataType wanted) {
  throw std::invalid_argument(std::string("a view of ") + name_of(given) + " where one of " +
                              name_of(wanted) + " is expected");
}

AnyTensor::AnyTensor(Shape shape, DataType type, std::pmr::memory_resource* memory)
    : shape_(shape), type_(type), memory_(memory) {
  if (shape_.size() == 0) return;
  data_ = memory_->allocate(bytes(), value_alignment);
  std::memset(data_, 0, bytes());
}

AnyTensor::AnyTensor(AnyTensor&& other) noexcept
    : shape_(std::exchange(other.shape_, {})),
      type_(other.type_),
      memory_(other.memory_),
      data_(std::exchange(other.data_, nullptr)) {}

AnyTensor& AnyTensor::operator=(AnyTensor&& other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(type_, other.type_);
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  return *this;
}

AnyTensor::~AnyTensor() {
  if (data_ != nullptr) memory_->deallocate(data_, bytes(), value_alignment);
}

std::size_t AnyTensor::bytes() const noexcept {
  return static_cast<std::size_t>(shape_.size()) * size_of(type_);
}

std::span<float> Tensor::span() noexcept {
  return {data(), static_cast<std::size_t>(shape().size())};
}

std::span<const float> Tensor::span() const noexcept {
  return {data(), static_cast<std::size_t>(shape().size())};
}

}  // namespace rondo::tensor
