#include "executor/memory_account.hpp"

#include <algorithm>

#include <rondo/train/experiment.hpp>

namespace rondo::train {

void MemoryAccount::take(std::size_t bytes) {
  const bool fits = limit_ == 0 || (bytes <= limit_ && in_use_ <= limit_ - bytes);
  if (!fits) {
    throw ConfigError("train.memory_limit: " + purpose_ + " wants " + std::to_string(bytes) +
                      " bytes, and " + std::to_string(in_use_) + " of the " +
                      std::to_string(limit_) +
                      " allowed to a rank are in use; start more ranks, split layers by [grid], "
                      "or lower train.global_batch");
  }
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
}

}  // namespace rondo::train
