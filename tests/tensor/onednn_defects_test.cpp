// The kernels of oneDNN that compute wrong results: every row of the table is shown where this
// release and this CPU have the kernel, and is gone elsewhere. And the test of a kernel that stands
// in for the table in releases that nobody has tried.

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/pooling.hpp>

#include "data.hpp"
#include "guarded_array.hpp"
#include "onednn_calls.hpp"
#include "onednn_kernel.hpp"
#include "onednn_self_test.hpp"
#include "reorder.hpp"

namespace rondo::tensor::onednn_defects_test {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using onednn::Defect;
using onednn::Pass;
using test::square;

/// A kernel's name, and whether it computes what it should.
struct Trial {
  std::string kernel;
  bool correct;
};

/// Tries all kernels that oneDNN has for one pass of a convolution, but for its reference kernel.
class Kernels {
 public:
  explicit Kernels(const ConvolutionSpec& spec)
      : spec_(spec),
        x_(activation_layout(spec.input, spec.type)),
        y_(activation_layout(spec.output(), spec.type)),
        weights_(shape(), onednn_type(spec.type), memory::format_tag::any),
        gradient_(shape(), memory::data_type::f32, memory::format_tag::any) {
    if (spec.bias) bias_ = {{spec.filters}, memory::data_type::f32, memory::format_tag::x};
  }

  /// As if the convolution were `checked`.
  std::vector<Trial> try_all(Pass pass, const ConvolutionSpec& checked) {
    std::vector<Trial> trials;
    const auto note = [&](const dnnl::primitive_desc_base& kernel) {
      if (is_reference(kernel)) return true;
      trials.push_back({kernel.impl_info_str(),
                        onednn::computes_correctly(engine_.impl(), pass, kernel, checked)});
      return false;  // and on to the next one
    };
    make(pass, note);
    return trials;
  }
  std::vector<Trial> try_all(Pass pass) { return try_all(pass, spec_); }

 private:
  [[nodiscard]] memory::dims shape() const {
    if (spec_.groups == 1) return {spec_.filters, spec_.input.c, spec_.kernel_h, spec_.kernel_w};
    return {spec_.groups, spec_.filters / spec_.groups, spec_.input.c / spec_.groups,
            spec_.kernel_h, spec_.kernel_w};
  }

  template <typename Note>
  void make(Pass pass, const Note& note) {
    const memory::dims strides{spec_.stride, spec_.stride};
    const memory::dims before{spec_.pad_top, spec_.pad_left};
    const memory::dims after{spec_.pad_bottom, spec_.pad_right};
    const auto attributes = scratchpad_attributes();
    const onednn::Setting on{engine_.impl().cpu(), attributes};
    const auto forward = [&](const auto& accept) {
      return onednn::forward_kernel<dnnl::convolution_forward>(
          on, accept, dnnl::prop_kind::forward_training, algorithm::convolution_direct, x_,
          weights_, bias_, y_, strides, before, after);
    };
    if (pass == Pass::forward) return static_cast<void>(forward(note));
    const auto hint = forward([](const auto&) { return true; });
    if (pass == Pass::backward_data) {
      static_cast<void>(onednn::backward_kernel<dnnl::convolution_backward_data>(
          on, hint, note, algorithm::convolution_direct, x_, weights_, y_, strides, before, after));
    } else {
      static_cast<void>(onednn::backward_kernel<dnnl::convolution_backward_weights>(
          on, hint, note, algorithm::convolution_direct, x_, gradient_, bias_, y_, strides, before,
          after));
    }
  }

  ConvolutionSpec spec_;
  Engine engine_;
  memory::desc x_, y_, weights_, gradient_, bias_;
};

/// The word before a kernel's name in Convolution::implementation().
std::string role(Pass pass) {
  return pass == Pass::forward ? "forward " : pass == Pass::backward_data ? "data " : "weights ";
}

class DefectTest : public testing::TestWithParam<Defect> {};

TEST_P(DefectTest, IsThereInTheReleasesThatHaveItAndNowhereElse) {
  const Defect& defect = GetParam();
  if (defect.example.type == DataType::bf16 && !computes_bf16()) GTEST_SKIP() << "needs bf16";
  const onednn::Version release = onednn::version();
  const bool has_it = defect.first <= release && release <= defect.last;
  if (defect.kind != Defect::Kind::wrong) {
    // A test measures no times; kernels-in-turn does. A layer gets another kernel.
    Engine engine;
    const std::string kernels = Convolution(engine, defect.example).implementation();
    const std::string name = role(defect.pass) + std::string(defect.kernel);
    if (has_it) {
      EXPECT_EQ(kernels.find(name), std::string::npos) << kernels;
    }
    return;
  }
  bool found = false;
  for (const Trial& trial : Kernels(defect.example).try_all(defect.pass)) {
    const bool listed = trial.kernel.starts_with(defect.kernel);
    found = found || listed;
    EXPECT_EQ(trial.correct, !(has_it && listed)) << trial.kernel << " " << defect.effect;
  }
  if (has_it && !found) GTEST_SKIP() << "this CPU runs no " << defect.kernel;
}

INSTANTIATE_TEST_SUITE_P(Known, DefectTest,
                         testing::ValuesIn(onednn::defects().begin(), onednn::defects().end()),
                         [](const auto& defect) {
                           std::string name = role(defect.param.pass);
                           name += defect.param.kernel;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

TEST(DefectTableTest, AppliesToItsReleasesAndToThoseThatNobodyHasTried) {
  for (const Defect& defect : onednn::defects()) {
    const auto found = [&](onednn::Version release) {
      return onednn::defect_of(defect.pass, std::string(defect.kernel) + "avx", defect.example,
                               release) != nullptr;
    };
    EXPECT_TRUE(found(defect.first));
    EXPECT_TRUE(found(defect.last));
    EXPECT_TRUE(found({9, 9}));
    EXPECT_EQ(found({2, 6}), defect.first == onednn::Version(2, 6));
  }
}

// As in a release that nobody has tried: each kernel that layers may get is run once.
class SelfTest : public testing::TestWithParam<ConvolutionSpec> {};

TEST_P(SelfTest, AcceptsSoundKernelsAndRefusesThoseOfAnotherConvolution) {
  ConvolutionSpec spec = GetParam();
  if (spec.type == DataType::bf16 && !computes_bf16()) GTEST_SKIP() << "needs bf16";
  // The same arrays, read one column and one row further on.
  ConvolutionSpec other = spec;
  ++other.pad_left;
  --other.pad_right;
  ++other.pad_top;
  --other.pad_bottom;
  for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
    for (const Trial& trial : Kernels(spec).try_all(pass)) {
      if (onednn::defect_of(pass, trial.kernel, spec) != nullptr) continue;
      EXPECT_TRUE(trial.correct) << trial.kernel;
    }
    for (const Trial& trial : Kernels(spec).try_all(pass, other)) {
      EXPECT_FALSE(trial.correct) << trial.kernel;
    }
  }
}

std::vector<ConvolutionSpec> layers(DataType type) {
  std::vector<ConvolutionSpec> specs{square(2, 8, 16, 32, 3, 1, 1),  square(3, 14, 6, 16, 5, 1, 2),
                                     square(2, 16, 64, 64, 3, 2, 1), square(2, 56, 16, 24, 1, 1, 0),
                                     square(4, 30, 3, 64, 7, 2, 3),  square(2, 9, 20, 18, 3, 2, 1),
                                     square(2, 12, 48, 48, 3, 1, 1)};
  specs[0].bias = true;
  specs[6].groups = 48;
  for (ConvolutionSpec& spec : specs) spec.type = type;
  return specs;
}

INSTANTIATE_TEST_SUITE_P(Layers, SelfTest, testing::ValuesIn(layers(DataType::f32)));
INSTANTIATE_TEST_SUITE_P(LayersInBf16, SelfTest, testing::ValuesIn(layers(DataType::bf16)));

TEST(SelfTestPlacesTest, AreElementsOfTheResult) {
  for (const std::int64_t row : {1, 2, 3, 7, 16}) {
    for (const std::int64_t rows : {1, 50, 1152}) {
      for (const std::int64_t place : onednn::compared_elements(row * rows, row)) {
        EXPECT_GE(place, 0);
        EXPECT_LT(place, row * rows);
      }
    }
  }
}

/// Tries the first kernels that oneDNN has for a pooling layer, as if it were `checked`.
std::vector<bool> try_pooling(const PoolingSpec& spec, const PoolingSpec& checked) {
  Engine engine;
  const Engine::Impl& on = engine.impl();
  const auto attributes = scratchpad_attributes();
  const onednn::Setting setting{on.cpu(), attributes};
  const auto any = [](const auto&) { return true; };
  const auto kind = spec.kind == PoolingKind::max ? algorithm::pooling_max
                                                  : algorithm::pooling_avg_exclude_padding;
  const auto x = activation_layout(spec.input, spec.type);
  const auto y = activation_layout(spec.output(), spec.type);
  const memory::dims strides{spec.stride, spec.stride};
  const memory::dims window{spec.window_h, spec.window_w};
  const memory::dims dilation{0, 0};
  const memory::dims before{spec.pad_top, spec.pad_left};
  const memory::dims after{spec.pad_bottom, spec.pad_right};
  const auto forward = onednn::forward_kernel<onednn::PoolingForward>(
      setting, any, dnnl::prop_kind::forward_training, kind, x, y, strides, window, dilation,
      before, after);
  const auto backward = onednn::backward_kernel<onednn::PoolingBackward>(
      setting, forward, any, kind, x, y, strides, window, dilation, before, after);
  return {onednn::computes_correctly(on, forward, checked),
          onednn::computes_correctly(on, forward, backward, checked)};
}

TEST(SelfTestOfPoolingTest, AcceptsSoundKernelsAndRefusesThoseOfAnotherLayer) {
  for (const PoolingKind kind : {PoolingKind::max, PoolingKind::average}) {
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      if (type == DataType::bf16 && !computes_bf16()) continue;
      for (const std::int64_t channels : {6, 48}) {
        const PoolingSpec spec{.input = {2, 13, 13, channels},
                               .kind = kind,
                               .window_h = 3,
                               .window_w = 3,
                               .pad_top = 1,
                               .pad_bottom = 1,
                               .pad_left = 1,
                               .pad_right = 1,
                               .type = type};
        PoolingSpec other = spec;
        other.pad_left = 0;
        other.pad_right = 2;
        EXPECT_EQ(try_pooling(spec, spec), std::vector({true, true}));
        EXPECT_EQ(try_pooling(spec, other), std::vector({false, false}));
      }
    }
  }
}

// oneDNN's own layouts of blocks, with and without padding.
TEST(ReorderTest, GoesToEveryLayoutAndBackExactly) {
  Engine engine;
  using tag = memory::format_tag;
  for (const memory::dims& extents :
       {memory::dims{64, 32, 3, 3}, {9, 3, 4, 1}, {20, 5, 3, 2}, {1, 1, 1, 1}, {17, 33, 1, 1}}) {
    const memory::desc plain(extents, memory::data_type::f32, tag::oihw);
    const std::size_t count = plain.get_size() / sizeof(float);
    const std::vector<float> values = test::whole_values(static_cast<std::int64_t>(count), 1);
    for (const tag blocks : {tag::hwio, tag::OIhw16i16o, tag::Oihw16o, tag::OIhw8o8i}) {
      const memory::desc blocked(extents, memory::data_type::f32, blocks);
      std::vector<float> there(blocked.get_size() / sizeof(float));
      std::vector<float> back(count);
      Reorder(engine.impl(), plain, blocked).run(engine.impl(), values.data(), there.data());
      Reorder(engine.impl(), blocked, plain).run(engine.impl(), there.data(), back.data());
      EXPECT_EQ(back, values);
      std::vector<float> plainly(there.size());
      PlainReorder(plain, blocked).run(values.data(), plainly.data());
      EXPECT_EQ(there, plainly);
    }
  }
}

// oneDNN's issue 3280, seen on a Zen 5 with AVX-512 and also where oneDNN is held to AVX2, and not
// on a Zen 4.
TEST(ReorderTest, OfOneReleaseDropsElements) {
  Engine engine;
  const memory::dims extents{9, 3, 4, 1};
  const memory::desc plain(extents, memory::data_type::f32, memory::format_tag::oihw);
  const memory::desc blocked(extents, memory::data_type::f32, memory::format_tag::OIhw16i16o);
  const bool correct = reorders_correctly(engine.impl(), plain, blocked);
  EXPECT_EQ(onednn::may_drop_elements(), !onednn::is_tried(onednn::version()));
  if (onednn::version() != onednn::Version(3, 7)) {
    EXPECT_TRUE(correct);
  } else if (correct) {
    GTEST_SKIP() << "this CPU drops none";
  }
}

TEST(SelfTest, AProcessAsksOnce) {
  int asked = 0;
  for (const bool answer : {true, false}) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(onednn::told_once(answer ? "sound" : "broken", [&] { return ++asked, answer; }),
                answer);
    }
  }
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace rondo::tensor::onednn_defects_test
