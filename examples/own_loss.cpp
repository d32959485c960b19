// A loss of one's own, written with xtensor, and a look at what a network has learned:
//
//   rondo run -n 2 -- own_loss RUN_FOLDER
//
// The focal loss counts images that are recognised already for less: -(1 - p)^2 log p, where p is
// the probability of the label (Lin and others, "Focal loss for dense object detection", 2017).

#include <cstdio>
#include <filesystem>
#include <functional>

#include <rondo/train/predictor.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/train/xview.hpp>
#include <rondo/transport/world.hpp>

using namespace rondo;
using namespace rondo::train;

using Matrix = xt::xtensor<float, 2>;

Matrix softmax(const Matrix& logits) {
  const Matrix powers = xt::exp(logits - xt::eval(xt::amax(logits, {1}, xt::keep_dims)));
  return powers / xt::eval(xt::sum(powers, {1}, xt::keep_dims));
}

// Gradient: with f = 2 p (1 - p) log p - (1 - p)^2, of logit k it is f (1 - p) for the label and
// -f p_k for another class.
tensor::Loss focal_loss(const LossOperands& operands) {
  const Matrix logits = tensor::xmatrix(operands.logits);
  const auto labels = tensor::xmatrix(operands.labels, operands.logits.shape.n);
  const Matrix all = softmax(logits);
  const auto classes = static_cast<std::int32_t>(operands.logits.shape.c);
  const Matrix is_label = xt::cast<float>(xt::equal(labels, xt::arange<std::int32_t>(classes)));
  const Matrix p = xt::sum(is_label * all, {1}, xt::keep_dims);
  if (operands.gradient.data != nullptr) {
    const Matrix factor = 2.0F * p * (1.0F - p) * xt::log(p) - xt::square(1.0F - p);
    tensor::xmatrix(operands.gradient) = factor * (is_label - all);
  }
  const Matrix most = xt::amax(all, {1}, xt::keep_dims);
  return {.sum = xt::sum<double>(-xt::square(1.0F - p) * xt::log(p))(),
          .correct = static_cast<std::int64_t>(xt::count_nonzero(xt::equal(p, most))())};
}

// The mean of the absolute weights of each layer that has some, and the probability of its class
// for each image of a batch: here what noise is taken for.
void look_at(const std::filesystem::path& weights, const Model& model) {
  const TrainedModel trained = load_trained(model, weights);
  for (const Parameter& parameter : layout_of(model).parameters) {
    if (parameter.shape.size() < 2) continue;
    const auto values = xview(parameter, std::span<const float>(trained.parameters));
    std::printf("%-20s %.4f\n", parameter.name.c_str(), xt::mean(xt::abs(values))());
  }
  tensor::Engine engine;
  Predictor predictor(engine, trained, 4);
  const std::vector<float> images(static_cast<std::size_t>(model.input.with_n(4).size()), 0.5F);
  const Matrix all = softmax(tensor::xmatrix(predictor.logits(images, 4), 4));
  for (const float most : xt::eval(xt::amax(all, {1}))) std::printf("probability %.2f\n", most);
}

int main(int count, char** arguments) {
  if (count != 2) return std::fprintf(stderr, "own_loss RUN_FOLDER\n"), 2;
  auto world = transport::World::attach();
  Experiment experiment;
  experiment.data.name = "synthetic";
  experiment.model.name = "lenet5";
  experiment.train.global_batch = 32;
  experiment.train.epochs = 2;
  experiment.optimizer.learning_rate = 0.05;
  const std::filesystem::path folder = arguments[1];
  const EpochMetrics last =
      rondo::train::train(world, experiment, {.loss = focal_loss, .run_folder = folder});
  if (world.rank() != 0) return 0;
  std::printf("accuracy %.1f %%, focal loss %.4f\n", last.accuracy, last.test_loss);
  look_at(folder / "model.safetensors", make_model("lenet5", {}, 10));
  return last.accuracy > 90.0 ? 0 : 1;
}
