#pragma once

#include "links/plugin.hpp"

namespace rondo::transport::tcp {

/// The link over TCP sockets, which is a part of librondo-transport.
extern const LinkPlugin plugin;

}  // namespace rondo::transport::tcp
