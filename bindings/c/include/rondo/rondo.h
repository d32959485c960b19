/* Rondo's collectives for programs in C, and for languages that call C.
 *
 * Everything of rondo/transport/world.hpp and communicator.hpp that makes sense in C: the ranks of
 * a job, collectives and messages between them, and memory that all ranks of a node share. The
 * rules are those of the C++ headers. In short:
 *
 * - Status. Functions return RONDO_OK or another status, unless they return a value that cannot
 *   fail otherwise. rondo_last_error() is the text of the last failure on the calling thread. A
 * null handle, a number that is none of an enumeration, and a null buffer of more than 0 elements
 * are RONDO_INVALID_ARGUMENT. After such an error nothing has been posted.
 * - Requests. An operation is posted, and its rondo_request completes later. Pass NULL in place of
 *   the request, and the call returns when the operation has completed.
 * - Buffers are lent to an operation until it has completed. Those in rondo_allocate() memory are
 *   reduced in place, in one pass over shared memory.
 * - Matching. All ranks post the same collectives of a communicator in the same order.
 * - Threads. A world and all that comes from it belong to one thread at a time;
 *   rondo_world_abort() may be called from others. With rondo_options.multiple_threads several
 *   threads use it at the same time, each with communicators and requests of its own; one of them
 *   at a time makes communicators.
 * - Structures begin with `struct_size`, which the caller sets to the size of the structure: so
 *   later versions can append fields, and old programs go on to work.
 */
#ifndef RONDO_RONDO_H
#define RONDO_RONDO_H

#include <stddef.h>
#include <stdint.h>

#define RONDO_VERSION_MAJOR 0
#define RONDO_VERSION_MINOR 2
#define RONDO_VERSION_PATCH 0

#define RONDO_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* One of RONDO_OK and the others below. */
typedef int rondo_status;

enum {
  RONDO_OK = 0,
  RONDO_PEER_LOST = 1,         /* a rank has ended, or left before it took part */
  RONDO_MISMATCH = 2,          /* ranks posted different operations */
  RONDO_DEADLINE_EXCEEDED = 3, /* a peer is alive, but did not take part in time */
  RONDO_ABORTED = 4,           /* some rank called rondo_world_abort() */
  RONDO_RENDEZVOUS_FAILED = 5, /* the ranks of the job did not find each other */
  RONDO_OUT_OF_MEMORY = 6,
  RONDO_LINK_UNAVAILABLE = 7, /* a link to other nodes could not be loaded or opened */
  RONDO_INVALID_ARGUMENT = 100,
  RONDO_SYSTEM_ERROR = 101, /* a file could not be written, for example */
  RONDO_INTERNAL_ERROR = 102
};

/* What one element of a buffer is. */
typedef int rondo_type;

enum {
  RONDO_F32 = 0,
  RONDO_F64 = 1,
  RONDO_BF16 = 2, /* the upper half of an IEEE float; sums are made in fp32 */
  RONDO_I32 = 3,
  RONDO_I64 = 4,
  RONDO_U8 = 5,
  RONDO_F16 = 6, /* IEEE half precision; sums are made in fp32 */
  RONDO_I8 = 7,
  RONDO_I16 = 8,
  RONDO_U16 = 9,
  RONDO_U32 = 10,
  RONDO_U64 = 11
};

/* How a reduction joins two elements. Ranks are joined in an order that does not depend on timing;
 * between nodes partial sums of f16 and bf16 are rounded. Integers wrap around; with
 * min and max a NaN on any rank makes the result NaN. RONDO_AVG is the sum divided by the number of
 * ranks, for integers rounded towards zero. The bit operations are for integers. */
typedef int rondo_op;

enum {
  RONDO_SUM = 0,
  RONDO_MIN = 1,
  RONDO_MAX = 2,
  RONDO_PROD = 3,
  RONDO_AVG = 4,
  RONDO_BIT_AND = 5,
  RONDO_BIT_OR = 6,
  RONDO_BIT_XOR = 7
};

/* How a rank waits for its peers. */
enum {
  RONDO_WAIT_AUTOMATIC = 0, /* spin, then yield, then sleep */
  RONDO_WAIT_SPIN = 1,
  RONDO_WAIT_YIELD = 2,
  RONDO_WAIT_BLOCK = 3
};

typedef struct rondo_world rondo_world;
typedef struct rondo_communicator rondo_communicator;
typedef struct rondo_request rondo_request;
typedef struct rondo_plan rondo_plan;
typedef struct rondo_adopted rondo_adopted;

/* A wait that has lasted for rondo_options.stall_warning_ms. Its texts live as long as the call. */
typedef struct rondo_stall {
  size_t struct_size;
  int rank;              /* who waits */
  const char* operation; /* what for, for example "allreduce #12 of 1024 f32" */
  const int* missing;    /* ranks that it waits for */
  size_t missing_count;
  int64_t duration_ms;
} rondo_stall;

/* Settings of a world. A field of 0 or NULL is the default, so this sets one:
 *
 *     rondo_options options = {.struct_size = sizeof options, .deadline_ms = 60000};
 *
 * All ranks pass the same. See WorldOptions and FabricOptions in rondo/transport/world.hpp. */
typedef struct rondo_options {
  size_t struct_size;
  int waiting;                    /* RONDO_WAIT_... */
  int64_t deadline_ms;            /* of every wait without one of its own: 300000 */
  int64_t stall_warning_ms;       /* when on_stall is called: 10000 */
  int64_t rendezvous_deadline_ms; /* of the bootstrap: 60000 */
  size_t small_bytes;             /* up to here every rank reads all: 4096, which is the most */
  const char* fabric;             /* "auto", "tcp", "ucx", "ofi", "ucx:tcp", "shm", ... */
  const char* interface_pattern;  /* network interfaces, as in "ib0,eth*,^docker0" */
  const char* allreduce;          /* "rd:0-16k;ring:16k-max"; "" or NULL: by the number of ranks */
  const char* dump_folder;        /* where flight records go when something fails */
  int fake_nodes;                 /* ranks of one machine count as this many nodes */
  int64_t injected_latency_ns;    /* makes messages between nodes slower */
  double injected_bytes_per_second;
  /* Called by the thread that waits. Of this world it may call rondo_world_abort() only. */
  void (*on_stall)(const rondo_stall* stall, void* context);
  void* on_stall_context;
  int multiple_threads; /* not 0: several threads use the world at the same time, see above */
} rondo_options;

/* Where one rank of a world runs. */
typedef struct rondo_rank_info {
  size_t struct_size;
  int pid;
  int node;         /* ranks of one node share memory */
  const char* host; /* lives as long as the world */
} rondo_rank_info;

/* What a rank has moved and how long it took, since its world began. */
typedef struct rondo_counters {
  size_t struct_size;
  uint64_t operations;      /* completed: collectives, messages, signals */
  uint64_t loaded_bytes;    /* read from peers' memory */
  uint64_t stored_bytes;    /* written into peers' memory */
  uint64_t sent_messages;   /* to any rank */
  uint64_t sent_bytes;      /* in them */
  uint64_t fabric_messages; /* those of them that left the node */
  uint64_t fabric_bytes;
  int64_t waiting_ns;       /* inside calls, before the last rank had posted */
  int64_t communicating_ns; /* inside calls, after it */
} rondo_counters;

/* One partner of rondo_sendrecv(). */
typedef struct rondo_neighbour {
  size_t struct_size;
  int rank;
  rondo_type type;
  const void* out; /* sent to it with out_tag */
  size_t out_count;
  void* in; /* received from it with in_tag */
  size_t in_count;
  int out_tag;
  int in_tag;
} rondo_neighbour;

/* ---- Library and errors ---- */

/* The version of the library, "0.2.0", which may be newer than this header. */
RONDO_API const char* rondo_version(void);

/* "peer_lost" for RONDO_PEER_LOST; "unknown" for what is no status. */
RONDO_API const char* rondo_status_name(rondo_status status);

/* Why the last function that failed on this thread did: rank, host, operation, and what to do.
 * Never NULL; lives until the next failure on this thread. */
RONDO_API const char* rondo_last_error(void);

/* The rank of the world that the last error was about, or -1. */
RONDO_API int rondo_last_error_rank(void);

/* Bytes of one element; 0 for what is no type. */
RONDO_API size_t rondo_type_size(rondo_type type);

/* ---- World ---- */

/* Joins the world that the launcher started this process for, or makes one of a single rank. Waits
 * for all ranks. `options` may be NULL. */
RONDO_API rondo_status rondo_attach(const rondo_options* options, rondo_world** world);

/* Gathers the `bytes` bytes of `mine`, as many on every rank, into `all` of every rank, rank r's at
 * r * bytes: what MPI_Allgather() does. Returns 0, or another number when it failed. */
typedef int rondo_allgather_function(const void* mine, void* all, size_t bytes, void* context);

/* Joins `size` processes or threads that call this with different ranks and the same options: for
 * programs with MPI or a bootstrap of their own. `allgather` is called a few times, by all ranks
 * alike; addresses and a secret of the job travel through it. Several worlds may exist at a time.
 */
RONDO_API rondo_status rondo_create(int rank, int size, rondo_allgather_function* allgather,
                                    void* context, const rondo_options* options,
                                    rondo_world** world);

/* `ranks` worlds that are one job, for threads of this process: `worlds` has room for them. */
RONDO_API rondo_status rondo_make_threads(int ranks, const rondo_options* options,
                                          rondo_world** worlds);

/* Leaves in order, without waiting for peers. The memory of rondo_allocate() goes with it. Split
 * communicators and requests may be freed later. NULL does nothing. */
RONDO_API void rondo_world_free(rondo_world* world);

/* -1 for a null handle. */
RONDO_API int rondo_world_rank(const rondo_world* world);
RONDO_API int rondo_world_size(const rondo_world* world);
RONDO_API int rondo_world_nodes(const rondo_world* world);
/* 1 when the node's ranks outnumber the CPUs that they may use, else 0. */
RONDO_API int rondo_world_oversubscribed(const rondo_world* world);

/* How nodes reach each other, for people. Lives as long as the world. NULL for a null handle. */
RONDO_API const char* rondo_world_route(const rondo_world* world);

RONDO_API rondo_status rondo_world_rank_info(const rondo_world* world, int rank,
                                             rondo_rank_info* info);
RONDO_API rondo_status rondo_world_counters(const rondo_world* world, rondo_counters* counters);

/* All ranks of the world. It belongs to the world. NULL for a null handle. */
RONDO_API rondo_communicator* rondo_world_communicator(rondo_world* world);

/* Advances every pending operation of this rank as far as it goes without waiting. */
RONDO_API rondo_status rondo_world_progress(rondo_world* world);
/* The same, but returns after about `budget_ns` when there is more to do. */
RONDO_API rondo_status rondo_world_progress_for(rondo_world* world, int64_t budget_ns);

/* A descriptor for the program's own poll() or event loop: it becomes readable (POLLIN) when
 * progress may be possible. Arm it, poll it if it was armed, then test the requests. The world owns
 * it: do not read, close or change it. While it is armed it also becomes readable after
 * `check_interval_ns` (50000000 is a good value), so that rondo_request_test() notices lost peers;
 * 0: never. The first call takes three descriptors and starts a thread. RONDO_INVALID_ARGUMENT for
 * a negative interval, and where ranks wait by spinning only. */
RONDO_API rondo_status rondo_world_event_descriptor(rondo_world* world, int64_t check_interval_ns,
                                                    int* descriptor);
/* Makes progress. `*armed` is 1 if nothing moved: the descriptor becomes readable as soon as
 * progress may be possible. 0: something moved, so test the requests instead of polling. Holds
 * until the next call for this world, its communicators or requests. */
RONDO_API rondo_status rondo_world_arm(rondo_world* world, int* armed);

/* Ends the job's communication: every wait of every rank fails with RONDO_ABORTED and `reason`. */
RONDO_API rondo_status rondo_world_abort(rondo_world* world, const char* reason);

/* Writes the flight record, what this rank has done lately, as JSON. */
RONDO_API rondo_status rondo_world_dump_flight_record(const rondo_world* world, const char* path);
/* Sets rondo_options.dump_folder. */
RONDO_API rondo_status rondo_world_set_dump_folder(rondo_world* world, const char* folder);

/* Memory that every rank of the node can reach, aligned to a cache line: buffers in it are reduced
 * in place. Not set to zero. 0 bytes are allowed, and give a pointer to free. */
RONDO_API rondo_status rondo_allocate(rondo_world* world, size_t bytes, void** memory);
/* Gives it back; NULL does nothing. No operation may still use it. */
RONDO_API rondo_status rondo_deallocate(rondo_world* world, void* memory);
/* Makes a buffer that was allocated elsewhere such memory, where it lies: addresses and contents
 * stay, until rondo_adopted_free(). Whole pages are replaced, so no other thread may write to what
 * lies on the first and last page meanwhile, and of two buffers that share a page only one can be
 * adopted. RONDO_INVALID_ARGUMENT for memory of stacks, files or other processes. 0 bytes are
 * allowed. */
RONDO_API rondo_status rondo_adopt(rondo_world* world, void* memory, size_t bytes,
                                   rondo_adopted** adopted);
/* Makes it ordinary memory again; needed before it is freed or resized. No operation may be pending
 * on it. On the World's thread; the world may be gone. NULL does nothing. */
RONDO_API void rondo_adopted_free(rondo_adopted* adopted);
/* 1 when all of [data, data + bytes) is memory of this rank that the node can reach, else 0. */
RONDO_API int rondo_arena_contains(const rondo_world* world, const void* data, size_t bytes);
/* Bytes handed out at the moment. */
RONDO_API size_t rondo_arena_used_bytes(const rondo_world* world);

/* ---- Communicators ---- */

/* -1 for a null handle. */
RONDO_API int rondo_communicator_rank(const rondo_communicator* communicator);
RONDO_API int rondo_communicator_size(const rondo_communicator* communicator);

/* A color of ranks that are to be in no group. */
#define RONDO_NO_COLOR (-1)

/* The ranks that pass the same `color`, at least 0, ordered by `key`, then by rank. Collective.
 * With RONDO_NO_COLOR a rank takes part in the call, and *part is NULL. */
RONDO_API rondo_status rondo_communicator_split(rondo_communicator* communicator, int color,
                                                int key, rondo_communicator** part);

/* The same ranks in the same order, and an order of operations of its own. Collective. */
RONDO_API rondo_status rondo_communicator_dup(rondo_communicator* communicator,
                                              rondo_communicator** copy);

/* Local. What belongs to a world is left as it is, and NULL does nothing. */
RONDO_API void rondo_communicator_free(rondo_communicator* communicator);

/* ---- Collectives. Counts are numbers of elements ---- */

/* The element-wise reduction of all ranks' `in`, into every rank's `out`; in == out is allowed. */
RONDO_API rondo_status rondo_allreduce(rondo_communicator* communicator, const void* in, void* out,
                                       size_t count, rondo_type type, rondo_op op,
                                       rondo_request** request);

/* Several arrays, in place, as one operation: many short ones cost little more than one. All ranks
 * pass the same counts: counts[i] elements in arrays[i]. */
RONDO_API rondo_status rondo_allreduce_coalesced(rondo_communicator* communicator,
                                                 void* const* arrays, const size_t* counts,
                                                 size_t array_count, rondo_type type, rondo_op op,
                                                 rondo_request** request);

/* The same into `out` of `root`, which may be its `in`. Elsewhere `out` may be NULL. */
RONDO_API rondo_status rondo_reduce(rondo_communicator* communicator, const void* in, void* out,
                                    size_t count, rondo_type type, rondo_op op, int root,
                                    rondo_request** request);

/* Reduces `in` and cuts the result into one share per rank: `out` receives this rank's. Rank r's
 * share has counts[r] elements, equal arrays on all ranks; with NULL each has `out_count`. */
RONDO_API rondo_status rondo_reduce_scatter(rondo_communicator* communicator, const void* in,
                                            void* out, size_t out_count, const size_t* counts,
                                            rondo_type type, rondo_op op, rondo_request** request);

/* Replaces `data` on every rank by that of `root`. */
RONDO_API rondo_status rondo_broadcast(rondo_communicator* communicator, void* data, size_t count,
                                       rondo_type type, int root, rondo_request** request);

/* Concatenates `in` of all ranks, in rank order, into `out`. Rank r passes counts[r] elements;
 * with NULL each passes `in_count`. `in` may be this rank's own part of `out`. */
RONDO_API rondo_status rondo_allgather(rondo_communicator* communicator, const void* in,
                                       size_t in_count, void* out, const size_t* counts,
                                       rondo_type type, rondo_request** request);

/* `in` has `count` elements for each rank, `out` receives as many of each. They do not overlap. */
RONDO_API rondo_status rondo_alltoall(rondo_communicator* communicator, const void* in, void* out,
                                      size_t count, rondo_type type, rondo_request** request);

/* The same with parts of any length: in_counts[r] elements go to rank r, out_counts[r] come from
 * it. What one rank sends another, that one must expect. */
RONDO_API rondo_status rondo_alltoallv(rondo_communicator* communicator, const void* in,
                                       const size_t* in_counts, void* out, const size_t* out_counts,
                                       rondo_type type, rondo_request** request);

/* Concatenates `in` of all ranks, in rank order, into `out` of `root`; elsewhere `out` may be NULL.
 * Counts as in rondo_allgather(). The root's `in` may be its own part of `out`. */
RONDO_API rondo_status rondo_gather(rondo_communicator* communicator, const void* in,
                                    size_t in_count, void* out, const size_t* counts,
                                    rondo_type type, int root, rondo_request** request);

/* Cuts `in` of `root` into one part for each rank; elsewhere `in` may be NULL. Rank r receives
 * counts[r] elements; with NULL each receives `out_count`. The root's `out` may be its own part of
 * `in`. */
RONDO_API rondo_status rondo_scatter(rondo_communicator* communicator, const void* in, void* out,
                                     size_t out_count, const size_t* counts, rondo_type type,
                                     int root, rondo_request** request);

/* The running reduction: `out` is that of `in` of the ranks 0 to this one; in == out is allowed,
 * and every op but RONDO_AVG. exscan leaves this rank's own `in` out, and rank 0's `out` as it is.
 */
RONDO_API rondo_status rondo_scan(rondo_communicator* communicator, const void* in, void* out,
                                  size_t count, rondo_type type, rondo_op op,
                                  rondo_request** request);
RONDO_API rondo_status rondo_exscan(rondo_communicator* communicator, const void* in, void* out,
                                    size_t count, rondo_type type, rondo_op op,
                                    rondo_request** request);

/* Completes when every rank has posted it. */
RONDO_API rondo_status rondo_barrier(rondo_communicator* communicator, rondo_request** request);

/* ---- Between two ranks. 0 <= tag < 2^30 ---- */

/* Completes when `data` may be written again. */
RONDO_API rondo_status rondo_send(rondo_communicator* communicator, const void* data, size_t count,
                                  rondo_type type, int peer, int tag, rondo_request** request);

/* At most `count` elements; a longer message is an error. */
RONDO_API rondo_status rondo_recv(rondo_communicator* communicator, void* data, size_t count,
                                  rondo_type type, int peer, int tag, rondo_request** request);

/* Sends to each neighbour and receives from it, all at once. */
RONDO_API rondo_status rondo_sendrecv(rondo_communicator* communicator,
                                      const rondo_neighbour* neighbours, size_t neighbour_count,
                                      rondo_request** request);

/* A number, as a token. What this rank stored before is seen by the peer after its wait. */
RONDO_API rondo_status rondo_put_signal(rondo_communicator* communicator, int peer, uint64_t value,
                                        int tag, rondo_request** request);
/* Stores the number into `value`, which is lent until the request completes. */
RONDO_API rondo_status rondo_wait_signal(rondo_communicator* communicator, int peer,
                                         uint64_t* value, int tag, rondo_request** request);

/* Where the same memory of every rank is: pointers[r] is that of rank r where this rank can reach
 * it, else NULL. `mine` is rondo_allocate() memory. Collective; signals and barriers order who
 * writes when. */
RONDO_API rondo_status rondo_share(rondo_communicator* communicator, void* mine, size_t bytes,
                                   void** pointers);

/* ---- Requests ---- */

/* Sets *complete to 1 when the operation has completed, else to 0. Does not wait. */
RONDO_API rondo_status rondo_request_test(rondo_request* request, int* complete);

/* 1 when the operation has completed or failed, else 0. Makes no progress and looks for no lost
 * peers, so many requests are asked in little time, after one rondo_world_progress(). A null handle
 * counts as complete. */
RONDO_API int rondo_request_finished(const rondo_request* request);

/* Returns when the operation has completed, or fails after rondo_options.deadline_ms. */
RONDO_API rondo_status rondo_request_wait(rondo_request* request);

/* Waits for at most `limit_ns`; *complete is 0 when that was too short, and nothing has changed. */
RONDO_API rondo_status rondo_request_wait_for(rondo_request* request, int64_t limit_ns,
                                              int* complete);

/* Waits for all of `count` requests. NULL counts as complete. Ends at the first, in their order,
 * that failed; those behind it may be pending then. */
RONDO_API rondo_status rondo_request_wait_all(rondo_request* const* requests, size_t count);

/* The same for at most `limit_ns`; *complete is 0 when that was too short. They may be waited for
 * again then. */
RONDO_API rondo_status rondo_request_wait_all_for(rondo_request* const* requests, size_t count,
                                                  int64_t limit_ns, int* complete);

/* Waits for at most `limit_ns`, or, if that is negative, to the deadline, until one of `count`
 * requests has completed: *index is which. Each is given once; it remains to be freed. NULL and
 * what was given before are passed over. *index is `count` when the limit was too short, or nothing
 * is left. */
RONDO_API rondo_status rondo_request_wait_any(rondo_request* const* requests, size_t count,
                                              int64_t limit_ns, size_t* index);

/* Gives up a pending rondo_recv() or rondo_wait_signal(). Anything else is left as it is. */
RONDO_API rondo_status rondo_request_cancel(rondo_request* request);

/* The failure of the operation; RONDO_OK while it is pending and after success. */
RONDO_API rondo_status rondo_request_status(const rondo_request* request);

/* Waits for an operation that is pending. NULL does nothing. */
RONDO_API void rondo_request_free(rondo_request* request);

/* ---- Plans: operations whose arguments are given once. Making one is local ---- */

/* In place. */
RONDO_API rondo_status rondo_plan_allreduce(rondo_communicator* communicator, void* data,
                                            size_t count, rondo_type type, rondo_op op,
                                            rondo_plan** plan);
RONDO_API rondo_status rondo_plan_broadcast(rondo_communicator* communicator, void* data,
                                            size_t count, rondo_type type, int root,
                                            rondo_plan** plan);
RONDO_API rondo_status rondo_plan_allgather(rondo_communicator* communicator, const void* in,
                                            size_t in_count, void* out, const size_t* counts,
                                            rondo_type type, rondo_plan** plan);
RONDO_API rondo_status rondo_plan_reduce_scatter(rondo_communicator* communicator, const void* in,
                                                 void* out, size_t out_count, const size_t* counts,
                                                 rondo_type type, rondo_op op, rondo_plan** plan);
RONDO_API rondo_status rondo_plan_sendrecv(rondo_communicator* communicator,
                                           const rondo_neighbour* neighbours,
                                           size_t neighbour_count, rondo_plan** plan);

/* Posts the operation. Buffers are lent only while one of its operations is pending. */
RONDO_API rondo_status rondo_plan_start(rondo_plan* plan, rondo_request** request);

/* NULL does nothing. */
RONDO_API void rondo_plan_free(rondo_plan* plan);

#ifdef __cplusplus
}
#endif

#endif /* RONDO_RONDO_H */
