#pragma once

#include <string>

namespace rondo::transport::ucx {

/// While one exists, what UCX would print on this thread is kept for error texts instead.
/// It is printed, too, if the user has set UCX_LOG_LEVEL.
class Quiet {
 public:
  Quiet() noexcept;
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  ~Quiet();
};

/// The last thing that UCX had to say on this thread since it was last asked; may be empty.
[[nodiscard]] std::string last_words();

}  // namespace rondo::transport::ucx
