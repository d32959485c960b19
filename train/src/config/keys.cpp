// The one place where the keys of the configuration stand. A new key is a member of Experiment and
// a line here.

#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <rondo/sync/scheme_description.hpp>
#include <rondo/train/model.hpp>

#include "config/key.hpp"
#include "config/split_text.hpp"
#include "model/described_model.hpp"

namespace rondo::train {
namespace {

using Data = Experiment::Data;
using Model = Experiment::Model;
using Train = Experiment::Train;
using Optimizer = Experiment::Optimizer;
using Update = Experiment::Update;
using Grid = Experiment::Grid;
using Transport = Experiment::Transport;
using Inject = Experiment::Inject;

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

// The key whose value is `experiment.*section.*member`.
template <auto section, auto member>
Key key(std::string_view section_name, std::string_view name, Limits limits = {}) {
  using Member = std::remove_cvref_t<decltype(std::declval<Experiment&>().*section.*member)>;
  using Type = typename ValueOf<Member>::type;
  return {.section = section_name,
          .name = name,
          .get = [](const Experiment& e) -> Value { return Type(e.*section.*member); },
          .set = [](Experiment& e, const Value& v) { e.*section.*member = std::get<Type>(v); },
          .limits = std::move(limits)};
}

template <auto member>
Key data(std::string_view name, Limits limits = {}) {
  return key<&Experiment::data, member>("data", name, std::move(limits));
}
template <auto member>
Key model(std::string_view name, Limits limits = {}) {
  return key<&Experiment::model, member>("model", name, std::move(limits));
}
template <auto member>
Key train(std::string_view name, Limits limits = {}) {
  return key<&Experiment::train, member>("train", name, std::move(limits));
}
template <auto member>
Key optimizer(std::string_view name, Limits limits = {}) {
  return key<&Experiment::optimizer, member>("optimizer", name, std::move(limits));
}
template <auto member>
Key update(std::string_view name, Limits limits = {}) {
  return key<&Experiment::update, member>("update", name, std::move(limits));
}
template <auto member>
Key grid(std::string_view name, Limits limits = {}) {
  return key<&Experiment::grid, member>("grid", name, std::move(limits));
}
template <auto member>
Key transport(std::string_view name, Limits limits = {}) {
  return key<&Experiment::transport, member>("transport", name, std::move(limits));
}
template <auto member>
Key inject(std::string_view name, Limits limits = {}) {
  return key<&Experiment::inject, member>("inject", name, std::move(limits));
}

Limits from(double least) { return {.least = least}; }
Limits above(double least) { return {.least = least, .open_least = true}; }
Limits share() { return {.least = 0.0, .most = 1.0, .open_most = true}; }
Limits count_from(double least) { return within(least, largest_count); }
Limits parts_from(double least) { return within(least, largest_part_count); }
Limits required(Limits limits) {
  limits.required = true;
  return limits;
}

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

std::vector<Key> make_keys() {
  return {
      data<&Data::name>("name", required(one_of({"fashion-mnist", "cifar10", "synthetic"}))),
      data<&Data::path>("path"),
      data<&Data::shape>("shape", {.least = 1, .most = 65536, .length = 3}),
      data<&Data::classes>("classes", within(0, 65536)),
      data<&Data::training>("training", count_from(1)),
      data<&Data::test>("test", count_from(1)),
      data<&Data::crop>("crop", within(0, 4096)),
      data<&Data::flip>("flip"),
      data<&Data::drop_last>("drop_last"),
      model<&Model::name>("name", required(one_of(names_of_models()))),
      model<&Model::input>("input", {.least = 1, .most = 65536, .length = 3}),
      model<&Model::classes>("classes", within(0, 65536)),
      model<&Model::layers>("layers"),
      train<&Train::global_batch>("global_batch", count_from(1)),
      train<&Train::epochs>("epochs", count_from(1)),
      train<&Train::max_steps>("max_steps", from(0)),
      train<&Train::seed>("seed", from(0)),
      train<&Train::threads>("threads", within(0, 4096)),
      train<&Train::log_every>("log_every", from(1)),
      train<&Train::label_smoothing>("label_smoothing", share()),
      train<&Train::accumulate>("accumulate", count_from(1)),
      train<&Train::memory_limit>("memory_limit", from(0)),
      optimizer<&Optimizer::name>("name", one_of({"sgd", "adam", "adamw"})),
      optimizer<&Optimizer::learning_rate>("learning_rate", above(0)),
      optimizer<&Optimizer::momentum>("momentum", share()),
      optimizer<&Optimizer::weight_decay>("weight_decay", from(0)),
      optimizer<&Optimizer::decay_norm_and_bias>("decay_norm_and_bias"),
      optimizer<&Optimizer::beta1>("beta1", share()),
      optimizer<&Optimizer::beta2>("beta2", share()),
      optimizer<&Optimizer::epsilon>("epsilon", from(0)),
      optimizer<&Optimizer::clip_norm>("clip_norm", from(0)),
      optimizer<&Optimizer::schedule>("schedule", one_of({"constant", "cosine", "steps"})),
      optimizer<&Optimizer::warmup_epochs>("warmup_epochs", from(0)),
      optimizer<&Optimizer::final_learning_rate>("final_learning_rate", from(0)),
      optimizer<&Optimizer::milestones>("milestones", count_from(1)),
      optimizer<&Optimizer::factor>("factor", above(0)),
      update<&Update::scheme>("scheme", one_of(names_of_schemes())),
      update<&Update::bucket_bytes>("bucket_bytes", from(1)),
      update<&Update::warmup_epochs>("warmup_epochs", from(-1)),
      update<&Update::lazy_layers>("lazy_layers"),
      update<&Update::max_interval>("max_interval", count_from(0)),
      update<&Update::controller>("controller", one_of({"probe", "every_layer"})),
      update<&Update::period>("period", count_from(1)),
      update<&Update::reduction_momentum>("reduction_momentum", share()),
      update<&Update::reduction_momentum_kind>(
          "reduction_momentum_kind", one_of({"classical", "nesterov", "slowmo", "diloco"})),
      update<&Update::outer_rate>("outer_rate", above(0)),
      update<&Update::optimizer_state>("optimizer_state", one_of({"keep", "average", "reset"})),
      update<&Update::local_period>("local_period", count_from(1)),
      update<&Update::group>("group", count_from(0)),
      update<&Update::levels>("levels",
                              {.least = 1, .most = largest_count, .least_key = 1, .whole = true}),
      update<&Update::delay>("delay", one_of({"dynamic", "fixed"})),
      update<&Update::scaling>("scaling", one_of({"per_sample", "mean", "sum"})),
      update<&Update::local_step>("local_step"),
      update<&Update::minibatch_cap>("minibatch_cap", count_from(0)),
      update<&Update::when_empty>("when_empty", one_of({"wait", "skip"})),
      update<&Update::replay>("replay"),
      grid<&Grid::sample>("sample", parts_from(0)),
      grid<&Grid::channel>("channel", parts_from(1)),
      grid<&Grid::filter>("filter", parts_from(1)),
      grid<&Grid::height>("height", parts_from(1)),
      grid<&Grid::width>("width", parts_from(1)),
      grid<&Grid::plan>("plan", one_of({"given", "auto", "chosen"})),
      grid<&Grid::batch_norm>("batch_norm", one_of({"rank", "group", "all"})),
      grid<&Grid::layers>("layers", {.text_complaint = complaint_about_split}),
      transport<&Transport::wait>("wait", one_of({"auto", "spin", "yield", "block"})),
      transport<&Transport::deadline_seconds>("deadline_seconds", above(0)),
      transport<&Transport::stall_warning_seconds>("stall_warning_seconds", above(0)),
      transport<&Transport::small_bytes>("small_bytes", within(0, 4096)),
      transport<&Transport::fabric>("fabric"),
      transport<&Transport::interface>("interface"),
      transport<&Transport::fake_nodes>("fake_nodes", within(0, 4096)),
      transport<&Transport::latency_us>("latency_us", within(0, 1e7)),
      transport<&Transport::bandwidth_gbs>("bandwidth_gbs", within(0, 1e6)),
      transport<&Transport::allreduce>("allreduce"),
      inject<&Inject::slow_ranks>("slow_ranks", {.least = 1, .most = 1e6}),
  };
}

}  // namespace

std::span<const Key> all_keys() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

}  // namespace rondo::train
