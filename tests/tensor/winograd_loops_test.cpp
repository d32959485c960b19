// The loops of Winograd's convolutions: every instruction set gives the bits of the baseline.

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "data.hpp"
#include "engine_impl.hpp"
#include "winograd.hpp"

namespace rondo::tensor::winograd_loops_test {
namespace {

using test::normal_values;

struct Results {
  std::vector<float> y, dw, bias_gradient;
  friend bool operator==(const Results&, const Results&) = default;
};

std::int64_t padded_size(const Shape& shape) { return shape.size() + 16; }

Results run(const WinogradLoops& loops, const ConvolutionSpec& spec, bool mirrored) {
  Engine engine(2);
  const WinogradConvolution forward(spec, loops, 2, mirrored);
  const WinogradWeightGradient gradient(spec, loops, 2);
  engine.impl().reserve_scratchpad(
      std::max(forward.scratchpad_bytes(), gradient.scratchpad_bytes()));
  const std::vector<float> x = normal_values(padded_size(spec.input), 1);
  const std::vector<float> dy = normal_values(padded_size(spec.output()), 2);
  const std::vector<float> weights = normal_values(spec.weights(), 3);
  const std::vector<float> bias = normal_values(spec.filters, 4);

  Results results{.y = std::vector<float>(static_cast<std::size_t>(spec.output().size())),
                  .dw = std::vector<float>(weights.size()),
                  .bias_gradient = std::vector<float>(bias.size())};
  forward.run(engine.impl(), x.data(), weights.data(), bias.data(), results.y.data());
  gradient.run(engine.impl(), x.data(), dy.data(), results.dw.data(), results.bias_gradient.data());
  return results;
}

class WinogradLoopsTest : public testing::TestWithParam<InstructionSet> {};

TEST_P(WinogradLoopsTest, GiveTheBitsOfTheBaseline) {
  const WinogradLoops* const loops = winograd_loops(GetParam());
  if (loops == nullptr) GTEST_SKIP() << "this CPU cannot run it";
  for (const ConvolutionSpec& spec :
       {test::square(2, 9, 16, 48, 3, 1, 1), test::square(1, 12, 32, 64, 3, 1, 0),
        test::square(3, 4, 256, 160, 3, 1, 1)}) {
    for (const bool mirrored : {false, true}) {
      EXPECT_EQ(run(*loops, spec, mirrored), run(baseline::winograd_loops, spec, mirrored));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, WinogradLoopsTest,
                         testing::Values(InstructionSet::avx2, InstructionSet::avx512));

}  // namespace
}  // namespace rondo::tensor::winograd_loops_test
