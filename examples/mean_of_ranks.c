/* Every rank contributes an array; all get the mean: the C version of mean_of_ranks.cpp. Start it
 * with
 *
 *   rondo run -n 2 -- mean_of_ranks_c
 */
#include <stdio.h>
#include <stdlib.h>

#include <rondo/rondo.h>

/* Every function of Rondo returns a status; the text says what happened and what to do. */
static void check(rondo_status status) {
  if (status == RONDO_OK) return;
  fprintf(stderr, "mean_of_ranks: %s: %s\n", rondo_status_name(status), rondo_last_error());
  exit(1);
}

int main(void) {
  const size_t count = 1000000;
  rondo_world* world = NULL;
  rondo_request* request = NULL;
  void* memory = NULL;

  check(rondo_attach(NULL, &world));
  check(rondo_allocate(world, count * sizeof(float), &memory));
  float* data = memory;
  for (size_t i = 0; i < count; ++i) data[i] = (float)rondo_world_rank(world);

  check(rondo_allreduce(rondo_world_communicator(world), data, data, count, RONDO_F32, RONDO_SUM,
                        &request));
  /* ... compute something else meanwhile, and call rondo_world_progress() now and then ... */
  check(rondo_request_wait(request));
  rondo_request_free(request);

  for (size_t i = 0; i < count; ++i) data[i] /= (float)rondo_world_size(world);
  printf("rank %d of %d: mean %g\n", rondo_world_rank(world), rondo_world_size(world), data[0]);
  rondo_world_free(world);
  return 0;
}
