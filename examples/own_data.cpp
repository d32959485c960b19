// Images, an augmentation and an observer of one's own:
//
//   rondo run -n 2 -- own_data [RUN_FOLDER]
//
// The images are stripes, upright in class 0 and level in class 1. With a folder, rank 0 leaves
// metrics.jsonl and model.safetensors there; classify.cpp takes the latter.

#include <cstdio>

#include <rondo/tensor/xview.hpp>
#include <rondo/train/loader.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

using namespace rondo;
using namespace rondo::train;

Images stripes(int count, int shift) {
  Images images{.shape = {count, 28, 28, 1}};
  for (int i = 0; i < count; ++i) {
    images.labels.push_back(i % 2);
    for (int y = 0; y < 28; ++y) {
      for (int x = 0; x < 28; ++x) {
        const int along = (i % 2 == 0 ? x : y) + i + shift;
        images.pixels.push_back(along % 7 < 3 ? 220 : 30);
      }
    }
  }
  return images;
}

// Half of the images become negatives.
Augmentation negative() {
  return {.name = "negative", .apply = [](tensor::View<std::uint8_t> image, SampleRandom& random) {
            if (random.below(2) == 0) return;
            auto pixels = tensor::xview(image);
            pixels = xt::cast<std::uint8_t>(255 - pixels);
          }};
}

int main(int count, char** arguments) {
  auto world = transport::World::attach();
  const Dataset data{.name = "stripes",
                     .classes = 2,
                     .training = stripes(512, 0),
                     .test = stripes(128, 3),
                     .mean = {0.43F},
                     .stddev = {0.37F}};
  Experiment experiment;
  experiment.model.name = "lenet5";
  experiment.train.global_batch = 32;
  experiment.train.epochs = 2;
  experiment.optimizer.learning_rate = 0.02;
  TrainerObserver observer{.on_epoch = [](const EpochMetrics& epoch) {
    std::printf("epoch %lld: accuracy %.1f %%\n", static_cast<long long>(epoch.epoch),
                epoch.accuracy);
  }};
  int steps = 0;
  const EpochMetrics last = rondo::train::train(world, experiment,
                                                {.dataset = &data,
                                                 .augmentations = {negative()},
                                                 .run_folder = count > 1 ? arguments[1] : "",
                                                 .observer = observer,
                                                 .on_step = [&] { ++steps; }});
  if (world.rank() == 0) std::printf("%d steps\n", steps);
  return last.accuracy > 90.0 ? 0 : 1;
}
