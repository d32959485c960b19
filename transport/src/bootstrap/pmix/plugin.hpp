#pragma once

namespace rondo::transport::bootstrap {

/// The export of librondo-pmix.so: the one use that Rondo makes of libpmix.
///
/// Plain C types, because a library that needs libpmix is loaded only under a launcher that has it.
/// `release` is compared first, as in LinkPlugin.
struct PmixPlugin {
  const char* release;  ///< RONDO_VERSION
  /// Rank 0's text (`mine` on rank 0) on all ranks, kept until the next call. Null when that
  /// failed;
  /// `*problem` then says why. Collective.
  const char* (*exchange)(int rank, const char* mine, int deadline_seconds, const char** problem);
};

/// Defined by the plug-in, and looked up by name.
extern "C" __attribute__((visibility("default"))) const PmixPlugin rondo_pmix_plugin;

}  // namespace rondo::transport::bootstrap
