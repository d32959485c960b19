// A metrics.jsonl that is not as a checkpoint left it: disks and people change files.
//
// Bytes that were changed in place damage a line or two, and the rest is as it was. Bytes that were
// put in or taken out move what is behind them, so the length that the checkpoint knows cuts a line
// in two, or leaves lines of steps that will be done again. Events that say their step are
// therefore judged by it, and only the others by where they stand.

#include "trainer/damaged_log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <rondo/train/dataset.hpp>

#include "weights/checksum.hpp"

namespace rondo::train {
namespace {

using SortedJson = nlohmann::json;

// Nothing where a line is none, or was cut.
SortedJson event_in(const std::string& line) {
  const SortedJson event =
      line.ends_with('\n') ? SortedJson::parse(line, nullptr, false) : SortedJson();
  return event.is_object() && event.contains("event") ? event : SortedJson();
}

// Did the checkpoint know it? No event of a run's end is before a checkpoint from which it goes on.
bool is_before(const SortedJson& event, std::uint64_t place, const LogPart& part) {
  if (event["event"] == "end") return false;
  const auto step = event.find("total_step");
  const bool says_step = step != event.end() && step->is_number_integer();
  return says_step ? step->get<std::int64_t>() <= part.step : place < part.bytes;
}

}  // namespace

LineReader::LineReader(std::filesystem::path file) : path_(std::move(file)) {
  errno = 0;
  stream_.open(path_, std::ios::binary);
  if (!stream_ && errno != ENOENT && errno != ENOTDIR) fail();
}

bool LineReader::next(std::string& line) {
  const bool any = static_cast<bool>(std::getline(stream_, line));
  if (stream_.bad()) fail();
  if (any && !stream_.eof()) line += '\n';
  return any;
}

void LineReader::fail() const {
  const std::string reason = errno == 0 ? "unknown reason" : std::generic_category().message(errno);
  throw DataError(path_.string() + ": cannot be read: " + reason +
                  "; give the run a folder that can be read");
}

std::string contents_of(const std::filesystem::path& file) {
  std::string all;
  LineReader lines(file);
  for (std::string line; lines.next(line);) all += line;
  return all;
}

std::string checksum_of_beginning(const std::filesystem::path& file, std::uint64_t bytes) {
  std::ifstream stream(file, std::ios::binary);
  Checksum checksum;
  std::array<char, 1 << 16> piece;
  while (bytes > 0 && stream) {
    stream.read(piece.data(), static_cast<std::streamsize>(std::min(bytes, piece.size())));
    const auto read = static_cast<std::size_t>(stream.gcount());
    checksum.add(std::as_bytes(std::span(piece).first(read)));
    bytes -= read;
  }
  return checksum.text();
}

bool is_whole(const std::filesystem::path& log, const LogPart& part) {
  if (!part.checksum.empty()) return checksum_of_beginning(log, part.bytes) == part.checksum;
  LineReader file(log);
  std::uint64_t end = 0;
  for (std::string line; end < part.bytes && file.next(line); end += line.size()) {
    if (event_in(line).is_null()) return false;
  }
  return end == part.bytes;
}

SortedLog sort_lines(const std::filesystem::path& log, const LogPart& part) {
  SortedLog sorted;
  LineReader file(log);
  std::uint64_t place = 0;
  std::string line;
  for (std::size_t number = 1; file.next(line); place += line.size(), ++number) {
    const SortedJson event = event_in(line);
    if (!event.is_null()) {
      if (is_before(event, place, part)) sorted.events += line;
    } else if (place < part.bytes) {
      sorted.damaged += line;
      sorted.damaged_lines.push_back(number);
    }
  }
  return sorted;
}

std::string text_of_lines(const std::vector<std::size_t>& lines) {
  constexpr std::size_t most = 5;
  const std::span shown = std::span(lines).first(std::min(lines.size(), most));
  const std::size_t more = lines.size() - shown.size();
  return fmt::format("{} {}{}", lines.size() == 1 ? "line" : "lines", fmt::join(shown, ", "),
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

}  // namespace rondo::train
