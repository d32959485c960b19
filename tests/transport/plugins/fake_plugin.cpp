// A plug-in for plugin_test.cpp: its messages are done as soon as they are posted.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "links/link_v1.h"

struct rondo_link {
  int progressed = 0;
};

namespace {

constexpr int unknown_address = 5;

void describe(char* text, std::size_t bytes) {
  std::snprintf(text, bytes, "version 9.8\nprovider pigeon\n");
}

int open_link(const rondo_link_options* options, rondo_link** link, char* error,
              std::size_t bytes) {
  if (std::strcmp(options->provider, "dodo") == 0) {
    std::snprintf(error, bytes, "there is no provider 'dodo'; take 'pigeon'");
    return 1;
  }
  *link = new rondo_link;
  return 0;
}

void close_link(rondo_link* link, int /*timeout_ms*/) { delete link; }

const char* route(rondo_link* /*link*/) { return "pigeon over air"; }

void address(rondo_link* /*link*/, const void** data, std::size_t* bytes) {
  *data = "loft\0 7";
  *bytes = 7;
}

int connect_link(rondo_link* /*link*/, std::int32_t /*rank*/, const void* data, std::size_t bytes) {
  return bytes == 7 && std::memcmp(data, "loft\0 7", 7) == 0 ? 0 : unknown_address;
}

void post_send(rondo_link* /*link*/, std::int32_t /*peer*/, std::uint64_t /*tag*/,
               const void* /*data*/, std::size_t bytes, rondo_transfer* transfer) {
  transfer->state = rondo_transfer_done;
  transfer->bytes = bytes;
}

void post_recv(rondo_link* /*link*/, std::int32_t /*peer*/, std::uint64_t /*tag*/, void* /*data*/,
               std::size_t /*bytes*/, rondo_transfer* transfer) {
  transfer->state = rondo_transfer_failed;
  transfer->error = unknown_address;
}

int progress(rondo_link* link) { return ++link->progressed == 1 ? 1 : 0; }

void cancel(rondo_link* /*link*/, rondo_transfer* transfer) {
  transfer->state = rondo_transfer_idle;
}

int arm(rondo_link* /*link*/, int* /*descriptor*/) { return 0; }

int add_memory(rondo_link* /*link*/, void* /*base*/, std::size_t /*bytes*/) { return 0; }

void remove_memory(rondo_link* /*link*/, void* /*base*/) {}

const char* error_text(std::int32_t error) {
  return error == unknown_address ? "no such loft" : "unknown";
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const rondo_link_v1_table rondo_link_v1 = {
    .version = RONDO_TEST_PLUGIN_VERSION,
    .name = "fake",
    .describe = describe,
    .open = open_link,
    .close = close_link,
    .route = route,
    .address = address,
    .connect = connect_link,
    .post_send = post_send,
    .post_recv = post_recv,
    .progress = progress,
    .cancel = cancel,
    .arm = arm,
    .add_memory = add_memory,
    .remove_memory = remove_memory,
    .error_text = error_text,
    .discard = nullptr,
};
