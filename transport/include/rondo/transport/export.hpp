#pragma once

/// Marks what `librondo-transport.so` shows to others.
#define RONDO_TRANSPORT_API __attribute__((visibility("default")))
