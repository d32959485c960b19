#include <array>

#include "optimizer/sgd_kernel.hpp"

namespace rondo::sync {
namespace {

constexpr auto all_sgd = std::to_array<SgdVariant>({
    {"baseline", update_sgd_baseline},
#if defined(__x86_64__)
    {"avx2", update_sgd_avx2},
    {"avx512", update_sgd_avx512},
#endif
});

}  // namespace

std::span<const SgdVariant> sgd_variants() { return std::span(all_sgd).first(runnable_variants()); }

}  // namespace rondo::sync
