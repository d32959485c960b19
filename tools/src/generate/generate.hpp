#pragma once

#include <string>
#include <vector>

#include "command.hpp"

namespace rondo::tools {

/// The words that may stand where the last of `words` is being typed, behind the program's name: a
/// word in a line, and what it means behind a tab. "(files)" and "(folders)" leave it to the shell.
[[nodiscard]] std::vector<std::string> offers_for(const CommandDescription& program,
                                                  std::vector<std::string> words);

/// "rondo-bench-allreduce", for "rondo bench allreduce".
[[nodiscard]] std::string page_name(const CommandDescription& command);

/// The manual page of `command`, for man(7)'s macros; `parent` is null for the program itself.
[[nodiscard]] std::string manual_page(const CommandDescription& command,
                                      const CommandDescription* parent);

}  // namespace rondo::tools
