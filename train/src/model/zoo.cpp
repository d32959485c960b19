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

template <std::int64_t blocks>
Model resnet(tensor::Shape input, std::int64_t classes) {
  return make_resnet_cifar(blocks, input, classes);
}

constexpr tensor::Shape mnist{1, 28, 28, 1};
constexpr tensor::Shape cifar{1, 32, 32, 3};

constexpr std::array zoo{
    Entry{"lenet5", mnist, &make_lenet5}, Entry{"resnet8", cifar, &resnet<1>},
    Entry{"resnet20", cifar, &resnet<3>}, Entry{"resnet32", cifar, &resnet<5>},
    Entry{"resnet56", cifar, &resnet<9>}, Entry{"resnet110", cifar, &resnet<18>},
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
