/* Calls every function of rondo.h, as a program in C11 does: c-interface-test RANKS. The ranks are
 * threads, and the last step is done by processes too: c-interface-test --attached joins the job of
 * its launcher. What does not hold is printed. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

static int failures = 0;
static pthread_mutex_t failing = PTHREAD_MUTEX_INITIALIZER;

void expect(int holds, const char* what, const char* file, int line) {
  if (holds) return;
  pthread_mutex_lock(&failing);
  failures += 1;
  fprintf(stderr, "%s:%d: %s; last error: %s\n", file, line, what, rondo_last_error());
  pthread_mutex_unlock(&failing);
}

static void names(void) {
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", RONDO_VERSION_MAJOR, RONDO_VERSION_MINOR,
           RONDO_VERSION_PATCH);
  EXPECT(strcmp(rondo_version(), version) == 0);
  for (rondo_status status = RONDO_OK; status <= RONDO_LINK_UNAVAILABLE; ++status) {
    EXPECT(strcmp(rondo_status_name(status), "unknown") != 0);
  }
  for (rondo_status status = RONDO_INVALID_ARGUMENT; status <= RONDO_INTERNAL_ERROR; ++status) {
    EXPECT(strcmp(rondo_status_name(status), "unknown") != 0);
  }
  EXPECT(strcmp(rondo_status_name(42), "unknown") == 0);
  const size_t sizes[] = {4, 8, 2, 4, 8, 1, 2, 1, 2, 2, 4, 8};
  for (rondo_type type = RONDO_F32; type <= RONDO_U64; ++type) {
    EXPECT(rondo_type_size(type) == sizes[type]);
  }
  EXPECT(rondo_type_size(12) == 0);
}

static void* run_rank(void* handle) {
  rondo_world* world = handle;
  reduce_all_types(world);
  other_collectives(rondo_world_communicator(world));
  point_to_point(rondo_world_communicator(world));
  plans(rondo_world_communicator(world));
  several_requests(rondo_world_communicator(world));
  limited_wait_for_all(rondo_world_communicator(world));
  memory(world);
  adoption(world);
  split(rondo_world_communicator(world));
  facts(world);
  event_loop(world);
  wrong_arguments(world);
  EXPECT_OK(rondo_barrier(rondo_world_communicator(world), NULL));
  flight_record(world);
  mismatch(world);
  rondo_world_free(world);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  names();
  null_worlds();
  if (strcmp(argv[1], "--attached") == 0) {
    rondo_world* world = NULL;
    EXPECT_OK(rondo_attach(NULL, &world));
    if (world != NULL) run_rank(world);
    return failures == 0 ? 0 : 1;
  }
  const int ranks = atoi(argv[1]);
  if (ranks < 1 || ranks > MOST_RANKS) return 2;
  wrong_options();
  create();
  oversubscription();
  deadline();
  stall_and_abort();
  memory_of_threads();
  rondo_world* worlds[MOST_RANKS];
  pthread_t threads[MOST_RANKS];
  EXPECT_OK(rondo_make_threads(ranks, NULL, worlds));
  if (failures != 0) return 1;
  for (int r = 0; r < ranks; ++r) pthread_create(&threads[r], NULL, run_rank, worlds[r]);
  for (int r = 0; r < ranks; ++r) pthread_join(threads[r], NULL);
  return failures == 0 ? 0 : 1;
}
