// Reads and writes whole files. Writing is atomic: whoever reads at the same time, or after the
// program was killed, never finds half a file.

#include "files.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "failure.hpp"

namespace rondo::tools {

bool is_there(const std::filesystem::path& path) noexcept {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string read_file(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The new file lies in the same folder, so renaming cannot cross file systems.
void replace_file(const std::filesystem::path& file, const std::string& text,
                  const std::string& advice) {
  const auto refuse = [&](const std::error_code& error) {
    throw UsageError(
        fmt::format("cannot write {}: {}; {}", file.string(), error.message(), advice));
  };
  // Names are fixed, not random: a file that a killed program left is overwritten the next time.
  const std::filesystem::path aside = file.string() + ".new";
  errno = 0;
  std::ofstream stream(aside);
  stream << text << std::flush;
  if (!stream) refuse(std::error_code(errno, std::generic_category()));
  stream.close();
  std::error_code error;
  std::filesystem::rename(aside, file, error);
  if (error) refuse(error);
}

}  // namespace rondo::tools
