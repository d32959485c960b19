// Says what images show, with the weights that a run has left:
//
//   classify MODEL CLASSES WEIGHTS.safetensors IMAGE.pgm...
//
// Images are binary PGM or PPM of the model's size. Each is normalised by its own mean and
// deviation here; a program that knows those of the training data takes them instead.

#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/train/predictor.hpp>

using namespace rondo;

std::vector<float> read_image(const std::string& file, const tensor::Shape& shape) {
  std::ifstream stream(file, std::ios::binary);
  std::string kind;
  std::int64_t width = 0;
  std::int64_t height = 0;
  int most = 0;
  stream >> kind >> width >> height >> most;
  stream.get();
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  const bool fits = width == shape.w && height == shape.h && most == 255 &&
                    bytes.size() == static_cast<std::size_t>(shape.image());
  if (!fits) throw std::runtime_error(file + ": not an image of the model's size");
  std::vector<float> pixels;
  double sum = 0.0;
  double squares = 0.0;
  for (const char byte : bytes) {
    pixels.push_back(static_cast<float>(static_cast<unsigned char>(byte)) / 255.0F);
    sum += static_cast<double>(pixels.back());
    squares += static_cast<double>(pixels.back()) * static_cast<double>(pixels.back());
  }
  const double mean = sum / static_cast<double>(pixels.size());
  const double deviation = std::sqrt(squares / static_cast<double>(pixels.size()) - mean * mean);
  for (float& pixel : pixels) {
    pixel = (pixel - static_cast<float>(mean)) / static_cast<float>(deviation + 1e-6);
  }
  return pixels;
}

int main(int count, char** arguments) try {
  if (count < 5) throw std::invalid_argument("classify MODEL CLASSES WEIGHTS IMAGE...");
  const train::Model model = train::make_model(arguments[1], {}, std::atoll(arguments[2]));
  tensor::Engine engine;
  train::Predictor predictor(engine, train::load_trained(model, arguments[3]), 1);
  for (int i = 4; i < count; ++i) {
    const auto best = predictor.classes(read_image(arguments[i], model.input), 1);
    std::printf("%s: class %lld\n", arguments[i], static_cast<long long>(best.front()));
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "classify: %s\n", error.what());
  return 1;
}
