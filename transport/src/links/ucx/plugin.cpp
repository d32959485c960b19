// The table of librondo-link-ucx.so.

#include <cstdio>
#include <exception>
#include <memory>

#include "links/link_v1.h"
#include "links/ucx/errors.hpp"
#include "links/ucx/link.hpp"
#include "links/ucx/open.hpp"

struct rondo_link {
  rondo::transport::ucx::UcxLink ucx;
};

namespace rondo::transport::ucx {
namespace {

void describe(char* text, std::size_t bytes) {
  try {
    std::snprintf(text, bytes, "%s", describe_ucx().c_str());
  } catch (const std::exception& error) {
    std::snprintf(text, bytes, "version unknown: %s", error.what());
  }
}

int open_link(const rondo_link_options* options, rondo_link** link, char* error,
              std::size_t bytes) {
  try {
    const Opened opened = open_ucx(*options);
    try {
      *link = new rondo_link{.ucx{opened, *options}};
    } catch (...) {
      close_ucx(opened);
      throw;
    }
    return 0;
  } catch (const std::exception& failure) {
    std::snprintf(error, bytes, "%s", failure.what());
    return cannot_open;
  }
}

void close_link(rondo_link* link, int timeout_ms) {
  link->ucx.close(std::chrono::milliseconds(timeout_ms));
  delete link;
}

const char* route(rondo_link* link) { return link->ucx.route().c_str(); }

void address(rondo_link* link, const void** data, std::size_t* bytes) {
  *data = link->ucx.address().data();
  *bytes = link->ucx.address().size();
}

int connect_rank(rondo_link* link, std::int32_t rank, const void* address, std::size_t bytes) {
  try {
    return link->ucx.connect(rank, {static_cast<const std::byte*>(address), bytes});
  } catch (const std::exception&) {
    return UCS_ERR_NO_MEMORY;
  }
}

void post_send(rondo_link* link, std::int32_t peer, std::uint64_t tag, const void* data,
               std::size_t bytes, rondo_transfer* transfer) {
  link->ucx.post_send(peer, tag, {static_cast<const std::byte*>(data), bytes}, *transfer);
}

void post_recv(rondo_link* link, std::int32_t peer, std::uint64_t tag, void* data,
               std::size_t bytes, rondo_transfer* transfer) {
  link->ucx.post_recv(peer, tag, {static_cast<std::byte*>(data), bytes}, *transfer);
}

int progress(rondo_link* link) { return link->ucx.progress() ? 1 : 0; }

void cancel(rondo_link* link, rondo_transfer* transfer) { link->ucx.cancel(*transfer); }

int arm(rondo_link* link, int* descriptor) {
  const std::optional<int> armed = link->ucx.arm();
  if (!armed) return 0;
  *descriptor = *armed;
  return 1;
}

int add_memory(rondo_link* link, void* base, std::size_t bytes) {
  try {
    return link->ucx.add_memory({static_cast<std::byte*>(base), bytes});
  } catch (const std::exception&) {
    return UCS_ERR_NO_MEMORY;
  }
}

void remove_memory(rondo_link* link, void* base) { link->ucx.remove_memory(base); }

}  // namespace
}  // namespace rondo::transport::ucx

namespace ucx = rondo::transport::ucx;

extern "C" __attribute__((visibility("default"))) const rondo_link_v1_table rondo_link_v1 = {
    .version = 1,
    .name = "ucx",
    .describe = ucx::describe,
    .open = ucx::open_link,
    .close = ucx::close_link,
    .route = ucx::route,
    .address = ucx::address,
    .connect = ucx::connect_rank,
    .post_send = ucx::post_send,
    .post_recv = ucx::post_recv,
    .progress = ucx::progress,
    .cancel = ucx::cancel,
    .arm = ucx::arm,
    .add_memory = ucx::add_memory,
    .remove_memory = ucx::remove_memory,
    .error_text = ucx::error_text,
    .discard = nullptr,
};
