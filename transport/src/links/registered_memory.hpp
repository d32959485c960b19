#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace rondo::transport {

/// Memory that a link has registered with its network, piece by piece as an arena grows.
///
/// Callers that allocate in the arena do not see where a piece ends, so messages cross seams, too.
/// The first that does registers the pieces that it touches once more, as one; later ones find
/// that. So no piece is registered often, and nothing is registered again when an arena grows.
/// Memory stays registered, because messages may be using it.
template <typename Registration>
class RegisteredMemory {
 public:
  /// A piece, which overlaps no other.
  void add(const void* base, std::size_t bytes, Registration registration) {
    Piece& piece = pieces_[reinterpret_cast<std::uintptr_t>(base)];
    piece.bytes = piece.registered_bytes = bytes;
    piece.registrations.push_back(std::move(registration));
  }

  /// The registration of what contains [data, data + bytes); null if there is none.
  /// join(base, bytes) registers pieces that touch, and returns null where that is impossible.
  template <typename Join>
  [[nodiscard]] const Registration* find(const void* data, std::size_t bytes, const Join& join) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    const std::uintptr_t end = begin + bytes;
    const auto after = pieces_.upper_bound(begin);
    if (after == pieces_.begin()) return nullptr;
    auto& [base, piece] = *std::prev(after);
    if (end <= base + piece.registered_bytes) return &piece.registrations.back();
    std::uintptr_t known = base + piece.bytes;
    for (auto next = after; known < end && next != pieces_.end() && next->first == known; ++next) {
      known += next->second.bytes;
    }
    if (known < end) return nullptr;
    Registration joined = join(reinterpret_cast<const void*>(base), known - base);
    if (!joined) return nullptr;
    const Registration& added = piece.registrations.emplace_back(std::move(joined));
    piece.registered_bytes = known - base;
    return &added;
  }

  void clear() noexcept { pieces_.clear(); }

 private:
  struct Piece {
    std::size_t bytes = 0;
    std::size_t registered_bytes = 0;  // from its begin on, in the last registration
    std::vector<Registration> registrations;
  };
  std::map<std::uintptr_t, Piece> pieces_;  // by first address
};

}  // namespace rondo::transport
