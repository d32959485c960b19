#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

#include <rondo/train/model.hpp>

#include "model/lenet.hpp"
#include "model/resnet_cifar.hpp"

namespace rondo::train {
namespace {

struct Entry {
  std::string_view name;
  tensor::Shape input;  // of one picture, unless the caller has another
  Model (*make)(tensor::Shape input, std::int64_t classes);
};

constexpr std::int64_t default_classes = 10;

constexpr std::array zoo{
    Entry{"lenet5", {1, 28, 28, 1}, &make_lenet5},
    Entry{"resnet20",
          {1, 32, 32, 3},
          [](tensor::Shape input, std::int64_t classes) {
            return make_resnet_cifar(3, input, classes);
          }},
};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : zoo) names.emplace_back(entry.name);
  return names;
}

Model make_model(std::string_view name, tensor::Shape input, std::int64_t classes) {
  std::string known;
  for (const Entry& entry : zoo) {
    if (entry.name == name) {
      const bool usual = input.with_n(0) == tensor::Shape{};
      Model model =
          entry.make(usual ? entry.input : input, classes == 0 ? default_classes : classes);
      (void)shapes_of(model, 1);  // refuses pictures that are too small
      return model;
    }
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw std::invalid_argument("no model is named \"" + std::string(name) +
                              "\"; there are: " + known);
}

}  // namespace rondo::train
