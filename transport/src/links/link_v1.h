#ifndef RONDO_LINK_V1_H
#define RONDO_LINK_V1_H

/* What a link plug-in (librondo-link-ucx.so, librondo-link-ofi.so) gives to librondo-transport:
 * one table of C functions, exported as `rondo_link_v1`. No exception crosses it, and no type of
 * either side but those below.
 *
 * A link carries tagged messages between this rank and others. Whatever is not said here is as in
 * links/link.hpp, whose virtual functions these are. All functions but describe() are called by
 * one thread at a time. Errors are numbers of the plug-in's own; error_text() explains them. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rondo_link rondo_link; /* one opened link; the plug-in defines it */

enum { rondo_transfer_idle = 0, rondo_transfer_pending, rondo_transfer_done, rondo_transfer_failed };

/* The one error number that all links have in common; their own are others. */
enum { rondo_error_truncated = -1 }; /* the message is longer than the memory of its receive */

/* One message in flight. The caller keeps it, and the message's memory, until it is done or
 * failed, or cancel() has returned. */
typedef struct rondo_transfer {
  int32_t state;  /* one of the above */
  int32_t error;  /* when failed: for error_text() */
  uint64_t bytes; /* when done: as many as were sent or received */
  void* handle;   /* the link's own */
  void* context;  /* the link's own */
} rondo_transfer;

typedef struct rondo_link_options {
  int32_t rank; /* in the World: 0 <= rank < size <= 65536 */
  int32_t size;
  const char* provider; /* UCX_TLS list, libfabric provider; "" chooses by preference */
  const char* device;   /* network interfaces to use, comma-separated; "" leaves it to the link */
  int32_t peers;        /* ranks that are likely to be talked to; a hint */
} rondo_link_options;

typedef struct rondo_link_v1_table {
  uint32_t version; /* 1 */
  const char* name; /* "ucx", "ofi" */

  /* One line a fact, for `rondo info`: "version ..." first, then "provider NAME ...". Zero-
   * terminated, cut to `bytes`. May be called without a link. */
  void (*describe)(char* text, size_t bytes);

  /* 0, or an error number; `error` then says what was wrong and what to do. */
  int (*open)(const rondo_link_options* options, rondo_link** link, char* error, size_t bytes);
  /* Sends what is on its way, for at most `timeout_ms`, and frees everything. */
  void (*close)(rondo_link* link, int timeout_ms);

  /* What the link took, for people: "tcp over eth0", "verbs;ofi_rxm over rxe0". */
  const char* (*route)(rondo_link* link);
  /* What others need to reach this rank; lives as long as the link. */
  void (*address)(rondo_link* link, const void** data, size_t* bytes);
  /* Makes `rank` known; the connection itself is made when it is first used. */
  int (*connect)(rondo_link* link, int32_t rank, const void* address, size_t bytes);

  void (*post_send)(rondo_link* link, int32_t peer, uint64_t tag, const void* data, size_t bytes,
                    rondo_transfer* transfer);
  void (*post_recv)(rondo_link* link, int32_t peer, uint64_t tag, void* data, size_t bytes,
                    rondo_transfer* transfer);
  int (*progress)(rondo_link* link); /* not 0 if anything moved */
  void (*cancel)(rondo_link* link, rondo_transfer* transfer);
  /* 1: `descriptor` becomes readable when there is something to do. 0: there is something already,
   * or the link cannot tell. */
  int (*arm)(rondo_link* link, int* descriptor);

  /* Memory that will be sent from and received into often; registered once. */
  int (*add_memory)(rondo_link* link, void* base, size_t bytes);
  void (*remove_memory)(rondo_link* link, void* base);

  const char* (*error_text)(int32_t error);

  /* Throws away what `peer` sends from now on, or has sent, with a tag that equals `tag` in the bits
   * of `mask`. May be null. */
  void (*discard)(rondo_link* link, int32_t peer, uint64_t tag, uint64_t mask);
} rondo_link_v1_table;

#define RONDO_LINK_V1_SYMBOL "rondo_link_v1"

#ifdef __cplusplus
}
#endif

#endif
