#include <array>

#include "optimizer/adam_kernel.hpp"

namespace rondo::sync {
namespace {

constexpr auto all_adam = std::to_array<AdamVariant>({
    {"baseline", update_adam_baseline},
#if defined(__x86_64__)
    {"avx2", update_adam_avx2},
    {"avx512", update_adam_avx512},
#endif
});

}  // namespace

std::span<const AdamVariant> adam_variants() {
  return std::span(all_adam).first(runnable_variants());
}

}  // namespace rondo::sync
