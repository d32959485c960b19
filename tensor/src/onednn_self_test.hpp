#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>

#include <oneapi/dnnl/dnnl.hpp>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/pooling.hpp>

#include "engine_impl.hpp"
#include "onednn_defects.hpp"

namespace rondo::tensor::onednn {

/// Does this kernel compute the pass of that convolution? Runs it once on whole numbers, for which
/// results are exact, and compares some hundred elements of the result with plain sums: those at
/// the corners and borders, and others. Elements that the kernel does not write, and what it writes
/// in front of its arrays or behind them, count as wrong. Takes the memory of one call from the
/// heap, and gives it back.
///
/// `spec` may describe a fully connected layer: as a convolution by filters as large as the image.
[[nodiscard]] bool computes_correctly(const Engine::Impl& on, Pass pass,
                                      const dnnl::primitive_desc_base& kernel,
                                      const ConvolutionSpec& spec);

/// Does this kernel pool as `spec` says? As for a convolution; averages may be rounded.
[[nodiscard]] bool computes_correctly(const Engine::Impl& on,
                                      const dnnl::primitive_desc_base& forward,
                                      const PoolingSpec& spec);

/// The same of `backward`, after `forward`, whose workspace it reads.
[[nodiscard]] bool computes_correctly(const Engine::Impl& on,
                                      const dnnl::primitive_desc_base& forward,
                                      const dnnl::primitive_desc_base& backward,
                                      const PoolingSpec& spec);

/// Tells what `test` says of what `key` names; a process asks once. Any thread may call it, and two
/// that call it for the same key at the same time may both ask.
[[nodiscard]] bool told_once(const std::string& key, const std::function<bool()>& test);

/// The same of this kernel for a layer that `numbers` describe. True without a test in a release of
/// oneDNN that was tried, and for a forecast.
[[nodiscard]] bool tested_once(const Engine::Impl& on, const dnnl::primitive_desc_base& kernel,
                               std::initializer_list<std::int64_t> numbers,
                               const std::function<bool()>& test);

/// May a layer use this kernel? Not if it has a known defect for that convolution, nor, in a
/// release of oneDNN that was not tried, if it fails the test above.
[[nodiscard]] bool is_sound(const Engine::Impl& on, Pass pass,
                            const dnnl::primitive_desc_base& kernel, const ConvolutionSpec& spec);

}  // namespace rondo::tensor::onednn
