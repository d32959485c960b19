// The conformance suite without a fabric: one node, one rank per node, and several ranks per node,
// whose nodes are joined by the link over shared memory.

#include "support/conformance.hpp"

namespace rondo::test {

INSTANTIATE_TEST_SUITE_P(Shm, ConformanceTest,
                         testing::Combine(testing::Values(Backend::shm), conformance_memories,
                                          conformance_ranks),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(ShmNodes, ConformanceTest,
                         testing::Combine(testing::Values(Backend::shm_nodes), conformance_memories,
                                          conformance_ranks),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(Hierarchy, ConformanceTest,
                         testing::Combine(testing::Values(Backend::hierarchy), conformance_memories,
                                          conformance_ranks),
                         name_of_conformance_test);

}  // namespace rondo::test
