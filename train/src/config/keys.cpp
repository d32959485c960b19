// The one place where the keys of the configuration stand. A new key is a member of Experiment and
// a line here. Reading, checking, writing, comparing with the checkpoint's and with those of other
// ranks all go through this list, and docs/configuration.md is compared with it by a test.

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <rondo/sync/synchronous.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/model.hpp>
#include <rondo/transport/allreduce_paths.hpp>
#include <rondo/transport/links.hpp>

#include "config/grid_choice.hpp"
#include "config/key.hpp"
#include "data/augmentations.hpp"
#include "data/dataset_type.hpp"
#include "data/prefetch_queue.hpp"
#include "model/described.hpp"

namespace rondo::train {
namespace {

using DataTable = Experiment::Data;
using ModelTable = Experiment::Model;
using TrainTable = Experiment::Train;
using CheckpointTable = Experiment::Checkpoint;
using OptimizerTable = Experiment::Optimizer;
using UpdateTable = Experiment::Update;
using GridTable = Experiment::Grid;
using TransportTable = Experiment::Transport;
using InjectTable = Experiment::Inject;

constexpr double largest_count = 2147483647.0;  // of samples, and what is counted like them

// A path is a string to those who write it.
template <class T>
struct ValueOf {
  using type = T;
};
template <>
struct ValueOf<std::filesystem::path> {
  using type = std::string;
};

// A section of the configuration, whose values are members of `experiment.*section`.
template <auto section>
struct Section {
  template <auto member>
  using Member = std::remove_cvref_t<decltype(std::declval<Experiment&>().*section.*member)>;
  template <auto member>
  using Choices = std::vector<std::pair<std::string, Member<member>>>;

  std::string_view name;

  // The key whose value is `experiment.*section.*member`.
  template <auto member>
  [[nodiscard]] Key key(std::string_view key_name, Limits limits = {},
                        std::vector<Condition> conditions = {}) const {
    using Type = typename ValueOf<Member<member>>::type;
    return {.section = name,
            .name = key_name,
            .get = [](const Experiment& e) -> Value { return Type(e.*section.*member); },
            .set = [](Experiment& e, const Value& v) { e.*section.*member = std::get<Type>(v); },
            .limits = std::move(limits),
            .conditions = std::move(conditions)};
  }

  // The key whose value is an enumerator, which the file names.
  template <auto member>
  [[nodiscard]] Key choice(std::string_view key_name, Choices<member> choices,
                           std::vector<Condition> conditions = {}) const {
    std::vector<std::string> names;
    for (const auto& choice : choices) names.push_back(choice.first);
    return {.section = name,
            .name = key_name,
            // Empty for a number that is no enumerator, which only a program can give.
            .get = [choices](const Experiment& e) -> Value {
              const auto found = std::ranges::find(choices, e.*section.*member,
                                                   &Choices<member>::value_type::second);
              return found == choices.end() ? std::string() : found->first;
            },
            .set =
                [choices](Experiment& e, const Value& v) {
                  e.*section.*member = std::ranges::find(choices, std::get<std::string>(v),
                                                         &Choices<member>::value_type::first)
                                           ->second;
                },
            .limits = one_of(std::move(names)),
            .conditions = std::move(conditions)};
  }
};

// Short names for the limits that occur more than once, so that a line of the list reads as one.
Limits from(double least) { return {.least = least}; }
Limits above(double least) { return {.least = least, .open_least = true}; }
Limits share() { return {.least = 0.0, .most = 1.0, .open_most = true}; }
Limits count_from(double least) { return within(least, largest_count); }
Limits parts_from(double least) { return within(least, largest_part_count); }
Limits required(Limits limits) {
  limits.required = true;
  return limits;
}

// The choices of a key come from the lists of the parts themselves: a new model, scheme or data set
// needs no line here.
std::vector<std::string> names_of_models() {
  std::vector<std::string> names = model_names();
  names.emplace_back(custom_model);
  return names;
}

std::vector<std::string> names_of_schemes() {
  std::vector<std::string> names;
  for (const sync::SchemeDescription& scheme : sync::schemes()) names.emplace_back(scheme.name);
  return names;
}

// Read with schemes that can do something: what they can is said by their descriptions alone.
Condition scheme_that(bool (*can)(const sync::SchemeDescription& scheme)) {
  return {"update.scheme",
          [can](std::string_view name) { return can(sync::describe_scheme(name)); }};
}

Condition averages() {
  return scheme_that([](const sync::SchemeDescription& scheme) {
    return scheme.exchange == sync::Exchange::parameters;
  });
}

Condition has_windows() {
  return scheme_that([](const sync::SchemeDescription& scheme) { return scheme.windows; });
}

Condition has_levels() {
  return scheme_that([](const sync::SchemeDescription& scheme) { return scheme.levels; });
}

Condition has_own_pace() {
  return scheme_that([](const sync::SchemeDescription& scheme) { return scheme.own_pace; });
}

Condition can_warm_up() {
  return scheme_that([](const sync::SchemeDescription& scheme) {
    return scheme.warm_up != sync::WarmUp::pointless;
  });
}

// Read with these choices of the key `chooser`.
Condition with(std::string_view chooser, std::vector<std::string_view> choices) {
  return {chooser, [choices = std::move(choices)](std::string_view choice) {
            return std::ranges::find(choices, choice) != choices.end();
          }};
}

// The reader of CPU lists throws; a limit says what is wrong.
std::string complaint_about_cpus(std::string_view text) {
  try {
    static_cast<void>(read_cpu_list(text));
    return {};
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

// data.path, data.decoders and others say how data are read, and may stay where others are chosen.
std::vector<Key> data_keys() {
  constexpr Section<&Experiment::data> data{"data"};
  const Condition synthetic = with("data.name", {"synthetic"});
  const Condition folder = with("data.name", {"folder"});
  return {
      data.key<&DataTable::name>("name", required(one_of(dataset_names()))),
      data.key<&DataTable::path>("path"),
      data.key<&DataTable::shape>("shape", {.least = 1, .most = 65536, .length = 3}, {synthetic}),
      data.key<&DataTable::classes>("classes", within(0, 65536), {synthetic}),
      data.key<&DataTable::training>("training", count_from(1), {synthetic}),
      data.key<&DataTable::test>("test", count_from(1), {synthetic}),
      data.key<&DataTable::augment>("augment", {.text_complaint = complaint_about_augmentation}),
      data.key<&DataTable::image_size>("image_size", within(0, 16384), {folder}),
      data.key<&DataTable::centre_crop>("centre_crop", {.least = 0, .most = 1, .open_least = true}),
      data.key<&DataTable::mean>("mean", within(0, 1)),
      data.key<&DataTable::stddev>("stddev", {.least = 1e-6, .most = 1}),
      data.choice<&DataTable::broken>(
          "broken", {{"refuse", BrokenImages::refuse}, {"skip", BrokenImages::skip}}),
      data.key<&DataTable::decoders>("decoders", within(0, 1024)),
      data.key<&DataTable::decoder_cpus>("decoder_cpus", {.text_complaint = complaint_about_cpus}),
      data.key<&DataTable::drop_last>("drop_last"),
  };
}

std::vector<Key> model_keys() {
  constexpr Section<&Experiment::model> model{"model"};
  const Condition custom = with("model.name", {custom_model});
  return {
      model.key<&ModelTable::name>("name", required(one_of(names_of_models()))),
      model.key<&ModelTable::input>("input", {.least = 1, .most = 65536, .length = 3}, {custom}),
      model.key<&ModelTable::classes>("classes", within(0, 65536), {custom}),
      model.key<&ModelTable::layers>("layers", {}, {custom}),
      model.key<&ModelTable::weights>("weights"),
      model.key<&ModelTable::skip>("skip"),
  };
}

std::vector<Key> train_keys() {
  using enum tensor::DataType;
  using enum tensor::ConvolutionAlgorithm;
  constexpr Section<&Experiment::train> train{"train"};
  return {
      train.key<&TrainTable::global_batch>("global_batch", count_from(1)),
      train.key<&TrainTable::epochs>("epochs", count_from(1)),
      train.key<&TrainTable::max_steps>("max_steps", from(0)),
      train.key<&TrainTable::seed>("seed", from(0)),
      train.key<&TrainTable::threads>("threads", within(0, 4096)),
      train.key<&TrainTable::log_every>("log_every", from(1)),
      train.key<&TrainTable::label_smoothing>("label_smoothing", share()),
      train.key<&TrainTable::accumulate>("accumulate", count_from(1)),
      train.key<&TrainTable::memory_limit>("memory_limit", from(0)),
      train.choice<&TrainTable::precision>("precision", {{"fp32", f32}, {"bf16", bf16}}),
      train.choice<&TrainTable::convolution>("convolution", {{"fast", fast}, {"direct", direct}}),
      train.choice<&TrainTable::reduce_precision>("reduce_precision",
                                                  {{"fp32", f32}, {"bf16", bf16}}),
  };
}

std::vector<Key> checkpoint_keys() {
  constexpr Section<&Experiment::checkpoint> checkpoint{"checkpoint"};
  return {
      checkpoint.key<&CheckpointTable::every_steps>("every_steps", count_from(0)),
      checkpoint.key<&CheckpointTable::every_epochs>("every_epochs", count_from(0)),
      checkpoint.key<&CheckpointTable::keep>("keep", count_from(1)),
      checkpoint.key<&CheckpointTable::best>("best"),
  };
}

std::vector<Key> optimizer_keys() {
  using enum OptimizerName;
  using sync::Decay;
  constexpr Section<&Experiment::optimizer> optimizer{"optimizer"};
  const Condition trusts = with("optimizer.name", {"lars"});
  const Condition velocity = with("optimizer.name", {"sgd", "lars"});
  const Condition moments = with("optimizer.name", {"adam", "adamw"});
  const Condition ends = with("optimizer.schedule", {"cosine", "exponential"});
  const Condition steps = with("optimizer.schedule", {"steps"});
  return {
      optimizer.choice<&OptimizerTable::name>(
          "name", {{"sgd", sgd}, {"lars", lars}, {"adam", adam}, {"adamw", adamw}}),
      optimizer.key<&OptimizerTable::learning_rate>("learning_rate", above(0)),
      optimizer.key<&OptimizerTable::momentum>("momentum", share(), {velocity}),
      optimizer.key<&OptimizerTable::nesterov>("nesterov", {}, {velocity}),
      optimizer.key<&OptimizerTable::trust_coefficient>("trust_coefficient", above(0), {trusts}),
      optimizer.key<&OptimizerTable::weight_decay>("weight_decay", from(0)),
      optimizer.key<&OptimizerTable::decay_norm_and_bias>("decay_norm_and_bias"),
      optimizer.key<&OptimizerTable::beta1>("beta1", share(), {moments}),
      optimizer.key<&OptimizerTable::beta2>("beta2", share(), {moments}),
      optimizer.key<&OptimizerTable::epsilon>("epsilon", from(0), {moments}),
      optimizer.key<&OptimizerTable::clip_norm>("clip_norm", from(0)),
      optimizer.choice<&OptimizerTable::schedule>("schedule",
                                                  {{"constant", Decay::constant},
                                                   {"cosine", Decay::cosine},
                                                   {"steps", Decay::steps},
                                                   {"exponential", Decay::exponential}}),
      optimizer.key<&OptimizerTable::warmup_epochs>("warmup_epochs", from(0)),
      optimizer.key<&OptimizerTable::final_learning_rate>("final_learning_rate", from(0), {ends}),
      optimizer.key<&OptimizerTable::milestones>("milestones", count_from(1), {steps}),
      optimizer.key<&OptimizerTable::factor>("factor", above(0), {steps}),
  };
}

// Keys of all schemes stand in one section. bucket_bytes has no condition: whichever the scheme is,
// its warm-up and sums within a replica make buckets.
std::vector<Key> update_keys() {
  using enum sync::LazyController;
  using enum sync::MomentumKind;
  using enum sync::LocalState;
  using enum sync::Delay;
  using enum sync::PushScaling;
  using enum sync::WhenEmpty;
  constexpr Section<&Experiment::update> update{"update"};
  const Condition post_local = with("update.period_policy", {"post_local"});
  const Condition qsr = with("update.period_policy", {"qsr"});
  const Condition own_scheme = with("update.scheme", {sync::synchronous_scheme.name});
  return {
      update.key<&UpdateTable::scheme>("scheme", one_of(names_of_schemes())),
      update.key<&UpdateTable::bucket_bytes>("bucket_bytes", from(1)),
      update.key<&UpdateTable::warmup_epochs>("warmup_epochs", from(-1), {can_warm_up()}),
      update.key<&UpdateTable::lazy_layers>("lazy_layers", {}, {has_windows()}),
      update.key<&UpdateTable::max_interval>("max_interval", count_from(0), {has_windows()}),
      update.key<&UpdateTable::max_interval_rate>("max_interval_rate", from(0), {has_windows()}),
      update.key<&UpdateTable::updates_per_iteration>("updates_per_iteration", {}, {has_windows()}),
      update.choice<&UpdateTable::controller>(
          "controller", {{"probe", probe}, {"every_layer", every_layer}}, {has_windows()}),
      update.key<&UpdateTable::period>("period", count_from(1), {averages()}),
      update.choice<&UpdateTable::period_policy>("period_policy",
                                                 {{"constant", PeriodChoice::constant},
                                                  {"post_local", PeriodChoice::post_local},
                                                  {"qsr", PeriodChoice::qsr},
                                                  {"adaptive", PeriodChoice::adaptive}},
                                                 {averages()}),
      update.key<&UpdateTable::local_from_epoch>("local_from_epoch", from(0),
                                                 {averages(), post_local}),
      update.key<&UpdateTable::qsr_alpha>("qsr_alpha", from(0), {averages(), qsr}),
      update.key<&UpdateTable::overlap_steps>("overlap_steps", count_from(0), {averages()}),
      update.key<&UpdateTable::fragments>("fragments", count_from(1), {averages()}),
      update.key<&UpdateTable::reduction_momentum>("reduction_momentum", share(), {averages()}),
      update.choice<&UpdateTable::reduction_momentum_kind>("reduction_momentum_kind",
                                                           {{"classical", classical},
                                                            {"nesterov", nesterov},
                                                            {"slowmo", slowmo},
                                                            {"diloco", diloco}},
                                                           {averages()}),
      update.choice<&UpdateTable::outer_optimizer>("outer_optimizer",
                                                   {{"none", OuterOptimizer::none},
                                                    {"sgd", OuterOptimizer::sgd},
                                                    {"nesterov", OuterOptimizer::nesterov},
                                                    {"adam", OuterOptimizer::adam}},
                                                   {averages()}),
      update.key<&UpdateTable::outer_rate>("outer_rate", above(0), {averages()}),
      update.choice<&UpdateTable::optimizer_state>(
          "optimizer_state", {{"keep", keep}, {"average", average}, {"reset", reset}},
          {averages()}),
      update.key<&UpdateTable::local_period>("local_period", count_from(1), {has_levels()}),
      update.key<&UpdateTable::group>("group", count_from(0), {has_levels()}),
      update.key<&UpdateTable::levels>(
          "levels", {.least = 1, .most = largest_count, .least_key = 1, .whole = true},
          {has_levels()}),
      update.choice<&UpdateTable::delay>("delay", {{"dynamic", dynamic}, {"fixed", fixed}},
                                         {has_own_pace()}),
      update.choice<&UpdateTable::scaling>(
          "scaling", {{"per_sample", per_sample}, {"mean", mean}, {"sum", sum}}, {has_own_pace()}),
      update.key<&UpdateTable::local_step>("local_step", {}, {has_own_pace()}),
      update.key<&UpdateTable::minibatch_cap>("minibatch_cap", count_from(0), {has_own_pace()}),
      update.choice<&UpdateTable::when_empty>("when_empty", {{"wait", wait}, {"skip", skip}},
                                              {has_own_pace()}),
      update.key<&UpdateTable::replay>("replay", {}, {has_own_pace()}),
      update.key<&UpdateTable::plugin>("plugin", {}, {own_scheme}),
      update.key<&UpdateTable::plugin_settings>("plugin_settings", {}, {own_scheme}),
  };
}

// "chosen" is what a run writes after "auto": the splits are in the file then.
std::vector<Key> grid_keys() {
  constexpr Section<&Experiment::grid> grid{"grid"};
  return {
      grid.key<&GridTable::sample>("sample", count_from(0)),
      grid.key<&GridTable::channel>("channel", parts_from(1)),
      grid.key<&GridTable::filter>("filter", parts_from(1)),
      grid.key<&GridTable::height>("height", parts_from(1)),
      grid.key<&GridTable::width>("width", parts_from(1)),
      grid.choice<&GridTable::plan>("plan", {{"given", PlanChoice::given},
                                             {"auto", PlanChoice::automatic},
                                             {"chosen", PlanChoice::chosen}}),
      grid.choice<&GridTable::batch_norm>("batch_norm", {{"rank", BatchNormScope::rank},
                                                         {"replica", BatchNormScope::replica},
                                                         {"all", BatchNormScope::all}}),
      grid.key<&GridTable::layers>("layers", {.text_complaint = complaint_about_split}),
  };
}

std::string complaint_about_fabric(std::string_view text) {
  return transport::problem_of_fabric_name(std::string(text));
}

std::string complaint_about_allreduce(std::string_view text) {
  try {
    static_cast<void>(transport::AllreducePaths(std::string(text)));
    return {};
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

std::vector<Key> transport_keys() {
  using enum transport::Waiting;
  constexpr Section<&Experiment::transport> transport{"transport"};
  return {
      transport.choice<&TransportTable::wait>(
          "wait", {{"auto", automatic}, {"spin", spin}, {"yield", yield}, {"block", block}}),
      transport.key<&TransportTable::deadline_seconds>("deadline_seconds", above(0)),
      transport.key<&TransportTable::stall_warning_seconds>("stall_warning_seconds", above(0)),
      transport.key<&TransportTable::small_bytes>("small_bytes", within(0, 4096)),
      transport.key<&TransportTable::fabric>("fabric", {.text_complaint = complaint_about_fabric}),
      transport.key<&TransportTable::interface>("interface"),
      transport.key<&TransportTable::fake_nodes>("fake_nodes", within(0, 4096)),
      transport.key<&TransportTable::latency_us>("latency_us", within(0, 1e7)),
      transport.key<&TransportTable::bandwidth_gbs>("bandwidth_gbs", within(0, 1e6)),
      transport.key<&TransportTable::allreduce>("allreduce",
                                                {.text_complaint = complaint_about_allreduce}),
  };
}

std::vector<Key> inject_keys() {
  constexpr Section<&Experiment::inject> inject{"inject"};
  return {
      inject.key<&InjectTable::slow_ranks>("slow_ranks", {.least = 1, .most = 1e6}),
  };
}

// In the order in which config.toml shows them: what is trained, how, and on what.
std::vector<Key> make_keys() {
  std::vector<Key> keys;
  for (const auto section : {data_keys, model_keys, train_keys, checkpoint_keys, optimizer_keys,
                             update_keys, grid_keys, transport_keys, inject_keys}) {
    std::ranges::move(section(), std::back_inserter(keys));
  }
  return keys;
}

}  // namespace

std::span<const Key> all_keys() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

const Key* find_key(std::string_view full_name) {
  const auto found = std::ranges::find(all_keys(), full_name, &Key::full_name);
  return found == all_keys().end() ? nullptr : &*found;
}

std::string chosen(const Experiment& experiment, std::string_view key) {
  return std::get<std::string>(find_key(key)->get(experiment));
}

std::string name_of(OptimizerName name) {
  Experiment experiment;
  experiment.optimizer.name = name;
  return chosen(experiment, "optimizer.name");
}

}  // namespace rondo::train
