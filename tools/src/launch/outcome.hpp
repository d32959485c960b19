#pragma once

#include <optional>
#include <string>

namespace rondo::tools {

/// How one rank ended.
struct RankEnd {
  int rank = 0;
  int pid = 0;
  int wait_status = 0;       ///< as waitpid() gives it
  bool ended_by_us = false;  ///< the launcher had begun to end the ranks by force

  [[nodiscard]] bool failed() const noexcept { return wait_status != 0; }
  /// 128 + n for signal n.
  [[nodiscard]] int exit_status() const noexcept;
  /// "rank 1 (pid 123) was ended by signal 9 (Killed)"
  [[nodiscard]] std::string describe() const;
};

/// Finds the first cause among the ends of all ranks.
///
/// Status 4 ("a peer was lost") and ranks that the launcher ended itself are consequences as long
/// as another rank failed in any other way; among equals the first counts.
class Outcome {
 public:
  /// In the order in which the ranks ended. Is `end` the first cause, as far as is known now?
  bool add(const RankEnd& end);

  /// The first cause so far; nothing while no rank has failed.
  [[nodiscard]] const std::optional<RankEnd>& cause() const noexcept { return cause_; }

  /// The launcher's own exit status.
  [[nodiscard]] int exit_status() const noexcept;

 private:
  std::optional<RankEnd> cause_ = {};
};

}  // namespace rondo::tools
