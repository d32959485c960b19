// A library that is no plug-in, and may end the program that loads it.

#include <cstdlib>

extern "C" __attribute__((visibility("default"))) const int rondo_something_else = 1;

#ifdef RONDO_TEST_ABORTS
[[gnu::constructor]] static void end_the_program() { std::abort(); }
#endif
