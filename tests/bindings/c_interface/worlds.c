/* A world: how it is made, its memory, what it tells, and how it fails. */

/* Barriers of threads and the CPUs of a thread are no part of C11. */
#define _GNU_SOURCE

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

void memory(rondo_world* world) {
  rondo_communicator* ranks = rondo_world_communicator(world);
  const int rank = rondo_world_rank(world);
  const int size = rondo_world_size(world);
  void* mine = NULL;
  void* nothing = NULL;
  void* everyone[MOST_RANKS];
  const size_t before = rondo_arena_used_bytes(world);
  EXPECT_OK(rondo_allocate(world, 64, &mine));
  EXPECT_OK(rondo_allocate(world, 0, &nothing));
  EXPECT(nothing != NULL);
  EXPECT(rondo_arena_used_bytes(world) > before);
  EXPECT(rondo_arena_contains(world, mine, 64) == 1);
  EXPECT(rondo_arena_contains(world, &mine, sizeof mine) == 0);
  EXPECT((uintptr_t)mine % 64 == 0);
  *(int*)mine = rank;
  EXPECT_OK(rondo_share(ranks, mine, 64, everyone));
  EXPECT_OK(rondo_barrier(ranks, NULL));
  for (int r = 0; r < size; ++r) EXPECT(everyone[r] != NULL && *(int*)everyone[r] == r);
  EXPECT_OK(rondo_barrier(ranks, NULL));
  EXPECT_OK(rondo_deallocate(world, mine));
  EXPECT_INVALID(rondo_deallocate(world, mine));
  EXPECT_OK(rondo_deallocate(world, nothing));
  EXPECT_OK(rondo_deallocate(world, NULL));
  EXPECT(rondo_arena_used_bytes(world) == before);
}

static pthread_barrier_t allocating;

static void* allocate_often(void* context) {
  enum { at_once = 8 };
  int* memory[at_once] = {NULL};
  pthread_barrier_wait(&allocating);
  for (int i = 0; i < 1000; ++i) {
    const int slot = i % at_once;
    void* made = NULL;
    if (memory[slot] != NULL) EXPECT(*memory[slot] == slot);
    EXPECT_OK(rondo_deallocate(context, memory[slot]));
    EXPECT_OK(rondo_allocate(context, 64 + (size_t)i % 100, &made));
    memory[slot] = made;
    if (made != NULL) *memory[slot] = slot;
  }
  for (int slot = 0; slot < at_once; ++slot) EXPECT_OK(rondo_deallocate(context, memory[slot]));
  return NULL;
}

void memory_of_threads(void) {
  const rondo_options options = {.struct_size = sizeof options, .multiple_threads = 1};
  rondo_world* world = NULL;
  pthread_t threads[2];
  EXPECT_OK(rondo_make_threads(1, &options, &world));
  pthread_barrier_init(&allocating, NULL, 2);
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, allocate_often, world);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&allocating);
  EXPECT(rondo_arena_used_bytes(world) == 0);
  rondo_world_free(world);
}

/* Memory of malloc(), which shares its first and last page with other things. */
void adoption(rondo_world* world) {
  const size_t count = 200000;
  const size_t bytes = count * sizeof(float);
  const size_t before = rondo_arena_used_bytes(world);
  float* data = malloc(bytes + 4096);
  float* buffer = data + 1024 / sizeof(float);
  rondo_adopted* adopted = NULL;
  rondo_adopted* second = NULL;
  for (size_t i = 0; i < count; ++i) buffer[i] = 1;
  EXPECT_OK(rondo_adopt(world, buffer, bytes, &adopted));
  EXPECT(rondo_arena_contains(world, buffer, bytes) == 1);
  EXPECT_INVALID(rondo_adopt(world, buffer, bytes, &second));
  EXPECT(second == NULL);
  EXPECT_OK(rondo_allreduce(rondo_world_communicator(world), buffer, buffer, count, RONDO_F32,
                            RONDO_SUM, NULL));
  rondo_adopted_free(adopted);
  EXPECT(rondo_arena_contains(world, buffer, bytes) == 0);
  EXPECT(rondo_arena_used_bytes(world) == before);
  EXPECT(buffer[0] == (float)rondo_world_size(world) && buffer[count - 1] == buffer[0]);
  free(data);
  EXPECT_OK(rondo_adopt(world, NULL, 0, &adopted));
  rondo_adopted_free(adopted);
  rondo_adopted_free(NULL);
}

void facts(rondo_world* world) {
  const int rank = rondo_world_rank(world);
  rondo_rank_info info = {.struct_size = sizeof info};
  rondo_counters counters = {.struct_size = sizeof counters};
  EXPECT_OK(rondo_world_rank_info(world, rank, &info));
  EXPECT(info.pid > 0 && info.node == 0 && strlen(info.host) > 0);
  EXPECT(rondo_world_nodes(world) == 1);
  EXPECT(strcmp(rondo_world_route(world), "none") == 0);
  EXPECT_OK(rondo_world_counters(world, &counters));
  EXPECT(counters.operations > 0 && counters.fabric_bytes == 0);
  /* A program of an older version has a shorter structure. */
  counters.struct_size = offsetof(rondo_counters, loaded_bytes);
  counters.operations = 0;
  counters.loaded_bytes = 123;
  EXPECT_OK(rondo_world_counters(world, &counters));
  EXPECT(counters.operations > 0 && counters.loaded_bytes == 123);
  EXPECT_OK(rondo_world_progress(world));
  EXPECT_OK(rondo_world_progress_for(world, 1000));
}

/* The program polls, and never waits in the library. */
void event_loop(rondo_world* world) {
  int32_t sum = rondo_world_rank(world);
  const int ranks = rondo_world_size(world);
  int done = 0;
  rondo_request* request = NULL;
  struct pollfd entry = {.fd = -1, .events = POLLIN};
  EXPECT_INVALID(rondo_world_arm(world, &done));
  EXPECT_INVALID(rondo_world_event_descriptor(world, -1, &entry.fd));
  EXPECT_INVALID(rondo_world_event_descriptor(world, 0, NULL));
  EXPECT_OK(rondo_world_event_descriptor(world, 0, &entry.fd));
  EXPECT_INVALID(rondo_world_arm(world, NULL));
  EXPECT_OK(rondo_allreduce(rondo_world_communicator(world), &sum, &sum, 1, RONDO_I32, RONDO_SUM,
                            &request));
  EXPECT_OK(rondo_request_test(request, &done));
  while (!done) {
    int armed = 0;
    EXPECT_OK(rondo_world_arm(world, &armed));
    if (armed) EXPECT(poll(&entry, 1, -1) == 1);
    EXPECT_OK(rondo_request_test(request, &done));
  }
  rondo_request_free(request);
  EXPECT(sum == ranks * (ranks - 1) / 2);
}

/* An allgather of threads. */
static char gathered[MOST_RANKS * 4096];
static pthread_barrier_t gathering;

static int gather(const void* mine, void* all, size_t bytes, void* context) {
  const int* rank = context;
  if (bytes > 4096) return 1;
  memcpy(gathered + (size_t)*rank * bytes, mine, bytes);
  pthread_barrier_wait(&gathering);
  memcpy(all, gathered, 2 * bytes);
  pthread_barrier_wait(&gathering);
  return 0;
}

static int gather_nothing(const void* mine, void* all, size_t bytes, void* context) {
  (void)mine;
  (void)all;
  (void)bytes;
  (void)context;
  return 17;
}

static void* create_rank(void* context) {
  const int rank = *(int*)context;
  rondo_world* world = NULL;
  int32_t sum = rank + 1;
  EXPECT_OK(rondo_create(rank, 2, gather, context, NULL, &world));
  EXPECT(rondo_world_rank(world) == rank && rondo_world_size(world) == 2);
  EXPECT_OK(
      rondo_allreduce(rondo_world_communicator(world), &sum, &sum, 1, RONDO_I32, RONDO_SUM, NULL));
  EXPECT(sum == 3);
  rondo_world_free(world);
  return NULL;
}

void create(void) {
  int ranks[2] = {0, 1};
  pthread_t other;
  rondo_world* world = NULL;
  pthread_barrier_init(&gathering, NULL, 2);
  pthread_create(&other, NULL, create_rank, &ranks[1]);
  create_rank(&ranks[0]);
  pthread_join(other, NULL);
  pthread_barrier_destroy(&gathering);
  EXPECT_INVALID(rondo_create(2, 2, gather, ranks, NULL, &world));
  EXPECT_INVALID(rondo_create(0, 2, NULL, NULL, NULL, &world));
  EXPECT_INVALID(rondo_create(0, 2, gather, ranks, NULL, NULL));
  EXPECT(rondo_create(0, 2, gather_nothing, NULL, NULL, &world) == RONDO_RENDEZVOUS_FAILED);
  EXPECT(strstr(rondo_last_error(), "17") != NULL);
  EXPECT(world == NULL);
}

/* The error names what was done, and it is the same on all ranks. */
void mismatch(rondo_world* world) {
  rondo_communicator* ranks = rondo_world_communicator(world);
  if (rondo_world_size(world) == 1) return;
  float data[2] = {0, 0};
  const size_t count = rondo_world_rank(world) == 0 ? 1 : 2;
  rondo_request* request = NULL;
  EXPECT_OK(rondo_allreduce(ranks, data, data, count, RONDO_F32, RONDO_SUM, &request));
  EXPECT(rondo_request_wait(request) == RONDO_MISMATCH);
  EXPECT(strstr(rondo_last_error(), "allreduce") != NULL);
  EXPECT(rondo_request_status(request) == RONDO_MISMATCH);
  rondo_request_free(request);
}

/* Ends a wait that would last to the deadline. */
static void abort_stalled(const rondo_stall* stall, void* context) {
  EXPECT(stall->rank == 0 && stall->missing_count == 1 && stall->missing[0] == 1);
  EXPECT(strstr(stall->operation, "barrier") != NULL);
  rondo_world* const* worlds = context;
  EXPECT_OK(rondo_world_abort(worlds[1], "enough"));
}

void flight_record(rondo_world* world) {
  const char* path = getenv("RONDO_TEST_RECORD");
  if (path != NULL && rondo_world_rank(world) == 0) {
    EXPECT_OK(rondo_world_set_dump_folder(world, ""));
    EXPECT_OK(rondo_world_dump_flight_record(world, path));
    EXPECT(remove(path) == 0);
    EXPECT(rondo_world_dump_flight_record(world, "/dev/null/no/such/folder") == RONDO_SYSTEM_ERROR);
  }
}

/* Two ranks on one CPU have to share it. */
void oversubscription(void) {
  rondo_world* worlds[2] = {NULL, NULL};
  cpu_set_t before;
  cpu_set_t one;
  EXPECT(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  EXPECT(sched_setaffinity(0, sizeof one, &one) == 0);
  EXPECT_OK(rondo_make_threads(2, NULL, worlds));
  EXPECT(rondo_world_oversubscribed(worlds[0]) == 1);
  EXPECT(rondo_world_oversubscribed(worlds[1]) == 1);
  rondo_world_free(worlds[0]);
  rondo_world_free(worlds[1]);
  EXPECT_OK(rondo_make_threads(1, NULL, worlds));
  EXPECT(rondo_world_oversubscribed(worlds[0]) == 0);
  rondo_world_free(worlds[0]);
  EXPECT(sched_setaffinity(0, sizeof before, &before) == 0);
}

/* The other rank does not come. */
void deadline(void) {
  rondo_world* worlds[2] = {NULL, NULL};
  const rondo_options options = {.struct_size = sizeof options, .deadline_ms = 1};
  rondo_request* request = NULL;
  int complete = 1;
  EXPECT_OK(rondo_make_threads(2, &options, worlds));
  EXPECT_OK(rondo_barrier(rondo_world_communicator(worlds[0]), &request));
  EXPECT_OK(rondo_request_test(request, &complete));
  EXPECT(complete == 0);
  EXPECT(rondo_request_wait(request) == RONDO_DEADLINE_EXCEEDED);
  EXPECT(rondo_last_error_rank() == 1);
  rondo_request_free(request);
  rondo_world_free(worlds[0]);
  rondo_world_free(worlds[1]);
}

void stall_and_abort(void) {
  rondo_world* worlds[2] = {NULL, NULL};
  rondo_options options = {.struct_size = sizeof options, .stall_warning_ms = 1};
  rondo_request* request = NULL;
  options.on_stall = abort_stalled;
  options.on_stall_context = worlds;
  EXPECT_OK(rondo_make_threads(2, &options, worlds));
  EXPECT_OK(rondo_barrier(rondo_world_communicator(worlds[0]), &request));
  EXPECT(rondo_request_wait(request) == RONDO_ABORTED);
  EXPECT(strstr(rondo_last_error(), "enough") != NULL);
  rondo_world_free(worlds[1]);
  rondo_world_free(worlds[0]);
  rondo_request_free(request); /* outlives its world */
}
