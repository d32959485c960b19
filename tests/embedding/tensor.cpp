// A program of somebody else's that has rondo-tensor and nothing else of Rondo.

#include <cstdio>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

int main() {
  const rondo::tensor::Tensor tensor({.n = 2, .h = 3, .w = 4, .c = 5});
  std::printf("%zu elements, oneDNN %s\n", tensor.span().size(),
              rondo::tensor::onednn_version().c_str());
}
