#define RONDO_REDUCTION_SET avx2

#include "reduce/reduction_loops.inc"
