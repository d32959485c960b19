// The count of forks: the child of each increments it before fork() returns there.

#include "base/forks.hpp"

#include <pthread.h>

namespace rondo::transport {

int detail::fork_count = 0;  // written while the child has one thread

namespace {

[[maybe_unused]] const int registered =
    ::pthread_atfork(nullptr, nullptr, [] { ++detail::fork_count; });

}  // namespace
}  // namespace rondo::transport
