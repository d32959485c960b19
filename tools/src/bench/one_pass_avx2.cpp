#define RONDO_NAME one_pass_avx2
#include "bench/one_pass_loop.inc"
