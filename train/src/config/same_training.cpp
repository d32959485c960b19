// Checks what a run and the one that it goes on from must have in common.

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include <rondo/train/experiment.hpp>

#include "config/key.hpp"

namespace rondo::train {
namespace {

// The keys that may differ between a run and the one that it goes on from. A `.` at the end stands
// for all keys of a section.
constexpr auto free_keys = std::to_array<std::string_view>(
    {"checkpoint.", "grid.", "inject.", "transport.", "data.broken", "data.decoder_cpus",
     "data.decoders", "data.path", "model.weights", "train.epochs", "train.log_every",
     "train.max_steps", "train.memory_limit", "train.threads", "update.plugin", "update.replay"});

// Everything else that the configuration says would make another training of it: it must be as it
// was.
bool is_free(const std::string& key) {
  return std::ranges::any_of(free_keys, [&](std::string_view free) {
    return free.ends_with('.') ? key.starts_with(free) : key == free;
  });
}

[[noreturn]] void refuse_change(const std::string& key, const Value& before, const Value& after) {
  refuse_key(key,
             "it is {}, and was {} when the run began; use the configuration of that run, or begin "
             "a new run in another folder",
             to_toml_value(after), to_toml_value(before));
}

}  // namespace

void expect_same_training(const Experiment& then, const Experiment& now) {
  // Both sides are whole configurations, with all defaults, so that a default that has changed
  // between two versions of the program is noticed, too.
  for (const Key& key : all_keys()) {
    const Value before = key.get(then);
    const Value after = key.get(now);
    if (before != after && !is_free(key.full_name())) refuse_change(key.full_name(), before, after);
  }
  // A plug-in may lie elsewhere, but another one is another scheme.
  const auto file_of = [](const Experiment& experiment) {
    return std::filesystem::path(experiment.update.plugin).filename().string();
  };
  if (file_of(then) != file_of(now)) {
    refuse_change("update.plugin", Value(then.update.plugin), Value(now.update.plugin));
  }
}

}  // namespace rondo::train
