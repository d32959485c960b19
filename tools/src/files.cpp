// Reads and writes whole files. Writing is atomic: whoever reads at the same time, or after the
// program was killed, never finds half a file.

#include "files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <span>
#include <string_view>
#include <system_error>

#include <rondo/train/dataset.hpp>
#include <rondo/train/output_file.hpp>

#include "failure.hpp"

namespace rondo::tools {

bool is_there(const std::filesystem::path& path) noexcept {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

void fail_to_read(const std::filesystem::path& file) {
  throw train::DataError(
      fmt::format("{}: cannot be read: {}; see to it that this host and user can, and try again",
                  file.string(), std::generic_category().message(errno)));
}

std::string read_file(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw UsageError(file.string() + ": is a folder, where a file is expected; move it away");
  }
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream && (errno == ENOENT || errno == ENOTDIR)) return {};
  std::string text;
  std::array<char, 4096> part{};
  while (stream.read(part.data(), part.size()) || stream.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(stream.gcount()));
  }
  if (!stream.is_open() || stream.bad()) fail_to_read(file);
  return text;
}

void expect_output(const std::filesystem::path& file) {
  const std::string problem = train::problem_of_output(file);
  if (!problem.empty()) throw UsageError(problem);
  // A slip of the shell's completion would cost a run.
  constexpr auto kept = std::to_array<std::string_view>(
      {"metrics.jsonl", "config.toml", "token_trace.jsonl", "manifest.json", "compare.csv"});
  const bool is_model =
      file.filename() == "model.safetensors" && is_there(file.parent_path() / "metrics.jsonl");
  const bool is_kept = std::ranges::find(kept, file.filename().string()) != kept.end();
  if ((!is_kept && !is_model) || !is_there(file)) return;
  throw UsageError(file.string() +
                   ": is a file that a run or a comparison needs; give another name");
}

void replace_file(const std::filesystem::path& file, const std::string& text,
                  const std::string& advice) {
  const std::string problem = train::problem_of_output(file);
  if (!problem.empty()) throw UsageError(problem);
  train::OutputFile output(file, advice);
  output.write(std::as_bytes(std::span(text)));
  output.finish();
}

}  // namespace rondo::tools
