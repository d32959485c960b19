#include "support/conformance.hpp"

namespace rondo::test {

INSTANTIATE_TEST_SUITE_P(OfiTcp, ConformanceTest,
                         testing::Combine(testing::Values(Backend::ofi_tcp), conformance_memories,
                                          conformance_ranks),
                         name_of_conformance_test);

}  // namespace rondo::test
