#pragma once

/// Marks what `librondo-tensor.so` shows to others.
#define RONDO_TENSOR_API __attribute__((visibility("default")))
