#pragma once

/// Marks what `librondo-sync.so` shows to others.
#define RONDO_SYNC_API __attribute__((visibility("default")))
