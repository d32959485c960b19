// The schemes of this library: one line each.

#include <array>
#include <stdexcept>
#include <string>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync {
namespace {

constexpr std::array all_schemes{
    synchronous_scheme,   //
    lazy_scheme,          //
    k_step_scheme,        //
    hierarchical_scheme,  //
    cyclic_scheme,
};

}  // namespace

std::span<const SchemeDescription> schemes() noexcept { return all_schemes; }

const SchemeDescription& describe_scheme(std::string_view name) {
  std::string known;
  for (const SchemeDescription& scheme : all_schemes) {
    if (scheme.name == name) return scheme;
    known += (known.empty() ? "" : ", ") + std::string(scheme.name);
  }
  throw std::invalid_argument("no scheme is called " + std::string(name) + "; there are: " + known);
}

}  // namespace rondo::sync
