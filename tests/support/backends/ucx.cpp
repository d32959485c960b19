#include "support/backends/backends.hpp"

namespace rondo::test {

std::vector<Backend> ucx_backends() { return {Backend::ucx_tcp, Backend::ucx_shm}; }

}  // namespace rondo::test
