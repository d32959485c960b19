// Replicas that train the same parameters must hold the same bits. Hashes of them are compared
// after an epoch; a difference means that builds, threads or data differ, and training on would
// hide it.

#include "trainer/replica_check.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <xxhash.h>

#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>

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

namespace {

using RankHashes = std::vector<std::uint8_t>;  // of all ranks, one after another

bool are_equal(const RankHashes& hashes, int a, int b) {
  const auto of = [&](int rank) {
    constexpr std::size_t bytes = std::tuple_size_v<ParameterHash>;
    return std::span(hashes).subspan(static_cast<std::size_t>(rank) * bytes, bytes);
  };
  return std::ranges::equal(of(a), of(b));
}

// "rank(s) 1, 3 differ from rank 0"; empty: all replicas hold the same there.
std::string difference_at(int position, ProcessGrid grid, const RankHashes& hashes) {
  const int first = grid.rank_at(0, position);
  std::string differing;
  for (int group = 1; group < grid.pc; ++group) {
    const int rank = grid.rank_at(group, position);
    if (are_equal(hashes, first, rank)) continue;
    differing += (differing.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (differing.empty()) return {};
  return "rank(s) " + differing + " differ from rank " + std::to_string(first);
}

}  // namespace

// All ranks compare all positions, so that all throw where one replica differs in one position.
void check_replicas(transport::Communicator& all, ProcessGrid grid, const ParameterHash& mine,
                    std::int64_t epoch) {
  RankHashes hashes(static_cast<std::size_t>(all.size()) * mine.size());
  all.allgather(std::span<const std::uint8_t>(mine), std::span(hashes)).wait();
  std::string differences;
  for (int position = 0; position < grid.pr; ++position) {
    const std::string difference = difference_at(position, grid, hashes);
    if (!difference.empty()) differences += (differences.empty() ? "" : "; ") + difference;
  }
  if (differences.empty()) return;
  throw NumericError("after epoch " + std::to_string(epoch) +
                     " the replicas do not hold the same parameters: " + differences +
                     "; run all ranks with the same build, threads and data");
}

}  // namespace rondo::train
