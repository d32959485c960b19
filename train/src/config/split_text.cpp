#include "config/split_text.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "model/names.hpp"

namespace rondo::train {
namespace {

constexpr const char* forms = "write sample, group, \"height=A width=B\" or \"channel=A filter=B\"";

struct Part {
  std::string_view name;
  int count = 0;
};

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t first = text.find_first_not_of(' ');
    if (first == std::string_view::npos) return words;
    const std::size_t last = std::min(text.find(' ', first), text.size());
    words.push_back(text.substr(first, last - first));
    text.remove_prefix(last);
  }
}

int count_of(std::string_view word, std::string_view digits) {
  int count = 0;
  const char* const end = digits.data() + digits.size();
  const auto [last, error] = std::from_chars(digits.data(), end, count);
  if (error == std::errc{} && last == end && count >= 1 && count <= largest_part_count) {
    return count;
  }
  throw std::invalid_argument(
      fmt::format("'{}' does not end in a number of parts from 1 to {}", word, largest_part_count));
}

Part part_of(std::string_view word) {
  static const std::vector<std::string> names = {"height", "width", "channel", "filter"};
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) {
    throw std::invalid_argument(fmt::format("'{}' is no split; {}", word, forms));
  }
  const std::string_view name = word.substr(0, equals);
  for (const std::string& known : names) {
    if (known == name) return {known, count_of(word, word.substr(equals + 1))};
  }
  throw std::invalid_argument(fmt::format("unknown part '{}'; {}", name, suggest(name, names)));
}

class Reader {
 public:
  void add(const Part& part) {
    int& count = place_of(part.name);
    if (count != 0) {
      throw std::invalid_argument(fmt::format("gives '{}' twice", part.name));
    }
    count = part.count;
  }

  [[nodiscard]] LayerSplit split() const {
    const bool space = height_ != 0 || width_ != 0;
    if (space && (channel_ != 0 || filter_ != 0)) {
      throw std::invalid_argument("splits images and channels at once; choose one");
    }
    const auto one_if_unsaid = [](int count) { return count == 0 ? 1 : count; };
    if (space) {
      return {.kind = SplitKind::space, .h = one_if_unsaid(height_), .w = one_if_unsaid(width_)};
    }
    return {.kind = SplitKind::channel,
            .channels = {one_if_unsaid(channel_), one_if_unsaid(filter_)}};
  }

 private:
  int& place_of(std::string_view name) {
    if (name == "height") return height_;
    if (name == "width") return width_;
    return name == "channel" ? channel_ : filter_;
  }

  int height_ = 0;  // 0: not said, as the next three
  int width_ = 0;
  int channel_ = 0;
  int filter_ = 0;
};

}  // namespace

LayerSplit read_split(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  if (words.empty()) throw std::invalid_argument(fmt::format("is empty; {}", forms));
  if (words.size() == 1 && words[0] == "sample") return {.kind = SplitKind::sample};
  if (words.size() == 1 && words[0] == "group") return {.kind = SplitKind::group};
  Reader reader;
  for (const std::string_view word : words) reader.add(part_of(word));
  return reader.split();
}

std::string to_text(const LayerSplit& split) {
  switch (split.kind) {
    case SplitKind::group:
      return "group";
    case SplitKind::space:
      return fmt::format("height={} width={}", split.h, split.w);
    case SplitKind::channel:
      return fmt::format("channel={} filter={}", split.channels.channels, split.channels.filters);
    default:
      return "sample";
  }
}

std::string complaint_about_split(std::string_view text) {
  try {
    static_cast<void>(read_split(text));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}

}  // namespace rondo::train
