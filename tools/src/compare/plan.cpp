// Which runs a comparison is made of: each item of --schemes with each seed, configured and placed
// as `rondo train` would do it.
//
// Seeds are the outer loop, so that a machine that becomes slower is slower for all schemes alike.

#include "compare/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "failure.hpp"

namespace rondo::tools {
namespace {

// Without the blanks around it.
std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// The parts of `text` between separators that stand outside of quotes and brackets.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == separator && depth <= 0) {
      parts.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

// Only characters that need no quotes in a shell; a colon becomes a hyphen.
std::string folder_name(std::string_view text) {
  std::string name(text);
  for (char& c : name) {
    const bool safe = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                      std::string_view("._=+-").find(c) != std::string_view::npos;
    if (!safe) c = c == ':' ? '-' : '_';
  }
  return name;
}

// "KEY=VALUE" as --set takes it; bare keys are of [update].
std::string setting_of(std::string_view part, std::string_view item) {
  const std::size_t equals = part.find('=');
  const std::string_view key = trimmed(part.substr(0, equals));
  if (equals == std::string_view::npos || key.empty()) {
    throw UsageError(
        fmt::format("scheme '{}': '{}' is no setting; write NAME:KEY=VALUE:KEY=VALUE", item, part));
  }
  if (key == "train.seed") {
    throw UsageError(
        fmt::format("scheme '{}': choose seeds for all schemes, by --seeds or --seed-list", item));
  }
  const std::string_view section = key.find('.') == std::string_view::npos ? "update." : "";
  return fmt::format("{}{}={}", section, key, trimmed(part.substr(equals + 1)));
}

TrainRequest request_of(const CompareRequest& request, const SchemeItem& item, std::int64_t seed) {
  TrainRequest run = request.training;
  // What the command line says about links holds for all items, unless an item says otherwise.
  run.settings = all_settings(request.training);
  run.launch.fabric = {};
  run.settings.insert(run.settings.end(), item.settings.begin(), item.settings.end());
  run.settings.push_back(fmt::format("train.seed={}", seed));
  run.folder = request.folder / item.label / fmt::format("seed{}", seed);
  return run;
}

// Whether the configuration is right without any item.
bool is_readable(const TrainRequest& request) {
  try {
    static_cast<void>(train::read_experiment(request.config, all_settings(request)));
    return true;
  } catch (const train::ConfigError&) {
    return false;
  }
}

// Reads the configuration of one run; what only the item can be blamed for names the item.
train::Experiment read_run(const CompareRequest& request, const SchemeItem& item,
                           const TrainRequest& run) {
  try {
    return train::read_experiment(run.config, run.settings);
  } catch (const train::ConfigError& error) {
    if (!is_readable(request.training)) throw;
    std::string_view problem = error.what();
    constexpr std::string_view option = "--set ";
    if (problem.starts_with(option)) problem.remove_prefix(option.size());
    throw UsageError(fmt::format("scheme '{}': {}", item.text, problem));
  }
}

// Fake nodes may come from an item, all other links only from the command line or the
// configuration.
Training plan_run(const CompareRequest& request, const SchemeItem& item, const TrainRequest& run,
                  const Machine& machine) {
  Training training = plan_training(run, read_run(request, item, run), machine);
  const std::optional<int> nodes = training.fabric.fake_nodes;
  training.fabric = request.training.launch.fabric;
  if (nodes) training.fabric.fake_nodes = nodes;
  static_cast<void>(fake_nodes_of(training.fabric, training.placement.ranks()));  // may refuse
  return training;
}

}  // namespace

SchemeItem parse_scheme_item(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  const std::string_view name = parts.front();
  if (name.empty() || name.find('=') != std::string_view::npos) {
    throw UsageError(
        fmt::format("scheme '{}': begins with no scheme's name; write NAME:KEY=VALUE", text));
  }
  SchemeItem item{std::string(text), folder_name(text), {fmt::format("update.scheme={}", name)}};
  for (std::size_t i = 1; i < parts.size(); ++i)
    item.settings.push_back(setting_of(parts[i], text));
  return item;
}

std::vector<SchemeItem> parse_scheme_items(const std::vector<std::string>& lists) {
  std::vector<SchemeItem> items;
  for (const std::string& list : lists) {
    for (const std::string_view text : split(list, ',')) {
      if (text.empty()) throw UsageError(fmt::format("--schemes '{}': an item is empty", list));
      SchemeItem item = parse_scheme_item(text);
      // Two items in one folder would overwrite each other.
      const auto twin = std::ranges::find(items, item.label, &SchemeItem::label);
      if (twin != items.end()) {
        throw UsageError(
            fmt::format("schemes '{}' and '{}' would share the folder {}; name each once",
                        twin->text, item.text, item.label));
      }
      items.push_back(std::move(item));
    }
  }
  return items;
}

Plan make_plan(const CompareRequest& request) {
  Plan plan{.items = parse_scheme_items(request.schemes)};
  const Machine machine = read_machine();
  for (const std::int64_t seed : request.seeds) {
    for (std::size_t i = 0; i < plan.items.size(); ++i) {
      const SchemeItem& item = plan.items[i];
      PlannedRun run{.item = i,
                     .name = fmt::format("{} seed {}", item.label, seed),
                     .request = request_of(request, item, seed)};
      run.training = plan_run(request, item, run.request, machine);
      run.found = find_run(run.request.folder, run.training);
      plan.runs.push_back(std::move(run));
    }
  }
  return plan;
}

void refuse_other_runs(const Plan& plan) {
  for (const PlannedRun& run : plan.runs) {
    if (run.found.state != RunState::different) continue;
    throw UsageError(fmt::format(
        "{} holds another run: {}; choose another --folder, or add --anew to replace such runs",
        run.request.folder.string(), run.found.difference));
  }
}

}  // namespace rondo::tools
