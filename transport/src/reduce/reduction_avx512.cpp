#define RONDO_REDUCTION_SET avx512

#include "reduce/reduction_loops.inc"
