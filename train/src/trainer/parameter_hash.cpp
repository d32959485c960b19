#include "trainer/parameter_hash.hpp"

#include <algorithm>
#include <memory>
#include <new>

#include <xxhash.h>

namespace rondo::train {
namespace {

ParameterHash canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  ParameterHash result{};
  std::ranges::copy(bytes.digest, result.begin());
  return result;
}

}  // namespace

ParameterHash hash_of(const std::vector<std::span<const float>>& arrays) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  for (const std::span<const float> array : arrays) {
    XXH3_128bits_update(state.get(), array.data(), array.size_bytes());
  }
  return canonical(XXH3_128bits_digest(state.get()));
}

ParameterHash digest_of(std::span<const std::byte> bytes) {
  return canonical(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string to_text(const ParameterHash& hash) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text;
  for (const unsigned byte : hash) {
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

}  // namespace rondo::train
