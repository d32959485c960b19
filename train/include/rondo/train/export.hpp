#pragma once

/// Marks what `librondo-train.so` shows to others.
#define RONDO_TRAIN_API __attribute__((visibility("default")))
