#pragma once

#include <cstdint>

#include <rdma/fabric.h>

namespace rondo::transport::ofi {

/// The symbols of libfabric; all else is reached through the objects that they make.
struct Library {
  decltype(&fi_getinfo) getinfo;
  decltype(&fi_freeinfo) freeinfo;
  decltype(&fi_dupinfo) dupinfo;
  decltype(&fi_fabric) fabric;
  decltype(&fi_version) version;
  decltype(&fi_strerror) strerror;
  decltype(&fi_getparams) getparams;
  decltype(&fi_freeparams) freeparams;
};

/// libfabric, loaded at the first call and never unloaded: its providers leave handlers behind.
/// Throws Failure where it is missing. May be called by any thread.
[[nodiscard]] const Library& library();

/// Does fi_av_remove() close a connection of ofi_rxm? libfabric has to know the setting, and must
/// have found it when it was loaded. May be called by any thread.
[[nodiscard]] bool closes_removed_connections();

/// Tells libfabric how many ranks there are, unless the user has: providers size their queues
/// by it. Only the first call counts, and only before providers are first looked for.
void expect_ranks(std::int32_t size);

}  // namespace rondo::transport::ofi
