#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collective/operation.hpp"
#include "fabric/message.hpp"

namespace rondo::transport {

/// Barrier by dissemination (see schedule/dissemination.hpp): log2 P rounds, rounded up, of one
/// empty message each.
class DisseminationBarrier final : public Operation {
 public:
  DisseminationBarrier(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  static constexpr std::size_t most_rounds = 16;  // 65536 ranks

  std::size_t rounds_;
  std::size_t told_ = 0;   // rounds whose message is on its way
  std::size_t heard_ = 0;  // rounds whose message has come
  std::array<Message, most_rounds> sends_;
  std::array<Message, most_rounds> receives_;
};

}  // namespace rondo::transport
