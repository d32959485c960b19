#include "support/conformance.hpp"

namespace rondo::test {

// Opening a link takes libfabric 30 ms and more, so that only some ranks meet every memory.
INSTANTIATE_TEST_SUITE_P(OfiTcp, ConformanceTest,
                         testing::Combine(testing::Values(Backend::ofi_tcp),
                                          testing::Values(Memory::arena), conformance_ranks),
                         name_of_conformance_test);

INSTANTIATE_TEST_SUITE_P(OfiTcpMemories, ConformanceTest,
                         testing::Combine(testing::Values(Backend::ofi_tcp),
                                          testing::Values(Memory::ordinary, Memory::mixed),
                                          testing::Values(2, 3, 5)),
                         name_of_conformance_test);

}  // namespace rondo::test
