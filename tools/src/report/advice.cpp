// Which of several schemes a reader should take.
//
// Accuracy comes first, and then time. Final accuracies of a scheme spread with the seed, so a
// scheme counts as equally accurate as the best one if their means differ by at most twice the
// standard error that the seeds of the best one explain. One seed says nothing about the spread;
// then half a percentage point is assumed, and the reader is told. Among the schemes that are as
// accurate as the best one, the advice is the one that needed the least training time to the best
// accuracy that all of them reached.
//
// Runs that differ only in their seed are one variant. A variant is named by the item of `rondo
// compare` that made it, else by the scheme and the keys in which it differs from the other
// variants of that scheme.

#include "report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace rondo::tools {
namespace {

constexpr double assumed_spread = 0.5;    // percentage points, where there is one seed
constexpr double smallest_spread = 0.05;  // two seeds may agree by chance

// Keys that make no other variant: the seed, and those that change no result.
bool is_aside(std::string_view key) {
  constexpr std::array aside = {"train.seed", "train.log_every", "data.path"};
  return std::ranges::find(aside, key) != aside.end();
}

std::map<std::string, std::string> identity_of(const ReportedRun& run) {
  std::map<std::string, std::string> keys;
  for (const auto& [key, value] : run.keys) {
    if (!is_aside(key)) keys[key] = value;
  }
  return keys;
}

std::string value_of_key(const ReportedRun& run, const std::string& key) {
  const auto found = run.keys.find(key);
  return found == run.keys.end() ? "-" : found->second;
}

// As in a message: without TOML's quotes.
std::string bare(std::string text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    return text.substr(1, text.size() - 2);
  }
  return text;
}

std::string scheme_of_run(const ReportedRun& run) {
  const std::string started = text_in(run.start, "scheme");
  return started.empty() ? bare(value_of_key(run, "update.scheme")) : started;
}

// "update.period" is the user's "period"; keys of other sections keep theirs.
std::string short_key(const std::string& key) {
  constexpr std::string_view section = "update.";
  return key.starts_with(section) ? key.substr(section.size()) : key;
}

std::set<std::string> keys_of_all(const std::vector<ReportedRun>& runs,
                                  const std::vector<std::size_t>& which) {
  std::set<std::string> keys;
  for (const std::size_t run : which) {
    for (const auto& [key, value] : runs[run].keys) {
      if (!is_aside(key)) keys.insert(key);
    }
  }
  return keys;
}

// The keys in which the first runs of some variants differ. A key that one of them does not have
// differs, too: its value is "-".
std::vector<std::string> differing_keys(const std::vector<ReportedRun>& runs,
                                        const std::vector<std::size_t>& firsts) {
  std::vector<std::string> differing;
  for (const std::string& key : keys_of_all(runs, firsts)) {
    const std::string first = value_of_key(runs[firsts.front()], key);
    const bool same = std::ranges::all_of(
        firsts, [&](std::size_t run) { return value_of_key(runs[run], key) == first; });
    if (!same) differing.push_back(key);
  }
  return differing;
}

// The item of a comparison, as the user wrote it; else the scheme with the keys that tell it from
// others of the same scheme.
std::string label_of(const std::vector<ReportedRun>& runs, const std::vector<Variant>& variants,
                     const Variant& variant) {
  constexpr std::size_t most_keys = 3;
  const ReportedRun& run = runs[variant.runs.front()];
  if (!run.item.empty()) return run.item;
  std::vector<std::size_t> firsts;
  for (const Variant& other : variants) {
    if (other.scheme == variant.scheme) firsts.push_back(other.runs.front());
  }
  const std::vector<std::string> keys = differing_keys(runs, firsts);
  // A label with more keys would be longer than a column; the run's name is unique.
  if (keys.size() > most_keys) return variant.scheme + " (" + run.name + ")";
  std::string label = variant.scheme.empty() ? run.name : variant.scheme;
  for (const std::string& key : keys) {
    label += fmt::format(" {}={}", short_key(key), bare(value_of_key(run, key)));
  }
  return label;
}

// Labels are names: two variants of different comparisons may have got the same.
void make_labels_differ(const std::vector<ReportedRun>& runs, std::vector<Variant>& variants) {
  std::map<std::string, int> count;
  for (const Variant& variant : variants) ++count[variant.label];
  for (Variant& variant : variants) {
    if (count[variant.label] > 1) {
      variant.label += " (" + runs[variant.runs.front()].folder.string() + ")";
    }
  }
}

void summarise_variant(const std::vector<ReportedRun>& runs, Variant& variant,
                       std::optional<double> accuracy) {
  std::vector<RunRecord> records;
  std::vector<double> rates;
  // Runs that did not complete have a shorter time and a lower accuracy, and would spoil the means.
  for (const std::size_t run : variant.completed) {
    records.push_back(runs[run].record);
    const auto samples = number_in(runs[run].end, "samples");
    const auto seconds = number_in(runs[run].end, "training_seconds");
    if (samples && seconds && *seconds > 0.0) rates.push_back(*samples / *seconds);
  }
  variant.summary = summarise(variant.label, variant.seeds, records, accuracy);
  const auto rate = mean_and_deviation(rates);
  if (rate) variant.images_per_second = rate->mean;
}

// Points by which a mean accuracy may lie below the best one and still be called the same. The
// spread is that of the most accurate variant: one that spreads widely itself gains nothing by it.
double tolerance(const SchemeSummary& row, const SchemeSummary& best) {
  const auto& spread = best.final_accuracy->deviation;
  if (!spread) return assumed_spread;
  // The standard error of the difference of two means with that spread: s sqrt(1/n + 1/m).
  const double runs = 1.0 / static_cast<double>(row.done) + 1.0 / static_cast<double>(best.done);
  return std::max(2.0 * *spread * std::sqrt(runs), smallest_spread);
}

bool is_usable(const Variant& variant) {
  const auto& accuracy = variant.summary.final_accuracy;
  return accuracy && std::isfinite(accuracy->mean);
}

double mean_accuracy(const Variant& variant) { return variant.summary.final_accuracy->mean; }

// The one with the highest mean; nothing when none has completed.
std::optional<std::size_t> most_accurate(const std::vector<Variant>& variants) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (!is_usable(variants[i])) continue;
    if (!best || mean_accuracy(variants[i]) > mean_accuracy(variants[*best])) best = i;
  }
  return best;
}

// Runs of different tasks have accuracies and times that mean nothing beside each other. A value
// that a run does not tell is no difference, nor is that of a variant without accuracy.
std::string different_task(const std::vector<ReportedRun>& runs,
                           const std::vector<Variant>& variants) {
  // A program's own part comes before what its configuration names.
  for (const auto& [part, key] : {std::pair("data", "data.name"), {"model", "model.name"}}) {
    std::set<std::string> values;
    for (const Variant& variant : variants) {
      const ReportedRun& run = runs[variant.runs.front()];
      const char* said = run.keys.contains(part) ? part : key;
      if (is_usable(variant) && run.keys.contains(said)) {
        values.insert(bare(value_of_key(run, said)));
      }
    }
    if (values.size() > 1) return fmt::format("{} differs ({})", key, fmt::join(values, ", "));
  }
  return {};
}

// The distinct texts that `get` gives for the completed runs.
template <class Get>
std::set<std::string> distinct(const std::vector<ReportedRun>& runs,
                               const std::vector<Variant>& variants, const Get& get) {
  std::set<std::string> values;
  for (const Variant& variant : variants) {
    for (const std::size_t run : variant.completed) values.insert(get(runs[run]));
  }
  return values;
}

// Hosts and instruction set: what makes times of two runs comparable.
std::string machine_of(const ReportedRun& run) {
  return fmt::format("{} {}", list_in(run.start, "hosts"), text_in(run.start, "instruction_set"));
}

std::string size_of(const ReportedRun& run) {
  return fmt::format("{} ranks x {} threads on {} node(s)", run.record.start->ranks,
                     run.record.start->threads, run.record.start->nodes);
}

bool is_injected(const ReportedRun& run) {
  return std::ranges::any_of(run.parts, [](const nlohmann::json& part) {
    const auto found = part.find("injected");
    return found != part.end() && found->is_array() && !found->empty();
  });
}

// A number, or a list of texts.
std::string value_of_part(const nlohmann::json& part, const char* name) {
  const auto number = number_in(part, name);
  if (number) return fmt::format("{:g}", *number);
  const std::string list = list_in(part, name);
  return list.empty() ? "none" : list;
}

// "ranks (2, then 4)": in what the parts of a run that was resumed differ. Older versions have not
// recorded all of it for each part.
std::vector<std::string> differences_of_parts(const ReportedRun& run) {
  std::vector<std::string> differing;
  for (const char* name : {"ranks", "threads", "nodes", "hosts", "injected"}) {
    std::vector<std::string> values;
    for (const nlohmann::json& part : run.parts) {
      if (!part.contains(name)) continue;
      const std::string value = value_of_part(part, name);
      if (values.empty() || values.back() != value) values.push_back(value);
    }
    if (values.size() > 1) {
      differing.push_back(fmt::format("{} ({})", name, fmt::join(values, ", then ")));
    }
  }
  return differing;
}

// Notes on facts that a resumed run does not tell.
void add_notes_of_parts(const ReportedRun& run, std::vector<std::string>& notes) {
  const std::vector<std::string> differing = differences_of_parts(run);
  if (!differing.empty()) {
    notes.push_back(fmt::format("{}: its parts differ in {}; its times are of all of them.",
                                run.name, fmt::join(differing, ", ")));
  }
  if (run.record.steps_elsewhere > 0.0) {
    notes.push_back(fmt::format(
        "{}: it was resumed from another folder; what it spent on the first {:.0f} steps is not "
        "known here, so it has no time to an accuracy.",
        run.name, run.record.steps_elsewhere));
  }
}

// Which runs of a variant its means are without.
void add_notes_of_missing(const Variant& variant, std::vector<std::string>& notes) {
  const std::size_t missing = variant.runs.size() - variant.completed.size() - variant.repeated;
  if (missing > 0) {
    notes.push_back(
        fmt::format("{}: {} of {} runs did not complete, or have no epochs, and are left out.",
                    variant.label, missing, variant.runs.size()));
  }
  if (variant.repeated > 0) {
    notes.push_back(
        fmt::format("{}: {} of {} runs repeat a seed; each seed is counted once, with its first "
                    "run that completed.",
                    variant.label, variant.repeated, variant.runs.size()));
  }
}

// The limits of the answer. It is given all the same, so these stand beside it.
std::vector<std::string> notes_of(const std::vector<ReportedRun>& runs,
                                  const std::vector<Variant>& variants) {
  std::vector<std::string> notes;
  for (const Variant& variant : variants) add_notes_of_missing(variant, notes);
  for (const ReportedRun& run : runs) add_notes_of_parts(run, notes);
  // The spread of the others is not asked for.
  const auto best = most_accurate(variants);
  if (best && variants[*best].completed.size() == 1) {
    notes.push_back(
        fmt::format("{} is the most accurate and has one seed, so its spread is not known; "
                    "accuracies that differ by at most {} points count as the same.",
                    variants[*best].label, assumed_spread));
  }
  if (distinct(runs, variants, machine_of).size() > 1) {
    notes.emplace_back("The runs were on different machines, so their times do not compare.");
  }
  const auto sizes = distinct(runs, variants, size_of);
  if (sizes.size() > 1) {
    notes.push_back(fmt::format("The runs have different sizes: {}.", fmt::join(sizes, "; ")));
  }
  if (std::ranges::any_of(
          runs, [](const ReportedRun& r) { return r.start.is_object() && is_injected(r); })) {
    notes.emplace_back("Some ranks or links were slowed down on purpose; see 'injected'.");
  }
  notes.emplace_back(
      "Accuracy is measured after each epoch, so times to an accuracy come in steps of an epoch.");
  return notes;
}

std::string in_percent(double value) { return fmt::format("{:.2f} %", value); }

// "It sends 24 % of the bytes of synchronous."
std::string about_bytes(const Variant& taken, const std::vector<Variant>& variants) {
  const Variant* most = nullptr;
  for (const Variant& variant : variants) {
    if (!variant.summary.bytes_sent) continue;
    if (most == nullptr || *variant.summary.bytes_sent > *most->summary.bytes_sent) most = &variant;
  }
  if (most == nullptr || most == &taken || !taken.summary.bytes_sent) return {};
  // Several may send equally much.
  if (*most->summary.bytes_sent <= *taken.summary.bytes_sent) return {};
  return fmt::format(" It sends {:.0f} % of the bytes that {} sends, which sends most.",
                     100.0 * *taken.summary.bytes_sent / *most->summary.bytes_sent, most->label);
}

// Tells by how much the other variants are less accurate.
std::string about_others(const Variant& best, const std::vector<Variant>& variants,
                         const std::vector<std::size_t>& candidates) {
  std::vector<std::string> others;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (!is_usable(variants[i]) || std::ranges::count(candidates, i) > 0) continue;
    others.push_back(fmt::format("{} ends {:.2f} points below", variants[i].label,
                                 mean_accuracy(best) - mean_accuracy(variants[i])));
  }
  if (others.empty()) return {};
  return fmt::format(" Less accurate: {} the best mean, {}.", fmt::join(others, ", "),
                     in_percent(mean_accuracy(best)));
}

// ", k_step after 2.8 s, lazy after 3.0 s"
std::string times_of_others(const Variant& taken, const std::vector<Variant>& variants,
                            const std::vector<std::size_t>& candidates) {
  std::string text;
  for (const std::size_t i : candidates) {
    if (&variants[i] == &taken || !variants[i].summary.time_to_it) continue;
    text += fmt::format(", {} after {:.1f} s", variants[i].label, *variants[i].summary.time_to_it);
  }
  return text;
}

std::string answer_for_one(const Variant& variant) {
  return fmt::format(
      "There is one configuration here, {}: it ends with {} on the test set. "
      "Name runs of other schemes as well to compare them.",
      variant.label, in_percent(mean_accuracy(variant)));
}

std::string answer_for_only_one_of(const Variant& variant, std::size_t variants) {
  return fmt::format(
      "Of {} configurations only {} has completed runs: it ends with {} on the test set. "
      "There is nothing to compare it with yet.",
      variants, variant.label, in_percent(mean_accuracy(variant)));
}

// The measure for the lead of the most accurate one.
std::string spread_of(const Variant& best) {
  if (best.summary.final_accuracy->deviation) return "seeds explain";
  return fmt::format("the {} points that are assumed where there is one seed", assumed_spread);
}

// The candidates' times, and who is the fastest.
std::string answer_for(const Advice& advice, const Variant& best,
                       const std::vector<Variant>& variants,
                       const std::vector<std::size_t>& candidates) {
  const Variant& taken = variants[*advice.take];
  std::string text;
  if (candidates.size() == 1) {
    text = fmt::format("Take {}: it is the most accurate, with {}, by more than {}.", taken.label,
                       in_percent(mean_accuracy(taken)), spread_of(best));
  } else if (!taken.summary.time_to_it) {
    text = fmt::format(
        "Take {0}: {1} schemes are equally accurate as far as their seeds tell, and {0} has the "
        "best mean; no run tells how long it takes to {2}.",
        taken.label, candidates.size(), in_percent(*advice.accuracy));
  } else {
    text = fmt::format(
        "Take {0}: {1} schemes are equally accurate as far as their seeds tell, and of these {0} "
        "is the first to reach {2}, the best accuracy that all of them reached: after {3:.1f} s of "
        "training{4}.",
        taken.label, candidates.size(), in_percent(*advice.accuracy), *taken.summary.time_to_it,
        times_of_others(taken, variants, candidates));
  }
  return text + about_bytes(taken, variants) + about_others(best, variants, candidates);
}

// Runs of one seed differ less than those of several, so a repeated one would make the spread look
// smaller than it is. The seed of a run without a configuration is not known.
bool repeats_a_seed(const std::vector<ReportedRun>& runs, const Variant& variant, std::size_t run) {
  const auto seed = runs[run].keys.find("train.seed");
  if (seed == runs[run].keys.end()) return false;
  return std::ranges::any_of(variant.completed, [&](std::size_t other) {
    return value_of_key(runs[other], "train.seed") == seed->second;
  });
}

// A run of which the seed is not known counts as one of its own.
std::size_t seeds_of(const std::vector<ReportedRun>& runs, const Variant& variant) {
  std::set<std::string> known;
  std::size_t unknown = 0;
  for (const std::size_t run : variant.runs) {
    const auto seed = runs[run].keys.find("train.seed");
    if (seed == runs[run].keys.end()) {
      ++unknown;
    } else {
      known.insert(seed->second);
    }
  }
  return known.size() + unknown;
}

void count_run(const std::vector<ReportedRun>& runs, Variant& variant, std::size_t run) {
  variant.runs.push_back(run);
  if (!runs[run].record.completed()) return;
  if (repeats_a_seed(runs, variant, run)) {
    ++variant.repeated;
  } else {
    variant.completed.push_back(run);
  }
}

}  // namespace

// Runs with the same configuration but for the seed are one variant; variants are in the order of
// their first runs.
std::vector<Variant> variants_of(const std::vector<ReportedRun>& runs) {
  std::vector<Variant> variants;
  std::vector<std::map<std::string, std::string>> identities;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto identity = identity_of(runs[i]);
    // A few variants: a search through all is fast enough.
    const auto found = std::ranges::find(identities, identity);
    const auto at = static_cast<std::size_t>(found - identities.begin());
    if (found == identities.end()) {
      identities.push_back(identity);
      variants.push_back({.scheme = scheme_of_run(runs[i])});
    }
    count_run(runs, variants[at], i);
  }
  for (Variant& variant : variants) {
    variant.seeds = seeds_of(runs, variant);
    variant.label = label_of(runs, variants, variant);
  }
  make_labels_differ(runs, variants);
  for (Variant& variant : variants) summarise_variant(runs, variant, std::nullopt);
  return variants;
}

Advice advise(const std::vector<ReportedRun>& runs, std::vector<Variant>& variants) {
  Advice advice{.notes = notes_of(runs, variants)};
  const auto best = most_accurate(variants);
  if (!best) {
    const bool any =
        std::ranges::any_of(runs, [](const ReportedRun& run) { return run.record.ended_well(); });
    advice.answer = fmt::format(
        "{}, so there is nothing to compare{}.",
        any ? "What has completed has no accuracy in its metrics.jsonl" : "No run has completed",
        any ? "" : " yet");
    return advice;
  }
  // Refused before any number is compared.
  const std::string other_task = different_task(runs, variants);
  if (!other_task.empty()) {
    advice.answer = fmt::format(
        "These runs are of different tasks: {}. Their accuracies and times "
        "do not compare.",
        other_task);
    return advice;
  }
  std::vector<std::size_t> candidates;
  double common = HUGE_VAL;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (!is_usable(variants[i])) continue;
    const double below = mean_accuracy(variants[*best]) - mean_accuracy(variants[i]);
    if (below > tolerance(variants[i].summary, variants[*best].summary)) continue;
    candidates.push_back(i);
    for (const std::size_t run : variants[i].completed) {
      // Every run of every candidate has reached the lowest of their best accuracies, so each has a
      // time to it.
      common = std::min(common, best_accuracy(runs[run].record));
    }
  }
  advice.accuracy = common;
  // Once more, now that the accuracy is known: the summaries get their times.
  for (Variant& variant : variants) summarise_variant(runs, variant, common);
  if (variants.size() == 1) {
    advice.answer = answer_for_one(variants.front());
    return advice;
  }
  if (std::ranges::count_if(variants, is_usable) == 1) {
    advice.answer = answer_for_only_one_of(variants[*best], variants.size());
    return advice;
  }
  // The first of equal times counts: its variant is the one that the user named first.
  advice.take = *std::ranges::min_element(candidates, {}, [&](std::size_t i) {
    return variants[i].summary.time_to_it.value_or(HUGE_VAL);
  });
  // Runs that began in another folder have none.
  if (!variants[*advice.take].summary.time_to_it) advice.take = *best;
  advice.answer = answer_for(advice, variants[*best], variants, candidates);
  return advice;
}

std::vector<Difference> differences_of(const std::vector<ReportedRun>& runs,
                                       const std::vector<Variant>& variants) {
  std::vector<std::size_t> firsts;
  for (const Variant& variant : variants) firsts.push_back(variant.runs.front());
  std::vector<Difference> differences;
  if (firsts.empty()) return differences;
  for (const std::string& key : differing_keys(runs, firsts)) {
    Difference difference{.key = key};
    for (const std::size_t run : firsts) {
      difference.values.push_back(bare(value_of_key(runs[run], key)));
    }
    differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace rondo::tools
