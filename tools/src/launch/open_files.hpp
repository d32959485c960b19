#pragma once

#include <sys/resource.h>

#include <cstddef>

namespace rondo::tools {

/// More than the files that a launcher opens besides those of its ranks or hosts.
inline constexpr std::size_t files_of_launcher = 64;

/// While it lives, this process may open `more` files beside those that it has open: the soft limit
/// is raised, as far as the hard one allows.
class MoreOpenFiles {
 public:
  explicit MoreOpenFiles(std::size_t more);
  MoreOpenFiles(const MoreOpenFiles&) = delete;
  MoreOpenFiles& operator=(const MoreOpenFiles&) = delete;
  ~MoreOpenFiles();

  /// For the processes that are started meanwhile (Spawn::open_files).
  [[nodiscard]] const rlimit& limit_before() const noexcept { return before_; }

 private:
  rlimit before_ = {};
};

}  // namespace rondo::tools
