#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/tensor/data_type.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::train {

/// A configuration that cannot be used; what() is one line "FILE:LINE: KEY: what is wrong; what to
/// do".
class RONDO_TRAIN_API ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Model;

/// The values of keys that choose one of several; the file has them under the same names.
enum class OptimizerName { sgd, lars, adam, adamw };
enum class PeriodChoice { constant, post_local, qsr, adaptive };
enum class OuterOptimizer { none, sgd, nesterov, adam };
enum class PlanChoice { given, automatic, chosen };

/// The reaction to an image that cannot be decoded: load() throws DataError, or the next image of
/// the set that can be decoded takes its place.
enum class BrokenImages { refuse, skip };

/// {name = text, ...} in the order in which they were written.
using TextTable = std::vector<std::pair<std::string, std::string>>;

/// Everything that decides what a run computes: one TOML file, with a default for every key but
/// [data] name and [model] name.
struct Experiment {
  struct Data {
    std::string name = {};            ///< fashion-mnist, cifar10, cifar100, folder, synthetic
    std::filesystem::path path = {};  ///< empty: the default of that name
    std::vector<std::int64_t> shape =
        {};                          ///< synthetic: {height, width, channels}; empty: the model's
    std::int64_t classes = 0;        ///< synthetic; 0: the model's
    std::int64_t training = 10'000;  ///< synthetic: images
    std::int64_t test = 1'000;       ///< synthetic: images
    std::vector<std::string> augment = {};       ///< see make_augmentation(), in loader.hpp
    std::int64_t image_size = 0;                 ///< folder: height and width; 0: the model's
    double centre_crop = 0.875;                  ///< folder: see LoaderOptions
    std::vector<double> mean = {};               ///< per channel, in [0, 1]; empty: the data set's
    std::vector<double> stddev = {};             ///< likewise
    BrokenImages broken = BrokenImages::refuse;  ///< folder
    std::int64_t decoders = 0;                   ///< threads; 0: see LoaderOptions
    std::string decoder_cpus = {};               ///< such as 0-3,8; empty: those of the rank
    bool drop_last = false;  ///< leaves out what fills no whole global batch at the end of an epoch
  } data;
  /// One layer of a model that is described layer by layer. What is not its kind's means nothing.
  struct Layer {
    std::string kind = {};      ///< convolution, batch_norm, max_pooling, average_pooling,
                                ///< global_average_pooling, fully_connected, add, concat,
                                ///< dropout, activation
    std::string name = {};      ///< empty: its kind and number, counted from 1: convolution1
    std::string from = {};      ///< the earlier layer that it reads, or input; empty: the last one
    std::string residual = {};  ///< batch_norm: the earlier layer that is added; empty: none
    std::string with = {};      ///< add, concat: further layers that it reads; commas between them
    std::int64_t filters = 0;   ///< convolution
    std::int64_t outputs = 0;   ///< fully_connected
    std::int64_t kernel = 3;    ///< convolution: rows and columns
    std::int64_t window = 2;    ///< poolings: rows and columns
    std::int64_t stride = 0;    ///< 0: 1, or the window of a pooling
    std::int64_t padding = -1;  ///< on each side; -1: kernel / 2, and none of a pooling
    std::int64_t groups = 1;    ///< convolution: divides channels and filters
    double probability = 0.5;   ///< dropout
    std::string function = "relu";      ///< activation: relu, relu6
    bool bias = false;                  ///< convolution
    std::string activation = "auto";    ///< none, relu; auto: relu of batch_norm, else none
    std::string initial = "he_normal";  ///< convolution: he_normal, uniform_fan_in

    [[nodiscard]] bool operator==(const Layer&) const = default;
  };
  struct Model {
    std::string name = {};                 ///< one of model_names(), or custom
    std::vector<std::int64_t> input = {};  ///< custom: {height, width, channels}
    std::int64_t classes = 0;              ///< custom
    std::vector<Layer> layers = {};        ///< custom: in an order in which they can run
    std::filesystem::path weights = {};    ///< safetensors file to begin with; empty: drawn by seed
    /// Patterns (* any characters, ? any one) of parameters that are drawn by seed all the same.
    std::vector<std::string> skip = {};
  } model;
  struct Train {
    std::int64_t global_batch = 128;
    std::int64_t epochs = 1;
    std::int64_t max_steps = 0;  ///< stop after so many steps; 0: after `epochs`
    std::int64_t seed = 1;
    std::int64_t threads = 0;     ///< per rank; 0: the rank's share of the cores
    std::int64_t log_every = 50;  ///< steps between "step" events
    double label_smoothing = 0.0;
    std::int64_t accumulate = 1;    ///< micro-batches in which a rank computes its part of a batch
    std::int64_t memory_limit = 0;  ///< bytes that a rank's arrays may take; 0: any number
    /// The type of activations and packed weights.
    tensor::DataType precision = tensor::DataType::f32;
    /// How convolutions are computed in fp32.
    tensor::ConvolutionAlgorithm convolution = tensor::ConvolutionAlgorithm::fast;
    /// The type of gradients that are sent to be summed.
    tensor::DataType reduce_precision = tensor::DataType::f32;
  } train;
  /// Snapshots of a run, from which it can go on after an interruption: RUN/checkpoints/step-N.
  struct Checkpoint {
    std::int64_t every_steps = 0;   ///< 0: not after a number of steps
    std::int64_t every_epochs = 0;  ///< 0: not after a number of epochs
    std::int64_t keep = 2;          ///< so many of the newest ones
    bool best = false;              ///< also the one with the highest test accuracy

    /// Are any wanted, whether a signal asks for one or not?
    [[nodiscard]] bool wanted() const noexcept {
      return every_steps > 0 || every_epochs > 0 || best;
    }
  } checkpoint;
  struct Optimizer {
    OptimizerName name = OptimizerName::sgd;
    double learning_rate = 0.1;
    double momentum = 0.9;             ///< of sgd and lars
    bool nesterov = false;             ///< of sgd and lars
    double trust_coefficient = 0.001;  ///< of lars
    double weight_decay = 5e-4;
    bool decay_norm_and_bias = true;  ///< weight decay also of biases and of what batch norm learns
    double beta1 = 0.9;               ///< of adam and adamw, as the next two
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double clip_norm = 0.0;  ///< longer gradients are scaled down to it; 0: none are
    sync::Decay schedule = sync::Decay::cosine;
    double warmup_epochs = 0.0;
    double final_learning_rate = 0.0;           ///< of cosine and exponential
    std::vector<std::int64_t> milestones = {};  ///< of steps: epochs
    double factor = 0.1;                        ///< of steps: of the rate at each milestone
  } optimizer;
  struct Update {
    std::string scheme =
        "synchronous";  ///< synchronous, sharded, lazy, k_step, hierarchical, cyclic
    std::int64_t bucket_bytes = std::int64_t{256} * 1024;
    double warmup_epochs = -1.0;       ///< synchronous ones; -1: 1; for synchronous and cyclic 0
    std::string lazy_layers = "auto";  ///< lazy: auto, a count ("8") or a fraction ("0.5")
    std::int64_t max_interval = 16;    ///< lazy: of iterations; 0: no limit
    double max_interval_rate = 0.0;    ///< lazy: of iterations times learning rate; 0: no limit
    bool updates_per_iteration =
        false;  ///< lazy: momentum and decay once per iteration of a window
    sync::LazyController controller = sync::LazyController::probe;  ///< lazy
    std::int64_t period = 16;  ///< k_step, hierarchical: steps between global averages
    PeriodChoice period_policy = PeriodChoice::constant;
    double local_from_epoch = 0.0;    ///< of post_local: before, rounds have one step
    double qsr_alpha = 0.0;           ///< of qsr
    std::int64_t overlap_steps = 0;   ///< k_step, hierarchical: local ones before a mean is applied
    std::int64_t fragments = 1;       ///< k_step, hierarchical: parts with rounds of their own
    double reduction_momentum = 0.0;  ///< k_step, hierarchical, as the next three
    sync::MomentumKind reduction_momentum_kind = sync::MomentumKind::classical;
    OuterOptimizer outer_optimizer = OuterOptimizer::none;  ///< instead of the momentum's kinds
    /// Learning rate of global averages: of diloco, and of any outer_optimizer.
    double outer_rate = 1.0;
    sync::LocalState optimizer_state = sync::LocalState::keep;  ///< at an average
    std::int64_t local_period = 4;  ///< hierarchical: steps between averages of an averaging group
    std::int64_t group = 0;  ///< hierarchical: ranks of an averaging group; 0: those of a node
    std::map<std::int64_t, double> levels = {};  ///< hierarchical: more, {period = group}
    sync::Delay delay = sync::Delay::dynamic;    ///< cyclic
    sync::PushScaling scaling = sync::PushScaling::per_sample;  ///< cyclic
    bool local_step = false;         ///< cyclic: workers also step by themselves
    std::int64_t minibatch_cap = 0;  ///< cyclic: mini-batches of a push; 0: any number
    sync::WhenEmpty when_empty = sync::WhenEmpty::wait;  ///< cyclic
    std::filesystem::path replay = {};                   ///< cyclic: a recorded token trace
    std::string plugin = {};         ///< library with a scheme that takes the place of `scheme`
    TextTable plugin_settings = {};  ///< what it is told
  } update;
  /// How ranks share the work of a step. Replicas split the samples; the ranks of a replica,
  /// channel * filter * height * width of them, split what a layer does for the replica's samples.
  struct Grid {
    std::int64_t sample = 0;   ///< replicas; 0: what the other numbers leave
    std::int64_t channel = 1;  ///< of a replica's convolutions: parts of the channels
    std::int64_t filter = 1;   ///< parts of the filters
    std::int64_t height = 1;   ///< parts of the rows
    std::int64_t width = 1;    ///< parts of the columns
    /// Given: by these keys; automatic ("auto"): the planner chooses; chosen: by these keys, which
    /// the planner has chosen.
    PlanChoice plan = PlanChoice::given;
    BatchNormScope batch_norm = BatchNormScope::rank;  ///< who shares statistics
    /// Splits of layers by name: the first pattern that matches counts (* any characters, ? any
    /// one): "sample", "replica", or "height=A width=B channel=C filter=D", parts of 1 left out.
    TextTable layers = {};

    [[nodiscard]] bool operator==(const Grid&) const = default;
  } grid;
  struct Transport {
    transport::Waiting wait = transport::Waiting::automatic;
    double deadline_seconds = 300.0;
    double stall_warning_seconds = 10.0;
    std::int64_t small_bytes = 4096;
    std::string fabric =
        "auto";  ///< between nodes: auto, tcp, ucx[:TRANSPORTS], ofi[:PROVIDER], shm
    std::string interface = {};   ///< network interfaces, by preference
    std::int64_t fake_nodes = 0;  ///< count the ranks of this machine as so many nodes
    double latency_us = 0.0;      ///< injected into messages between nodes
    double bandwidth_gbs = 0.0;   ///< what nodes' links are slowed to, in 1e9 bytes/s; 0: nothing
    std::string allreduce = {};   ///< "rd:0-16k;rh:16k-1m;ring:1m-max"; empty: by the ranks
  } transport;
  struct Inject {
    std::map<std::int64_t, double> slow_ranks = {};  ///< {rank = how many times as slow}
  } inject;
};

/// Reads `file`, then applies `settings` ("section.key=value", value in TOML's syntax; a bare
/// word is taken as a string). Unknown keys, wrong types and impossible values throw ConfigError,
/// with the line and the nearest known key; so do values that do not go together.
[[nodiscard]] RONDO_TRAIN_API Experiment
read_experiment(const std::filesystem::path& file, const std::vector<std::string>& settings = {});

/// As read_experiment(), from text; `name` stands for the file's in messages.
[[nodiscard]] RONDO_TRAIN_API Experiment parse_experiment(
    std::string_view text, std::string_view name, const std::vector<std::string>& settings = {});

/// As these two, of what to_toml() wrote for a run: keys that have no effect are not refused, as
/// those that an older version let pass, or those whose choice a setting changes; nor are any
/// data.name and model.name, which may be of data and a model that a program brought.
[[nodiscard]] RONDO_TRAIN_API Experiment
read_recorded(const std::filesystem::path& file, const std::vector<std::string>& settings = {});
[[nodiscard]] RONDO_TRAIN_API Experiment parse_recorded(
    std::string_view text, std::string_view name, const std::vector<std::string>& settings = {});

/// The model of [model] for images of `images` (n is ignored; {}: the model's own default) and
/// `classes` (0: its default), as make_model(); a custom model takes no others than its own. Throws
/// std::invalid_argument.
[[nodiscard]] RONDO_TRAIN_API Model model_of(const Experiment& experiment,
                                             tensor::Shape images = {}, std::int64_t classes = 0);

/// Throws ConfigError that names the key if a run of `now` cannot go on from one of `then`, because
/// it trains something else: it may run longer, on another grid or other ranks, and log and store
/// differently.
RONDO_TRAIN_API void expect_same_training(const Experiment& then, const Experiment& now);

/// The name of the value of a key that chooses one of several: "sgd" of "optimizer.name".
[[nodiscard]] RONDO_TRAIN_API std::string chosen(const Experiment& experiment,
                                                 std::string_view key);
[[nodiscard]] RONDO_TRAIN_API std::string name_of(OptimizerName name);

/// All keys with their values, as a TOML file that reads back to the same Experiment.
[[nodiscard]] RONDO_TRAIN_API std::string to_toml(const Experiment& experiment);

}  // namespace rondo::train
