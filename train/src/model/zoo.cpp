#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

#include <rondo/train/model.hpp>

#include "model/alexnet.hpp"
#include "model/lenet.hpp"
#include "model/resnet_cifar.hpp"
#include "model/resnet_imagenet.hpp"
#include "model/vgg.hpp"

namespace rondo::train {
namespace {

// What a model is made for, unless the caller says otherwise.
struct Usual {
  tensor::Shape input;
  std::int64_t classes;
};
constexpr Usual mnist{{1, 28, 28, 1}, 10};
constexpr Usual cifar{{1, 32, 32, 3}, 10};
constexpr Usual imagenet{{1, 224, 224, 3}, 1000};
constexpr Usual imagenet_2012{{1, 227, 227, 3}, 1000};

struct Entry {
  std::string_view name;
  Usual usual;
  Model (*make)(tensor::Shape input, std::int64_t classes);
};

template <std::int64_t blocks>
Model resnet(tensor::Shape input, std::int64_t classes) {
  return make_resnet_cifar(blocks, input, classes);
}

constexpr std::array zoo{
    Entry{"lenet5", mnist, &make_lenet5},
    Entry{"resnet8", cifar, &resnet<1>},
    Entry{"resnet20", cifar, &resnet<3>},
    Entry{"resnet32", cifar, &resnet<5>},
    Entry{"resnet56", cifar, &resnet<9>},
    Entry{"resnet110", cifar, &resnet<18>},
    Entry{"alexnet", imagenet, &make_alexnet},
    Entry{"alexnet-2012", imagenet_2012, &make_alexnet_2012},
    Entry{"vgg11", imagenet, &make_vgg11},
    Entry{"vgg11_bn", imagenet, &make_vgg11_bn},
    Entry{"vgg16", imagenet, &make_vgg16},
    Entry{"vgg16_bn", imagenet, &make_vgg16_bn},
    Entry{"resnet18", imagenet, &make_resnet18},
    Entry{"resnet34", imagenet, &make_resnet34},
    Entry{"resnet50", imagenet, &make_resnet50},
    Entry{"wide_resnet50_2", imagenet, &make_wide_resnet50_2},
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
      Model model = entry.make(usual ? entry.usual.input : input,
                               classes == 0 ? entry.usual.classes : classes);
      (void)shapes_of(model, 1);  // refuses pictures that are too small
      return model;
    }
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw std::invalid_argument("no model is named \"" + std::string(name) +
                              "\"; there are: " + known);
}

}  // namespace rondo::train
