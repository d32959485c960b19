#include "support/conformance.hpp"

namespace rondo::test {

// Many ranks connect slowly over TCP, so that only some of them meet every memory.
INSTANTIATE_TEST_SUITE_P(UcxTcp, ConformanceTest,
                         testing::Combine(testing::Values(Backend::ucx_tcp),
                                          testing::Values(Memory::arena), conformance_ranks),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(UcxTcpMemories, ConformanceTest,
                         testing::Combine(testing::Values(Backend::ucx_tcp),
                                          testing::Values(Memory::ordinary, Memory::mixed),
                                          testing::Values(2, 3, 5, 8)),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(HierarchyUcx, ConformanceTest,
                         testing::Combine(testing::Values(Backend::hierarchy_ucx),
                                          conformance_memories, testing::Values(3, 5, 8)),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(UcxShm, ConformanceTest,
                         testing::Combine(testing::Values(Backend::ucx_shm), conformance_memories,
                                          conformance_ranks),
                         name_of_conformance_test);

}  // namespace rondo::test
