// The checksum of what a run leaves: of files of checkpoints, of tensors, of the beginning of a
// log. One definition, so that a file may be hashed as a whole or as it is read.

#include "weights/checksum.hpp"

#include <new>

#include <fmt/format.h>
#include <xxhash.h>

namespace rondo::train {
namespace {

std::string to_text(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

std::string checksum_of(std::span<const std::byte> bytes) {
  return to_text(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string hash_of(const std::vector<std::span<const float>>& arrays) {
  Checksum checksum;
  for (const std::span<const float> array : arrays) checksum.add(std::as_bytes(array));
  return checksum.text();
}

Checksum::Checksum() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Checksum::add(std::span<const std::byte> piece) {
  XXH3_128bits_update(state_.get(), piece.data(), piece.size());
}

std::string Checksum::text() const { return to_text(XXH3_128bits_digest(state_.get())); }

void Checksum::Free::operator()(XXH3_state_s* state) const noexcept { XXH3_freeState(state); }

}  // namespace rondo::train
