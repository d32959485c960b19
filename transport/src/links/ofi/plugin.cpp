// The table of the ofi plug-in: C on the outside, and no exception goes out.

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include <rdma/fi_errno.h>

#include "links/link_v1.h"
#include "links/ofi/errors.hpp"
#include "links/ofi/link.hpp"
#include "links/ofi/provider.hpp"

struct rondo_link : rondo::transport::ofi::Link {
  using Link::Link;
};

namespace rondo::transport::ofi {
namespace {

void copy_text(const std::string& text, char* out, std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t length = std::min(text.size(), bytes - 1);
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
}

/// Runs `action`; an exception becomes `error` text and a number.
template <typename Action>
int guarded(char* error, std::size_t bytes, Action action) noexcept {
  try {
    action();
    return 0;
  } catch (const Failure& failure) {
    copy_text(failure.what(), error, bytes);
    return failure.error();
  } catch (const std::exception& failure) {
    copy_text(failure.what(), error, bytes);
    return FI_ENOMEM;
  }
}

void describe(char* text, std::size_t bytes) {
  guarded(text, bytes, [&] { copy_text(describe_providers(), text, bytes); });
}

int open(const rondo_link_options* options, rondo_link** link, char* error, std::size_t bytes) {
  return guarded(error, bytes, [&] { *link = std::make_unique<rondo_link>(*options).release(); });
}

void close(rondo_link* link, int timeout_ms) {
  const std::unique_ptr<rondo_link> owned(link);
  link->drain(timeout_ms);
}

const char* route(rondo_link* link) { return link->route().c_str(); }

void address(rondo_link* link, const void** data, std::size_t* bytes) {
  *data = link->address().data();
  *bytes = link->address().size();
}

int connect(rondo_link* link, std::int32_t rank, const void* address, std::size_t bytes) {
  return link->connect(rank, std::string_view(static_cast<const char*>(address), bytes));
}

void post_send(rondo_link* link, std::int32_t peer, std::uint64_t tag, const void* data,
               std::size_t bytes, rondo_transfer* transfer) {
  link->post_send(peer, tag, data, bytes, *transfer);
}

void post_recv(rondo_link* link, std::int32_t peer, std::uint64_t tag, void* data,
               std::size_t bytes, rondo_transfer* transfer) {
  link->post_recv(peer, tag, data, bytes, *transfer);
}

int progress(rondo_link* link) { return link->progress() ? 1 : 0; }

void cancel(rondo_link* link, rondo_transfer* transfer) { link->cancel(*transfer); }

void discard(rondo_link* link, std::int32_t peer, std::uint64_t tag, std::uint64_t mask) {
  link->discard(peer, tag, mask);
}

int arm(rondo_link* link, int* descriptor) {
  const int found = link->arm();
  if (found < 0) return 0;
  *descriptor = found;
  return 1;
}

int add_memory(rondo_link* link, void* base, std::size_t bytes) {
  int error = 0;
  const int thrown = guarded(nullptr, 0, [&] { error = link->memory().add(base, bytes); });
  return thrown != 0 ? thrown : error;
}

void remove_memory(rondo_link* link, void* base) { link->memory().remove(base); }

}  // namespace
}  // namespace rondo::transport::ofi

extern "C" {
__attribute__((visibility("default"))) extern const rondo_link_v1_table rondo_link_v1;

const rondo_link_v1_table rondo_link_v1 = {
    .version = 1,
    .name = "ofi",
    .describe = rondo::transport::ofi::describe,
    .open = rondo::transport::ofi::open,
    .close = rondo::transport::ofi::close,
    .route = rondo::transport::ofi::route,
    .address = rondo::transport::ofi::address,
    .connect = rondo::transport::ofi::connect,
    .post_send = rondo::transport::ofi::post_send,
    .post_recv = rondo::transport::ofi::post_recv,
    .progress = rondo::transport::ofi::progress,
    .cancel = rondo::transport::ofi::cancel,
    .arm = rondo::transport::ofi::arm,
    .add_memory = rondo::transport::ofi::add_memory,
    .remove_memory = rondo::transport::ofi::remove_memory,
    .error_text = rondo::transport::ofi::error_text,
    .discard = rondo::transport::ofi::discard,
};
}
