/* Arguments that are refused, of every function. */

#include <stdint.h>
#include <string.h>

#include "checks.h"

/* Nothing of this is posted: what follows works. */
void wrong_arguments(rondo_world* world) {
  rondo_communicator* ranks = rondo_world_communicator(world);
  const int size = rondo_world_size(world);
  float data[MOST_RANKS] = {0};
  const size_t counts[MOST_RANKS] = {9, 9, 9, 9, 9, 9, 9, 9};
  rondo_request* request = (rondo_request*)data;
  rondo_plan* plan = NULL;
  int complete = 0;
  EXPECT_INVALID(rondo_allreduce(NULL, data, data, 1, RONDO_F32, RONDO_SUM, &request));
  EXPECT(request == NULL);
  EXPECT(strstr(rondo_last_error(), "communicator") != NULL);
  EXPECT(rondo_last_error_rank() == -1);
  EXPECT_INVALID(rondo_allreduce(ranks, data, data, 1, 12, RONDO_SUM, &request));
  EXPECT(strstr(rondo_last_error(), "type 12") != NULL);
  EXPECT_INVALID(rondo_allreduce(ranks, data, data, 1, -1, RONDO_SUM, &request));
  EXPECT_INVALID(rondo_allreduce(ranks, data, data, 1, RONDO_F32, 8, &request));
  EXPECT_INVALID(rondo_allreduce(ranks, NULL, data, 1, RONDO_F32, RONDO_SUM, &request));
  EXPECT_INVALID(rondo_allreduce(ranks, data, NULL, 1, RONDO_F32, RONDO_SUM, NULL));
  EXPECT_INVALID(rondo_allreduce(ranks, data, data, SIZE_MAX, RONDO_F32, RONDO_SUM, NULL));
  EXPECT_INVALID(rondo_allreduce(ranks, data, data, SIZE_MAX / 4, RONDO_F32, RONDO_SUM, NULL));
  EXPECT_INVALID(
      rondo_allreduce(ranks, (char*)data + 1, (char*)data + 1, 1, RONDO_F32, RONDO_SUM, NULL));
  EXPECT_INVALID(rondo_reduce(ranks, data, data, 1, RONDO_F32, RONDO_SUM, size, NULL));
  EXPECT_INVALID(rondo_broadcast(ranks, data, 1, RONDO_F32, -1, NULL));
  EXPECT_INVALID(rondo_reduce_scatter(ranks, data, data, 1, counts, RONDO_F32, RONDO_SUM, NULL));
  EXPECT_INVALID(rondo_allgather(ranks, data, 1, data, counts, RONDO_F32, NULL));
  EXPECT_INVALID(rondo_alltoall(ranks, data, NULL, SIZE_MAX / 2, RONDO_F32, NULL));
  EXPECT_INVALID(rondo_alltoallv(ranks, data, NULL, data, counts, RONDO_F32, NULL));
  EXPECT_INVALID(rondo_gather(ranks, data, 1, NULL, NULL, RONDO_F32, -1, NULL));
  EXPECT_INVALID(
      rondo_gather(ranks, data, 1, NULL, NULL, RONDO_F32, rondo_world_rank(world), NULL));
  EXPECT_INVALID(
      rondo_scatter(ranks, NULL, data, 1, NULL, RONDO_F32, rondo_world_rank(world), NULL));
  EXPECT_INVALID(rondo_barrier(NULL, NULL));
  EXPECT_INVALID(rondo_send(ranks, data, 1, RONDO_F32, size, 0, NULL));
  EXPECT_INVALID(rondo_recv(ranks, data, 1, RONDO_F32, 0, -1, NULL));
  EXPECT_INVALID(rondo_put_signal(ranks, -1, 1, 0, NULL));
  EXPECT_INVALID(rondo_wait_signal(ranks, 0, NULL, 0, NULL));
  EXPECT_INVALID(rondo_share(ranks, data, 4, NULL));
  rondo_neighbour neighbour = {.struct_size = 0, .rank = 0};
  EXPECT_INVALID(rondo_sendrecv(ranks, &neighbour, 1, NULL));
  EXPECT_INVALID(rondo_sendrecv(ranks, NULL, 1, NULL));
  EXPECT_INVALID(rondo_plan_sendrecv(ranks, &neighbour, 1, &plan));
  EXPECT_INVALID(rondo_plan_allreduce(ranks, data, 1, 77, RONDO_SUM, &plan));
  EXPECT_INVALID(rondo_plan_broadcast(ranks, data, 1, RONDO_F32, size, &plan));
  EXPECT_INVALID(rondo_plan_allgather(ranks, data, 1, data, counts, RONDO_F32, &plan));
  EXPECT_INVALID(rondo_plan_reduce_scatter(NULL, data, data, 1, NULL, RONDO_F32, RONDO_SUM, &plan));
  EXPECT_INVALID(rondo_plan_allreduce(ranks, data, 1, RONDO_F32, RONDO_SUM, NULL));
  EXPECT(plan == NULL);
  EXPECT_INVALID(rondo_plan_start(NULL, NULL));
  EXPECT_INVALID(rondo_communicator_split(ranks, 0, 0, NULL));
  EXPECT(rondo_communicator_rank(NULL) == -1 && rondo_communicator_size(NULL) == -1);

  EXPECT_INVALID(rondo_request_test(NULL, &complete));
  EXPECT_INVALID(rondo_request_wait(NULL));
  EXPECT_INVALID(rondo_request_wait_for(NULL, 0, &complete));
  EXPECT_INVALID(rondo_request_cancel(NULL));
  EXPECT_INVALID(rondo_request_status(NULL));
  EXPECT_OK(rondo_barrier(ranks, &request));
  EXPECT_INVALID(rondo_request_test(request, NULL));
  EXPECT_INVALID(rondo_request_wait_for(request, -1, &complete));
  EXPECT_OK(rondo_request_wait(request));
  rondo_request_free(request);

  rondo_rank_info info = {.struct_size = sizeof info};
  EXPECT_INVALID(rondo_world_rank_info(world, size, &info));
  EXPECT_INVALID(rondo_world_rank_info(world, 0, NULL));
  info.struct_size = 0;
  EXPECT_INVALID(rondo_world_rank_info(world, 0, &info));
  rondo_counters counters = {.struct_size = 1};
  EXPECT_INVALID(rondo_world_counters(world, &counters));
  EXPECT_INVALID(rondo_world_abort(world, NULL));
  EXPECT_INVALID(rondo_world_set_dump_folder(world, NULL));
  EXPECT_INVALID(rondo_world_dump_flight_record(world, NULL));
  EXPECT_INVALID(rondo_allocate(world, 1, NULL));
}

void null_worlds(void) {
  void* pointer = NULL;
  EXPECT(rondo_world_rank(NULL) == -1 && rondo_world_size(NULL) == -1);
  EXPECT(rondo_world_nodes(NULL) == -1 && rondo_world_oversubscribed(NULL) == -1);
  EXPECT(rondo_world_route(NULL) == NULL && rondo_world_communicator(NULL) == NULL);
  EXPECT_INVALID(rondo_world_progress(NULL));
  EXPECT_INVALID(rondo_world_progress_for(NULL, 1));
  EXPECT_INVALID(rondo_world_event_descriptor(NULL, 0, (int*)&pointer));
  EXPECT_INVALID(rondo_world_arm(NULL, (int*)&pointer));
  EXPECT_INVALID(rondo_world_abort(NULL, "why"));
  EXPECT_INVALID(rondo_allocate(NULL, 1, &pointer));
  EXPECT_INVALID(rondo_deallocate(NULL, NULL));
  EXPECT_INVALID(rondo_adopt(NULL, &pointer, 1, (rondo_adopted**)&pointer));
  EXPECT(rondo_arena_contains(NULL, &pointer, 1) == 0 && rondo_arena_used_bytes(NULL) == 0);
  rondo_world_free(NULL);
  rondo_communicator_free(NULL);
  rondo_request_free(NULL);
  rondo_plan_free(NULL);
}

void wrong_options(void) {
  rondo_world* worlds[1] = {NULL};
  rondo_options options = {.struct_size = 0};
  EXPECT_INVALID(rondo_attach(NULL, NULL));
  EXPECT_INVALID(rondo_make_threads(1, NULL, NULL));
  EXPECT_INVALID(rondo_make_threads(0, NULL, worlds));
  EXPECT_INVALID(rondo_attach(&options, worlds));
  options.struct_size = sizeof options;
  options.waiting = 4;
  EXPECT_INVALID(rondo_make_threads(1, &options, worlds));
  options.waiting = RONDO_WAIT_BLOCK;
  options.deadline_ms = -1;
  EXPECT_INVALID(rondo_make_threads(1, &options, worlds));
  EXPECT(strstr(rondo_last_error(), "deadline_ms") != NULL);
  /* A program of a later version, which sets a field that is unknown here. */
  struct {
    rondo_options known;
    uint64_t unknown;
  } later = {.known = {.struct_size = sizeof later}, .unknown = 0};
  EXPECT_OK(rondo_make_threads(1, &later.known, worlds));
  rondo_world_free(worlds[0]);
  later.unknown = 1;
  EXPECT_INVALID(rondo_make_threads(1, &later.known, worlds));
}
