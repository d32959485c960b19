#include "optimizer/optimizer_state.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/byte_reader.hpp"
#include "base/byte_writer.hpp"

namespace rondo::sync {

OptimizerState::OptimizerState(std::string_view name, std::uint32_t version, std::size_t size,
                               std::size_t arrays)
    : name_(name), version_(version), size_(size), own_(size * arrays, 0.0F), values_(own_) {}

void OptimizerState::keep_in(std::span<float> memory) {
  if (memory.size() != values_.size()) {
    throw std::invalid_argument(std::string(name_) + ": a state of " +
                                std::to_string(values_.size()) + " values cannot be kept in " +
                                std::to_string(memory.size()));
  }
  values_ = memory;
  own_ = std::vector<float>();  // gives the memory back
}

std::vector<std::byte> OptimizerState::save() const {
  ByteWriter writer(name_, version_);
  writer.put_array(std::span<const float>(values_));
  return writer.take();
}

void OptimizerState::restore(std::span<const std::byte> state) {
  ByteReader reader(state, name_, version_);
  std::vector<float> values(values_.size());
  reader.get_array(std::span(values));
  reader.expect_end();
  std::ranges::copy(values, values_.begin());
}

}  // namespace rondo::sync
