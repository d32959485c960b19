#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

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
/// Throws OpenError where it is missing. May be called by any thread.
[[nodiscard]] const Library& library();

/// Does fi_av_remove() close a connection of ofi_rxm? libfabric has to know the setting, and must
/// have found it when it was loaded. May be called by any thread.
[[nodiscard]] bool closes_removed_connections();

/// Tells libfabric how many ranks there are, unless the user has: providers size their queues
/// by it. Only the first call counts, and only before providers are first looked for.
void expect_ranks(std::int32_t size);

/// Numbers of transfers' errors: libfabric's own (positive), Transfer::truncated, these.
enum ErrorNumber : std::int32_t {
  error_unknown_peer = 100'000,
  error_message_too_long,
  error_bad_address,
  error_other_provider,
  error_peer_lost,
  error_link_lost,
  error_peer_closed,
};

[[nodiscard]] const char* error_text(std::int32_t error);

/// Why no link can be opened, and what to do about it.
class OpenError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace rondo::transport::ofi
