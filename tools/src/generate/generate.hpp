#pragma once

#include <string>

#include "command.hpp"

namespace rondo::tools {

/// The completion of a word, by the name that help gives to the value.
enum class Completion { files, folders, nothing };
[[nodiscard]] Completion completion_of(const OptionDescription& option);

// Scripts that complete command lines of `program`.
[[nodiscard]] std::string bash_completion(const CommandDescription& program);
[[nodiscard]] std::string zsh_completion(const CommandDescription& program);
[[nodiscard]] std::string fish_completion(const CommandDescription& program);

/// "rondo-bench-allreduce", for "rondo bench allreduce".
[[nodiscard]] std::string page_name(const CommandDescription& command);

/// The manual page of `command`, for man(7)'s macros; `parent` is null for the program itself.
[[nodiscard]] std::string manual_page(const CommandDescription& command,
                                      const CommandDescription* parent);

}  // namespace rondo::tools
