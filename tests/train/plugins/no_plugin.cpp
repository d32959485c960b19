// A library that is no plug-in.

extern "C" __attribute__((visibility("default"))) const int rondo_something_else = 1;
