// From [grid] to a split of every layer. Two steps: how many ranks make a replica, which is the
// product of the parts that [grid] names; and what each layer with weights does in it, by the first
// pattern of [grid.layers] that matches, else by the usual split of its kind. The planner's choice
// comes here as such patterns, too, one for each layer.

#include "config/grid_choice.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "config/key.hpp"
#include "layers/layer_type.hpp"
#include "model/names.hpp"

namespace rondo::train {
namespace {

constexpr const char* forms =
    "write sample, replica, \"height=A width=B\", \"channel=C filter=D\" or all four parts";

// One word of a split, as in "height=2".
struct PartCount {
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

PartCount part_of(std::string_view word) {
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

// By channel, in space, or both where both are cut.
LayerSplit split_into(int h, int w, ChannelGrid channels) {
  if (h * w == 1) return {.kind = SplitKind::channel, .channels = channels};
  const bool both = channels.ranks() > 1;
  return {.kind = both ? SplitKind::space_and_channel : SplitKind::space,
          .h = h,
          .w = w,
          .channels = channels};
}

// Puts the words of a split together, in any order.
class Reader {
 public:
  void add(const PartCount& part) {
    int& count = place_of(part.name);
    if (count != 0) {
      throw std::invalid_argument(fmt::format("gives '{}' twice", part.name));
    }
    count = part.count;
  }

  [[nodiscard]] LayerSplit split() const {
    const auto one_if_unsaid = [](int count) { return count == 0 ? 1 : count; };
    const LayerSplit split = split_into(one_if_unsaid(height_), one_if_unsaid(width_),
                                        {one_if_unsaid(channel_), one_if_unsaid(filter_)});
    if (split.ranks() > 1) return split;
    // One part: by what it was said to be.
    const bool space = height_ != 0 || width_ != 0;
    return {.kind = space ? SplitKind::space : SplitKind::channel};
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

// Errors are std::invalid_argument without a key or a line: the caller knows those.
LayerSplit read_split(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  if (words.empty()) throw std::invalid_argument(fmt::format("is empty; {}", forms));
  if (words.size() == 1 && words[0] == "sample") return {.kind = SplitKind::sample};
  if (words.size() == 1 && words[0] == "replica") return {.kind = SplitKind::replica};
  Reader reader;
  for (const std::string_view word : words) reader.add(part_of(word));
  return reader.split();
}

namespace {

std::string text_of_parts(const LayerSplit& split) {
  const std::pair<const char*, int> parts[] = {{"height", split.h},
                                               {"width", split.w},
                                               {"channel", split.channels.channels},
                                               {"filter", split.channels.filters}};
  std::string text;
  for (const auto& [name, count] : parts) {
    if (count > 1) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, count);
  }
  return text;
}

}  // namespace

std::string to_text(const LayerSplit& split) {
  switch (split.kind) {
    case SplitKind::replica:
      return "replica";
    case SplitKind::space:
      return fmt::format("height={} width={}", split.h, split.w);
    case SplitKind::channel:
      return fmt::format("channel={} filter={}", split.channels.channels, split.channels.filters);
    case SplitKind::space_and_channel:
      return text_of_parts(split);
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

namespace {

ProcessGrid grid_of(const Experiment::Grid& config, int ranks, std::int64_t global_batch) {
  const std::int64_t pr = config.channel * config.filter * config.height * config.width;
  // Every rank must have a place: replicas of pr ranks, and nothing left over.
  if (ranks % pr != 0) {
    refuse_key("grid", "replicas of {} (channel * filter * height * width) do not divide {} ranks",
               pr, ranks);
  }
  const std::int64_t pc = ranks / pr;
  if (config.sample != 0 && config.sample != pc) {
    refuse_key("grid.sample",
               "{} replicas of {} make {} ranks, and there are {}; leave it at 0 for {}",
               config.sample, pr, config.sample * pr, ranks, pc);
  }
  // A replica without samples would have nothing to compute in any step.
  if (global_batch < pc) {
    if (pc == ranks) {
      refuse_key("train.global_batch",
                 "a batch of {} is smaller than the ranks ({}); give every rank a sample, or start "
                 "fewer ranks",
                 global_batch, ranks);
    }
    refuse_key("train.global_batch", "a batch of {} leaves some of {} replicas without a sample",
               global_batch, pc);
  }
  return {.pr = static_cast<int>(pr), .pc = static_cast<int>(pc)};
}

/// Why one dimension cannot be cut so; empty if it can.
std::string too_few(std::string_view what, std::int64_t extent, std::int64_t parts) {
  if (extent >= parts) return {};
  return fmt::format("its {} {} are fewer than {} parts", extent, what, parts);
}

std::string first_of(std::initializer_list<std::string> reasons) {
  const auto* const found = std::ranges::find_if_not(reasons, &std::string::empty);
  return found == reasons.end() ? std::string() : *found;
}

/// Why the layer's images cannot be cut so; empty if they can.
std::string obstacle_in_space(const LayerSpec& layer, const LayerSplit& split,
                              const tensor::Shape& x, const tensor::Shape& y) {
  if (!is_convolution(layer)) return "a fully connected layer has no rows and columns";
  const Window window = layer.kind->windows().value_or(Windows{}).h;
  // A window could then lie in the padding alone, and read no input at all.
  if (window.before >= window.kernel) return "its padding is not less than its kernel";
  return first_of({too_few("rows of input", x.h, split.h), too_few("rows of output", y.h, split.h),
                   too_few("columns of input", x.w, split.w),
                   too_few("columns of output", y.w, split.w)});
}

/// Why its channels, filters or outputs cannot be cut so.
std::string obstacle_by_channel(const LayerSpec& layer, const LayerSplit& split,
                                const tensor::Shape& x, const tensor::Shape& y) {
  const int p = split.channels.ranks();
  // Groups tie a filter to some of the channels, and a cut elsewhere would cut through them.
  if (layer.kind->traits().whole_channels) return "a convolution in groups has no such split";
  if (is_convolution(layer)) {
    return first_of({too_few("channels", x.c, p), too_few("filters", y.c, p)});
  }
  if (split.channels.channels > 1) {
    return fmt::format("a fully connected layer is split by its outputs alone; write \"filter={}\"",
                       p);
  }
  return too_few("outputs", y.c, p);
}

/// Why the layer cannot be split so; empty if it can.
std::string obstacle(const LayerSpec& layer, const LayerSplit& split, const tensor::Shape& x,
                     const tensor::Shape& y) {
  std::string reason;
  if (cuts_space(split.kind)) reason = obstacle_in_space(layer, split, x, y);
  if (!reason.empty() || !cuts_channels(split.kind)) return reason;
  return obstacle_by_channel(layer, split, x, y);
}

/// The splits of one model's layers.
class Chooser {
 public:
  Chooser(const Model& model, const Experiment::Grid& config, int pr)
      : model_(model), config_(config), pr_(pr), shapes_(shapes_of(model, 1)) {
    // A pattern that matches nothing is a mistake, and not a split of no layers.
    for (const auto& [pattern, text] : config.layers) check_pattern(pattern);
  }

  [[nodiscard]] LayerSplit split_of(std::size_t index) const {
    const LayerSpec& layer = model_.layers[index];
    if (!has_weights(layer)) return {};
    for (const auto& [pattern, text] : config_.layers) {
      if (matches(pattern, layer.name)) return named(index, pattern, text);
    }
    // A layer that cannot have the usual split is computed by sample: that is always possible. One
    // that was named by a pattern is an error instead, because somebody has asked for it.
    const LayerSplit usual = usual_split(layer);
    return obstacle_of(index, usual).empty() ? usual : LayerSplit{};
  }

 private:
  void check_pattern(const std::string& pattern) const {
    std::vector<std::string> names;
    for (const LayerSpec& layer : model_.layers) {
      if (!has_weights(layer)) continue;
      if (matches(pattern, layer.name)) return;
      names.push_back(layer.name);
    }
    refuse_key("grid.layers", "\"{}\" matches no convolution or fully connected layer of {}; {}",
               pattern, model_.name, suggest(pattern, names));
  }

  [[nodiscard]] std::string obstacle_of(std::size_t index, const LayerSplit& split) const {
    const LayerSpec& layer = model_.layers[index];
    return obstacle(layer, split, shapes_[layer.inputs[0]], shapes_[index + 1]);
  }

  [[nodiscard]] LayerSplit usual_split(const LayerSpec& layer) const {
    if (pr_ == 1) return {};
    // Fully connected layers have most of the weights and no rows: their outputs are divided over
    // all ranks of the replica, whichever way convolutions are split.
    if (!is_convolution(layer)) return {.kind = SplitKind::channel, .channels = {1, pr_}};
    return split_into(static_cast<int>(config_.height), static_cast<int>(config_.width),
                      {static_cast<int>(config_.channel), static_cast<int>(config_.filter)});
  }

  [[nodiscard]] LayerSplit named(std::size_t index, const std::string& pattern,
                                 const std::string& text) const {
    const LayerSplit split = read_split(text);
    if (split.kind == SplitKind::sample || split.kind == SplitKind::replica) return split;
    if (split.ranks() == 1) return {.kind = SplitKind::replica};
    std::string reason = obstacle_of(index, split);
    if (split.ranks() != pr_) {
      reason =
          fmt::format("makes {} parts, and a replica has {} (channel * filter * height * width)",
                      split.ranks(), pr_ == 1 ? "1 rank" : fmt::format("{} ranks", pr_));
    }
    if (reason.empty()) return split;
    refuse_key("grid.layers", "\"{}\" = \"{}\": layer {}: {}", pattern, text,
               model_.layers[index].name, reason);
  }

  const Model& model_;
  const Experiment::Grid& config_;
  int pr_;
  std::vector<tensor::Shape> shapes_;  // of every value, of one sample
};

}  // namespace

namespace {

// The kernel in tiles has no fp32 partial sums: in bf16 each rank's part of a sum would be rounded.
// The layer is not computed by sample instead, because somebody has asked for the grid.
void refuse_tiles_in_bf16(const Model& model, const GridChoice& choice) {
  for (std::size_t i = 0; i < choice.splits.size(); ++i) {
    const LayerSplit& split = choice.splits[i];
    if (split.kind != SplitKind::space_and_channel) continue;
    refuse_key("train.precision",
               "layer {} has no kernel for bf16 on this grid of {} x {}, which splits it in space "
               "and by channel at once (\"{}\"); set \"fp32\", or give it another split in "
               "grid.layers: in space alone, by channel alone, or \"sample\"",
               model.layers[i].name, choice.grid.pr, choice.grid.pc, to_text(split));
  }
}

}  // namespace

GridChoice choose_grid(const Model& model, const Experiment::Grid& config, int ranks,
                       std::int64_t global_batch, tensor::DataType activations) {
  GridChoice choice{.grid = grid_of(config, ranks, global_batch), .batch_norm = config.batch_norm};
  const Chooser chooser(model, config, choice.grid.pr);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    choice.splits.push_back(chooser.split_of(i));
  }
  if (activations == tensor::DataType::bf16) refuse_tiles_in_bf16(model, choice);
  return choice;
}

}  // namespace rondo::train
