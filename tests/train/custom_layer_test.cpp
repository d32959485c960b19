// Kinds of layers and models that the library does not know.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/executor.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/transport/world.hpp>

#include "config/layer_list.hpp"
#include "layers/layer_type.hpp"
#include "model/described.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/sources.hpp"
#include "support/world.hpp"
#include "train/outcome.hpp"
#include "train/support/network.hpp"
#include "train/support/own_layer.hpp"
#include "trainer/prepare.hpp"

namespace rondo::train::custom_layer_test {
namespace {

using rondo::test::error_text;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StrEq;

// A kind of layer and a model that the library does not know, made here: it trains them, alone and
// split over ranks, and plans their splits.

// The layer: every value times a factor.
class ScaleKernel final : public OneForwardKernel {
 public:
  explicit ScaleKernel(float factor) : factor_(factor) {}
  void backward_parameters(const BackwardOperands& /*operands*/) override {}
  void backward_input(const BackwardOperands& operands) override {
    if (operands.dx.data != nullptr) scale(operands.dy.as<float>(), operands.dx.as<float>());
  }

 private:
  void forward(const ForwardOperands& operands) override {
    scale(operands.x.as<float>(), operands.y.as<float>());
  }
  void scale(tensor::View<const float> from, tensor::View<float> into) const {
    std::transform(from.data, from.data + from.shape.size(), into.data,
                   [this](float value) { return factor_ * value; });
  }

  float factor_;
};

test::OwnLayer scale_by(float factor) {
  return {.text = "scale " + std::to_string(factor),
          .kernel = [=](auto&, auto&) { return std::make_unique<ScaleKernel>(factor); }};
}

// The model.
template <bool scales>
Model make_toy(tensor::Shape input, std::int64_t classes) {
  ModelBuilder builder("toy", input, classes);
  ValueId x = builder.add("conv", ConvolutionLayer{.filters = 4}, ModelBuilder::input);
  if (scales) x = builder.add("scale", scale_by(2.0F), x);
  builder.add("fc", FullyConnectedLayer{.outputs = classes}, x);
  return builder.finish();
}

constexpr ModelEntry scaled{"scaled", {1, 8, 8, 2}, 3, &make_toy<true>};
constexpr ModelEntry plain{"plain", {1, 8, 8, 2}, 3, &make_toy<false>};
constexpr std::int64_t images = 4;

test::Network network(const ModelEntry& entry) {
  return {make_model(entry), {.training_batches = {images}}};
}

// Images of twice the value, in a model without the layer, give the same bits.
TEST(CustomLayerTest, TrainsAsWhatItComputes) {
  test::Network with = network(scaled);
  test::Network without = network(plain);
  const test::Samples samples = test::make_samples(with.model, images);
  test::Samples doubled = samples;
  for (float& value : doubled.images) value *= 2.0F;
  const tensor::Loss loss = with.train(samples.batch());
  EXPECT_EQ(loss.sum, without.train(doubled.batch()).sum);
  EXPECT_EQ(with.gradients, without.gradients);
}

// Where no channels are cut a rank holds all of a layer's parameters, whatever their shapes.
TEST(CustomLayerTest, ParametersThatAreNotOfChannelsAreCutByNoGrid) {
  ModelBuilder builder("sloped", {1, 8, 8, 2}, 3);
  const ValueId x = builder.add("conv", ConvolutionLayer{.filters = 4}, ModelBuilder::input);
  // One number for all channels.
  const test::OwnLayer slope{
      .learned = {{.name = "weight", .shape = {1}, .initial = Initial::ones}}};
  builder.add("fc", FullyConnectedLayer{.outputs = 3}, builder.add("slope", slope, x));
  const Model model = builder.finish();

  const std::vector<LayerSplit> rows = {{.kind = SplitKind::space, .h = 2}, {}, {}};
  const ParameterLayout layout = layout_of(model, rows, 2, 1);
  EXPECT_EQ(layout.parameter_count, layout_of(model).parameter_count);

  const std::vector<LayerSplit> filters = {
      {.kind = SplitKind::channel, .channels = {.channels = 1, .filters = 2}}, {}, {}};
  EXPECT_THAT(error_text<std::invalid_argument>(
                  [&] { static_cast<void>(layout_of(model, filters, 2, 1)); }),
              HasSubstr("parameter \"slope.weight\" cannot be cut"));
}

TEST(CustomLayerTest, FollowsTheLayoutOfItsInputOnAGrid) {
  const Model model = make_model(scaled);
  test::Network whole = network(scaled);
  const test::Samples samples = test::make_samples(model, images);
  const double expected = whole.train(samples.batch()).sum;
  const std::vector<LayerSplit> splits = {{.kind = SplitKind::space, .h = 2}, {}, {}};

  rondo::test::World(2).run([&](transport::World& world) {
    const ParameterLayout layout = layout_of(model, splits, 2, world.rank());
    std::vector<float> parameters(layout.parameter_count);
    std::vector<float> gradients(layout.parameter_count);
    std::ranges::copy(whole.parameters, parameters.begin());
    tensor::Engine engine;
    Executor executor(
        engine, model,
        {.replica = &world.communicator(), .splits = splits, .memory = &world.arena()},
        {parameters, gradients, {}}, {.training_batches = {images}});
    test::Silent silent;

    double sum = executor.train(samples.batch(), silent).sum;
    world.communicator().allreduce(std::span(&sum, 1)).wait();

    EXPECT_NEAR(sum, expected, 1e-5 * expected);
  });
}

TEST(CustomLayerTest, ThePlannerFindsAUsablePlan) {
  const std::vector<BestPlan> plans =
      best_plans(make_model(scaled), {.ranks = 4, .batch = 8}, FlopRate(1e9));
  ASSERT_FALSE(plans.empty());
  EXPECT_EQ(plans.front().refused, "");
  EXPECT_EQ(work_of(make_model(scaled), {.ranks = 4, .batch = 8}, plans.front()).size(), 3U);
}

// The compiler cannot check this for a new kind of layer: the configuration can describe it, and no
// source asks for single kinds, which would let a new one pass unseen.

/// A model whose first layer is of that kind.
Model model_with(const std::string& kind) {
  const bool several = kind == "add" || kind == "concat";
  return make_described_model(
      {.name = "custom",
       .input = {8, 8, 2},
       .classes = 3,
       .layers = {{.kind = kind, .with = several ? "input" : "", .filters = 4, .outputs = 5},
                  {.kind = "fully_connected", .outputs = 3}}});
}

TEST(LayerKindsTest, EveryKindCanBeDescribedInTheConfiguration) {
  std::set<std::string> described;
  for (const std::string& kind : layer_keys().front().limits.names) {
    described.insert(model_with(kind).layers.front().kind->text());
  }
  EXPECT_EQ(described.size(), described_kinds().size());
}

/// The single kinds that a text asks for, where all others would go the same way.
std::vector<std::string> single_kinds_in(const std::string& text) {
  static const std::regex question(R"(get_if<\w*Layer>|is_same_v<\w+, *\w*Layer>)");
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), question), end; match != end; ++match) {
    found.push_back(match->str());
  }
  return found;
}

TEST(LayerKindsTest, NoSourceAsksForASingleKind) {
  ASSERT_EQ(single_kinds_in("kind.get_if<BatchNormLayer>()").size(), 1U);
  int sources = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::filesystem::path(rondo::test::sources()) / "train" / "src")) {
    if (!entry.is_regular_file()) continue;
    EXPECT_THAT(single_kinds_in(rondo::test::contents(entry.path())), testing::IsEmpty())
        << entry.path();
    ++sources;
  }
  EXPECT_GT(sources, 50);
}

// Models that the configuration describes layer by layer.

constexpr std::string_view head =
    "[data]\nname = 'synthetic'\ntraining = 20\ntest = 10\n"
    "[model]\nname = 'custom'\ninput = [8, 8, 2]\nclasses = 3\n";
constexpr std::string_view classifier =
    "[[model.layers]]\nkind = 'fully_connected'\nname = 'fc'\noutputs = 3\n";

// The head, then `layers`, whose first line is line 9.
Experiment parse(const std::string& layers) {
  return parse_experiment(std::string(head) + layers, "exp.toml");
}

std::string error(const std::string& layers) {
  return error_text<ConfigError>([&] { return parse(layers); });
}

std::string layer(const std::string& keys) { return "[[model.layers]]\n" + keys + "\n"; }

void expect_equal_layouts(const ParameterLayout& a, const ParameterLayout& b) {
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (std::size_t i = 0; i < a.parameters.size(); ++i) {
    EXPECT_EQ(a.parameters[i].name, b.parameters[i].name);
    EXPECT_EQ(a.parameters[i].shape, b.parameters[i].shape);
    EXPECT_EQ(a.parameters[i].initial, b.parameters[i].initial);
  }
}

TEST(CustomModelTest, DescribesLenet) {
  const std::string first = "bias=true, activation='relu', initial='uniform_fan_in'";
  const std::string layers =
      "{name='conv1', kind='convolution', filters=6, kernel=5, " + first + "}," +
      "{name='pool1', kind='max_pooling'}," +
      "{name='conv2', kind='convolution', filters=16, kernel=5, padding=0, " + first + "}," +
      "{name='pool2', kind='max_pooling', window=2, stride=2}," +
      "{name='fc1', kind='fully_connected', outputs=120, activation='relu'}," +
      "{name='fc2', kind='fully_connected', outputs=84, activation='relu'}," +
      "{name='fc3', kind='fully_connected', outputs=10}";

  const Model model = model_of(
      parse_experiment("", "e",
                       {"data.name=synthetic", "model.name=custom", "model.input=[28, 28, 1]",
                        "model.classes=10", "model.layers=[" + layers + "]"}));

  const Model lenet = make_model("lenet5");
  EXPECT_EQ(shapes_of(model, 3), shapes_of(lenet, 3));
  expect_equal_layouts(layout_of(model), layout_of(lenet));
}

TEST(CustomModelTest, LayersReadTheOneBeforeOrTheOneThatTheyName) {
  const Model model = model_of(parse(
      layer("kind = 'convolution'\nfilters = 2") + layer("kind = 'batch_norm'\nname = 'left'") +
      layer("kind = 'convolution'\nfilters = 2\nkernel = 1\nfrom = 'input'") +
      layer("kind = 'batch_norm'\nresidual = 'left'") + std::string(classifier)));

  EXPECT_THAT(model.layers[0].inputs, ElementsAre(0));
  EXPECT_THAT(model.layers[1].inputs, ElementsAre(1));
  EXPECT_THAT(model.layers[2].inputs, ElementsAre(0));
  EXPECT_THAT(model.layers[3].inputs, ElementsAre(3, 2));
  EXPECT_EQ(model.layers[0].name, "convolution1");
  EXPECT_EQ(model.layers[3].name, "batch_norm4");
}

TEST(CustomModelTest, EveryKindHasItsDefaults) {
  const Model model =
      model_of(parse(layer("kind = 'convolution'\nfilters = 4\nkernel = 5") +
                     layer("kind = 'average_pooling'\nwindow = 3") + layer("kind = 'batch_norm'") +
                     layer("kind = 'global_average_pooling'") + std::string(classifier)));

  EXPECT_THAT(
      shapes_of(model, 1),
      ElementsAre(tensor::Shape{1, 8, 8, 2}, tensor::Shape{1, 8, 8, 4}, tensor::Shape{1, 2, 2, 4},
                  tensor::Shape{1, 2, 2, 4}, tensor::Shape{1, 1, 1, 4}, tensor::Shape{1, 1, 1, 3}));
  const auto& pooling = (*model.layers[1].kind.get_if<PoolingLayer>());
  EXPECT_EQ(pooling.kind, tensor::PoolingKind::average);
  EXPECT_EQ((*model.layers[2].kind.get_if<BatchNormLayer>()).activation, tensor::Activation::relu);
  EXPECT_EQ((*model.layers[4].kind.get_if<FullyConnectedLayer>()).activation,
            tensor::Activation::none);
}

TEST(CustomModelTest, AnIntegerIsANumber) {
  const Model model =
      model_of(parse(layer("kind = 'dropout'\nprobability = 0") + std::string(classifier)));

  EXPECT_EQ(model.layers[0].kind.get_if<DropoutLayer>()->probability, 0.0);
}

TEST(CustomModelTest, DescribesLayersWithSeveralInputsGroupsAndDropout) {
  const Model model =
      model_of(parse(layer("kind = 'convolution'\nname = 'a'\nfilters = 4\ngroups = 2") +
                     layer("kind = 'activation'\nname = 'b'\nfunction = 'relu6'") +
                     layer("kind = 'add'\nname = 'sum'\nwith = 'a'\nactivation = 'relu'") +
                     layer("kind = 'concat'\nwith = 'a, input ,b'") +
                     layer("kind = 'dropout'\nprobability = 0.25") + std::string(classifier)));

  EXPECT_EQ(model.layers[0].kind.get_if<ConvolutionLayer>()->groups, 2);
  EXPECT_EQ(model.layers[1].kind.get_if<ActivationLayer>()->function, Function::relu6);
  EXPECT_THAT(model.layers[2].inputs, ElementsAre(2, 1));
  EXPECT_EQ(model.layers[2].kind.get_if<AddLayer>()->activation, tensor::Activation::relu);
  EXPECT_THAT(model.layers[3].inputs, ElementsAre(3, 1, 0, 2));
  EXPECT_EQ(shapes_of(model, 1)[4].c, 4 + 4 + 2 + 4);
  EXPECT_EQ(model.layers[4].kind.get_if<DropoutLayer>()->probability, 0.25);
}

TEST(CustomModelTest, IsWrittenAsItIsRead) {
  const Experiment experiment =
      parse(layer("kind = 'convolution'\nname = \"a \\\"b\\\"\"\nfilters = 4\nbias = true") +
            layer("kind = 'max_pooling'\nstride = 1\npadding = 1") + std::string(classifier));

  const Experiment again = parse_experiment(to_toml(experiment), "again");

  EXPECT_EQ(again.model.layers, experiment.model.layers);
  EXPECT_THAT(to_toml(experiment),
              HasSubstr("layers = [\n  {kind = \"convolution\", name = \"a \\\"b\\\"\", "
                        "filters = 4, bias = true},\n  {kind = \"max_pooling\", stride = 1, "
                        "padding = 1},\n"));
}

TEST(CustomModelTest, NamesTheLineAndTheLayerThatIsWrong) {
  const std::string fc(classifier);
  const std::string half = layer("kind = 'convolution'\nfilters = 4\nstride = 2");
  const std::pair<std::string, std::string> mistakes[] = {
      // Keys and their values.
      {layer("kind = 'convolution'\nname = 'c'\nfiltres = 3"),
       "exp.toml:12: model.layers: layer 1 (c): unknown key 'filtres'; did you mean 'filters'?"},
      {fc + layer("kind = 'max_pooling'\nfilters = 3"),
       "exp.toml:15: model.layers: layer 2: a layer of kind \"max_pooling\" has no 'filters'; "
       "choose one of kind, name, from, window, stride, padding"},
      {layer("kind = 'convolutoin'"),
       "exp.toml:10: model.layers: layer 1: kind: no such choice 'convolutoin'; did you mean "
       "'convolution'?"},
      {layer("kind = 'convolution'\nfilters = '3'"),
       "exp.toml:11: model.layers: layer 1: filters: expected an integer, found a string"},
      {layer("kind = 'convolution'\nfilters = 0"),
       "exp.toml:11: model.layers: layer 1: filters: 0 is impossible"},
      {fc + layer("name = 'x'"),
       "exp.toml:13: model.layers: layer 2 (x): missing key 'kind'; set it to one of convolution, "
       "batch_norm"},
      {layer("kind = 'fully_connected'"),
       "exp.toml:9: model.layers: layer 1: missing key 'outputs'"},
      // Layers that do not fit.
      {layer("kind = 'max_pooling'\nwindow = 9") + fc,
       "exp.toml:9: model.layers: layer max_pooling1: its window is larger than its input of "
       "8x8x2"},
      {layer("kind = 'batch_norm'\nresidual = 'cf'") + fc,
       "exp.toml:9: model.layers: layer batch_norm1: no layer before it is named \"cf\"; choose "
       "one of input"},
      {fc + fc,
       "exp.toml:13: model.layers: layer fc: there is another of that name; give each a name of "
       "its own"},
      {layer("kind = 'fully_connected'\noutputs = 4"),
       "exp.toml:9: model.layers: layer fully_connected1: gives 1x1x4, and the model custom needs "
       "one logit for each of its 3 classes"},
      {half + layer("kind = 'add'\nwith = 'input'") + fc, "layer add2: adds 8x8x2 to 4x4x4"},
      {half + layer("kind = 'concat'\nwith = 'input'") + fc,
       "layer concat2: cannot join 8x8x2 to 4x4x4"},
      {half + layer("kind = 'concat'\nwith = ','") + fc,
       "layer concat2: has 1 inputs and needs at least 2"},
      {layer("kind = 'convolution'\nfilters = 4\ngroups = 3"),
       "layer convolution1: 3 groups do not divide 2 channels and 4 filters"},
  };
  for (const auto& [layers, answer] : mistakes) {
    EXPECT_THAT(error(layers), HasSubstr(answer)) << layers;
  }
}

TEST(CustomModelTest, NeedsItsInputClassesAndLayers) {
  const auto answer = [](const std::string& keys) {
    return error_text<ConfigError>([&] {
      return parse_experiment("[data]\nname='synthetic'\n[model]\nname='custom'\n" + keys, "e");
    });
  };

  EXPECT_THAT(answer(""), StrEq("e: model.input: a custom model needs [height, width, channels]"));
  EXPECT_THAT(answer("input=[1,1,1]\n"), HasSubstr("e: model.classes: a custom model needs"));
  EXPECT_THAT(answer("input=[1,1,1]\nclasses=2\n"), HasSubstr("e: model.layers: a custom model"));
  EXPECT_THAT(answer("layers=[1]\n"), StrEq("e:5: model.layers: expected an array of tables, found "
                                            "an array"));
}

TEST(CustomModelTest, OtherModelsRefuseItsKeys) {
  EXPECT_THAT(error_text<ConfigError>([] {
                return parse_experiment(std::string(head) + std::string(classifier), "e",
                                        {"model.name=lenet5"});
              }),
              HasSubstr("has no effect with model.name = \"lenet5\""));
}

TEST(CustomModelTest, SyntheticImagesTakeItsShape) {
  EXPECT_EQ(load_run(parse(std::string(classifier))).dataset->training.shape,
            (tensor::Shape{20, 8, 8, 2}));
}

TEST(CustomModelTest, RefusesImagesOfAnotherShape) {
  Experiment experiment = parse(std::string(classifier));
  experiment.data.shape = {8, 9, 2};
  EXPECT_THAT(error_text<ConfigError>([&] { return load_run(experiment).model; }),
              StrEq("model.input: the model is described for images of 8x8x2, and those of the "
                    "data are 8x9x2"));
}

// The images have ten classes, so that a tenth is what guessing gets right.
TEST(CustomModelTest, TheExampleLearns) {
  const Experiment experiment =
      read_experiment(rondo::test::sources() / "examples" / "custom-model.toml",
                      {"data.training=1000", "data.test=200", "train.epochs=3"});
  const test::Outcome outcome = test::train_on(2, experiment);
  EXPECT_GT(outcome.metrics[0].accuracy, 30.0);
  EXPECT_EQ(outcome.parameters[0], outcome.parameters[1]);
}

}  // namespace
}  // namespace rondo::train::custom_layer_test
