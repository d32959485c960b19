// A scheme plug-in that makes nothing, for a reason that is not in its settings: no memory is left,
// or a peer is lost.

#include <memory>
#include <new>

#include <rondo/sync/scheme_plugin.hpp>
#include <rondo/transport/error.hpp>

namespace {

using namespace rondo;

std::unique_ptr<sync::UpdateScheme> fail(const sync::Replica&,
                                         const std::shared_ptr<sync::Optimizer>&,
                                         const sync::SchemeSettings& settings) {
  if (settings.text("lacks", "") == "memory") throw std::bad_alloc();
  throw transport::Error(transport::Errc::peer_lost, "a peer is gone");
}

}  // namespace

const sync::SchemePlugin rondo_scheme_plugin{.make = &fail};
