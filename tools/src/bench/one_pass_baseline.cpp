#define RONDO_NAME one_pass_baseline
#include "bench/one_pass_loop.inc"
