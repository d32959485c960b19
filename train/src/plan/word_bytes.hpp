#pragma once

namespace rondo::train {

// The planner counts words: numbers in fp32.
inline constexpr int word_bytes = 4;

}  // namespace rondo::train
