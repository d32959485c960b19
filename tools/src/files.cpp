// Reads and writes whole files. Writing is atomic: whoever reads at the same time, or after the
// program was killed, never finds half a file.

#include "files.hpp"

#include <fstream>
#include <iterator>
#include <span>
#include <system_error>

#include <rondo/train/output_file.hpp>

#include "failure.hpp"

namespace rondo::tools {

bool is_there(const std::filesystem::path& path) noexcept {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string read_file(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw UsageError(file.string() + ": is a folder, where a file is expected; move it away");
  }
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void expect_output(const std::filesystem::path& file) {
  const std::string problem = train::problem_of_output(file);
  if (!problem.empty()) throw UsageError(problem);
}

void replace_file(const std::filesystem::path& file, const std::string& text,
                  const std::string& advice) {
  expect_output(file);
  train::OutputFile output(file, advice);
  output.write(std::as_bytes(std::span(text)));
  output.finish();
}

}  // namespace rondo::tools
