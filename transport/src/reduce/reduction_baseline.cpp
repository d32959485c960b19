#define RONDO_REDUCTION_SET baseline

#include "reduce/reduction_loops.inc"
