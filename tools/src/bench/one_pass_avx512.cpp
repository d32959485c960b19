#define RONDO_NAME one_pass_avx512
#include "bench/one_pass_loop.inc"
