/* Calls every function of rondo.h, as a program in C11 does: c_interface RANKS. The ranks are
 * threads, and the last step is done by processes too: c_interface --attached joins the job of its
 * launcher. What does not hold is printed. */

/* Barriers of threads are no part of C11. */
#define _POSIX_C_SOURCE 200809L

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rondo/rondo.h>

#define MOST_RANKS 8

static int failures = 0;
static pthread_mutex_t failing = PTHREAD_MUTEX_INITIALIZER;

static void expect(int holds, const char* what, int line) {
  if (holds) return;
  pthread_mutex_lock(&failing);
  failures += 1;
  fprintf(stderr, "c_interface.c:%d: %s; last error: %s\n", line, what, rondo_last_error());
  pthread_mutex_unlock(&failing);
}

#define EXPECT(condition) expect((condition), #condition, __LINE__)
#define EXPECT_OK(call) expect((call) == RONDO_OK, #call, __LINE__)
#define EXPECT_INVALID(call) expect((call) == RONDO_INVALID_ARGUMENT, #call, __LINE__)

/* A number from 0 to 2047 in half precision. */
static uint16_t half_of(int value) {
  int exponent = 0;
  if (value == 0) return 0;
  while (value >> (exponent + 1) != 0) exponent += 1;
  return (uint16_t)(((exponent + 15) << 10) | ((value << (10 - exponent)) & 0x3FF));
}

/* Sets element i of a buffer of any type to a small number. */
static void store(void* data, size_t i, rondo_type type, int value) {
  const float single = (float)value;
  uint32_t bits = 0;
  switch (type) {
    case RONDO_F32:
      ((float*)data)[i] = single;
      break;
    case RONDO_F64:
      ((double*)data)[i] = value;
      break;
    case RONDO_BF16:
      memcpy(&bits, &single, sizeof bits);
      ((uint16_t*)data)[i] = (uint16_t)(bits >> 16);
      break;
    case RONDO_F16:
      ((uint16_t*)data)[i] = half_of(value);
      break;
    case RONDO_I32:
    case RONDO_U32:
      ((uint32_t*)data)[i] = (uint32_t)value;
      break;
    case RONDO_I64:
    case RONDO_U64:
      ((uint64_t*)data)[i] = (uint64_t)value;
      break;
    case RONDO_I16:
    case RONDO_U16:
      ((uint16_t*)data)[i] = (uint16_t)value;
      break;
    default:
      ((uint8_t*)data)[i] = (uint8_t)value;
      break;
  }
}

static int is_floating(rondo_type type) {
  return type == RONDO_F32 || type == RONDO_F64 || type == RONDO_BF16 || type == RONDO_F16;
}

/* What a rank gives, and what all ranks together come to. */
static int given(rondo_op op, int rank) { return op == RONDO_AVG ? 2 * (rank + 1) : rank + 1; }

static int reduced(rondo_op op, int size) {
  int result = given(op, 0);
  for (int rank = 1; rank < size; ++rank) {
    const int next = given(op, rank);
    if (op == RONDO_SUM || op == RONDO_AVG) result += next;
    if (op == RONDO_MAX) result = next;
    if (op == RONDO_PROD) result *= next;
    if (op == RONDO_BIT_AND) result &= next;
    if (op == RONDO_BIT_OR) result |= next;
    if (op == RONDO_BIT_XOR) result ^= next;
  }
  return op == RONDO_AVG ? result / size : result;
}

static int holds(const void* data, size_t i, rondo_type type, int value) {
  uint64_t expected = 0;
  store(&expected, 0, type, value);
  const size_t size = rondo_type_size(type);
  return memcmp((const char*)data + i * size, &expected, size) == 0;
}

/* Every type and reduction, in place and from one buffer into another, in both kinds of memory. */
static void reduce_all_types(rondo_world* world) {
  rondo_communicator* ranks = rondo_world_communicator(world);
  const int rank = rondo_world_rank(world);
  const int size = rondo_world_size(world);
  enum { count = 100 };
  void* shared = NULL;
  EXPECT_OK(rondo_allocate(world, count * 8, &shared));
  for (rondo_type type = RONDO_F32; type <= RONDO_U64; ++type) {
    for (rondo_op op = RONDO_SUM; op <= RONDO_BIT_XOR; ++op) {
      const int mine = given(op, rank);
      const int expected = reduced(op, size);
      uint64_t in[count];
      uint64_t out[count];
      for (size_t i = 0; i < count; ++i) store(shared, i, type, mine);
      for (size_t i = 0; i < count; ++i) store(in, i, type, mine);
      if (is_floating(type) && op >= RONDO_BIT_AND) {
        EXPECT_INVALID(rondo_allreduce(ranks, in, out, count, type, op, NULL));
        continue;
      }
      EXPECT_OK(rondo_allreduce(ranks, shared, shared, count, type, op, NULL));
      EXPECT_OK(rondo_allreduce(ranks, in, out, count, type, op, NULL));
      EXPECT(holds(shared, count - 1, type, expected));
      EXPECT(holds(out, 0, type, expected) && holds(out, count - 1, type, expected));
      EXPECT(holds(in, 0, type, mine));
    }
  }
  EXPECT_OK(rondo_deallocate(world, shared));
}

/* Rank r has r + 1 elements at the last rank, and gets them back; then r goes to every rank r
 * times. */
static void parts_of_any_length(rondo_communicator* ranks) {
  const int rank = rondo_communicator_rank(ranks);
  const int size = rondo_communicator_size(ranks);
  const int last = size - 1;
  int32_t mine[MOST_RANKS];
  int32_t all[MOST_RANKS * MOST_RANKS];
  size_t counts[MOST_RANKS];
  for (int r = 0; r < size; ++r) counts[r] = (size_t)r + 1;
  for (int i = 0; i <= rank; ++i) mine[i] = 10 * rank + i;
  EXPECT_OK(rondo_gather(ranks, mine, counts[rank], rank == last ? all : NULL, counts, RONDO_I32,
                         last, NULL));
  for (int r = 0, at = 0; rank == last && r < size; ++r) {
    for (int i = 0; i <= r; ++i) EXPECT(all[at++] == 10 * r + i);
  }
  memset(mine, 0, sizeof mine);
  EXPECT_OK(rondo_scatter(ranks, rank == last ? all : NULL, mine, counts[rank], counts, RONDO_I32,
                          last, NULL));
  for (int i = 0; i <= rank; ++i) EXPECT(mine[i] == 10 * rank + i);

  int32_t in[MOST_RANKS * MOST_RANKS];
  size_t sent[MOST_RANKS];
  for (int r = 0; r < size; ++r) sent[r] = (size_t)rank;
  for (int i = 0; i < rank * size; ++i) in[i] = rank;
  for (int r = 0; r < size; ++r) counts[r] = (size_t)r;
  EXPECT_OK(rondo_alltoallv(ranks, in, sent, all, counts, RONDO_I32, NULL));
  for (int r = 0, at = 0; r < size; ++r) {
    for (int i = 0; i < r; ++i) EXPECT(all[at++] == r);
  }
}

/* Rank r has r + 1: sums are those of 1 to r + 1, and of 1 to r. */
static void running_sums(rondo_communicator* ranks) {
  const int rank = rondo_communicator_rank(ranks);
  const int64_t mine = rank + 1;
  int64_t sum = 0;
  EXPECT_OK(rondo_scan(ranks, &mine, &sum, 1, RONDO_I64, RONDO_SUM, NULL));
  EXPECT(sum == mine * (mine + 1) / 2);
  int64_t before = -1;
  EXPECT_OK(rondo_exscan(ranks, &mine, &before, 1, RONDO_I64, RONDO_SUM, NULL));
  EXPECT(before == (rank == 0 ? -1 : sum - mine));
  EXPECT_INVALID(rondo_scan(ranks, &mine, &sum, 1, RONDO_I64, RONDO_AVG, NULL));
}

static void several_as_one(rondo_communicator* ranks) {
  const int size = rondo_communicator_size(ranks);
  int32_t first[2] = {1, 2};
  int32_t second[1] = {3};
  void* const arrays[] = {first, second};
  const size_t counts[] = {2, 1};
  EXPECT_OK(rondo_allreduce_coalesced(ranks, arrays, counts, 2, RONDO_I32, RONDO_SUM, NULL));
  EXPECT(first[0] == size && first[1] == 2 * size && second[0] == 3 * size);
  EXPECT_INVALID(rondo_allreduce_coalesced(ranks, NULL, counts, 2, RONDO_I32, RONDO_SUM, NULL));
}

static void other_collectives(rondo_communicator* ranks) {
  const int rank = rondo_communicator_rank(ranks);
  const int size = rondo_communicator_size(ranks);
  const int last = size - 1;
  const int sum = size * (size + 1) / 2;
  int32_t in[MOST_RANKS * 2];
  int32_t out[MOST_RANKS * MOST_RANKS];
  for (int i = 0; i < 2 * size; ++i) in[i] = rank + 1;

  out[0] = -1;
  EXPECT_OK(
      rondo_reduce(ranks, in, rank == last ? out : NULL, 1, RONDO_I32, RONDO_SUM, last, NULL));
  EXPECT(out[0] == (rank == last ? sum : -1));

  EXPECT_OK(rondo_reduce_scatter(ranks, in, out, 2, NULL, RONDO_I32, RONDO_SUM, NULL));
  EXPECT(out[0] == sum && out[1] == sum);

  /* Rank r has r + 1 elements. */
  size_t counts[MOST_RANKS];
  for (int r = 0; r < size; ++r) counts[r] = (size_t)r + 1;
  const size_t mine = counts[rank];
  for (size_t i = 0; i < mine; ++i) in[i] = 10 * rank;
  EXPECT_OK(rondo_allgather(ranks, in, mine, out, counts, RONDO_I32, NULL));
  for (int r = 0, at = 0; r < size; ++r) {
    for (int i = 0; i <= r; ++i) EXPECT(out[at++] == 10 * r);
  }
  /* All of what was gathered is equal, so its sum over ranks is size times as much. */
  int32_t share[MOST_RANKS];
  EXPECT_OK(rondo_reduce_scatter(ranks, out, share, mine, counts, RONDO_I32, RONDO_SUM, NULL));
  EXPECT(share[0] == 10 * rank * size && share[mine - 1] == 10 * rank * size);

  EXPECT_OK(rondo_allgather(ranks, &rank, 1, out, NULL, RONDO_I32, NULL));
  EXPECT(out[0] == 0 && out[last] == last);
  parts_of_any_length(ranks);
  running_sums(ranks);
  several_as_one(ranks);

  int32_t root = rank;
  EXPECT_OK(rondo_broadcast(ranks, &root, 1, RONDO_I32, last, NULL));
  EXPECT(root == last);

  for (int r = 0; r < size; ++r) in[r] = 10 * rank + r;
  EXPECT_OK(rondo_alltoall(ranks, in, out, 1, RONDO_I32, NULL));
  for (int r = 0; r < size; ++r) EXPECT(out[r] == 10 * r + rank);

  EXPECT_OK(rondo_barrier(ranks, NULL));
}

/* Each rank sends to the next one, round the ring. */
static void point_to_point(rondo_communicator* ranks) {
  const int rank = rondo_communicator_rank(ranks);
  const int size = rondo_communicator_size(ranks);
  const int next = (rank + 1) % size;
  const int last = (rank + size - 1) % size;
  double out = rank;
  double in = -1;
  rondo_request* requests[4] = {NULL, NULL, NULL, NULL};
  uint64_t token = 0;
  EXPECT_OK(rondo_recv(ranks, &in, 1, RONDO_F64, last, 7, &requests[0]));
  EXPECT_OK(rondo_send(ranks, &out, 1, RONDO_F64, next, 7, &requests[1]));
  EXPECT_OK(rondo_wait_signal(ranks, last, &token, 3, &requests[2]));
  EXPECT_OK(rondo_put_signal(ranks, next, 100 + (uint64_t)rank, 3, &requests[3]));
  for (int i = 0; i < 4; ++i) {
    int complete = 0;
    while (!complete) EXPECT_OK(rondo_request_wait_for(requests[i], 1000000, &complete));
    EXPECT_OK(rondo_request_test(requests[i], &complete));
    EXPECT(complete == 1);
    EXPECT_OK(rondo_request_status(requests[i]));
    rondo_request_free(requests[i]);
  }
  EXPECT(in == last);
  EXPECT(token == 100 + (uint64_t)last);

  int32_t sent[2] = {rank, -rank};
  int32_t received[2] = {-1, -1};
  rondo_neighbour neighbours[2];
  memset(neighbours, 0, sizeof neighbours);
  for (int i = 0; i < 2; ++i) {
    neighbours[i].struct_size = sizeof neighbours[i];
    neighbours[i].rank = i == 0 ? next : last;
    neighbours[i].type = RONDO_I32;
    neighbours[i].out = &sent[i];
    neighbours[i].out_count = 1;
    neighbours[i].in = &received[i];
    neighbours[i].in_count = 1;
    /* With two ranks both neighbours are one. */
    neighbours[i].out_tag = i;
    neighbours[i].in_tag = 1 - i;
  }
  EXPECT_OK(rondo_sendrecv(ranks, neighbours, 2, NULL));
  EXPECT(received[0] == -next && received[1] == last);
  rondo_plan* plan = NULL;
  EXPECT_OK(rondo_plan_sendrecv(ranks, neighbours, 2, &plan));
  received[0] = received[1] = 0;
  EXPECT_OK(rondo_plan_start(plan, NULL));
  EXPECT(received[0] == -next && received[1] == last);
  rondo_plan_free(plan);

  /* A receive that nothing is sent for. */
  EXPECT_OK(rondo_recv(ranks, &in, 1, RONDO_F64, last, 8, &requests[0]));
  EXPECT_OK(rondo_request_cancel(requests[0]));
  rondo_request_free(requests[0]);
}

static void plans(rondo_communicator* ranks) {
  const int rank = rondo_communicator_rank(ranks);
  const int size = rondo_communicator_size(ranks);
  int64_t sum = 0;
  int64_t root = 0;
  int64_t all[MOST_RANKS];
  int64_t in[MOST_RANKS];
  int64_t share = 0;
  const int64_t mine = rank;
  rondo_plan* made[4] = {NULL, NULL, NULL, NULL};
  EXPECT_OK(rondo_plan_allreduce(ranks, &sum, 1, RONDO_I64, RONDO_SUM, &made[0]));
  EXPECT_OK(rondo_plan_broadcast(ranks, &root, 1, RONDO_I64, 0, &made[1]));
  EXPECT_OK(rondo_plan_allgather(ranks, &mine, 1, all, NULL, RONDO_I64, &made[2]));
  EXPECT_OK(rondo_plan_reduce_scatter(ranks, in, &share, 1, NULL, RONDO_I64, RONDO_MAX, &made[3]));
  for (int round = 1; round <= 2; ++round) {
    sum = round;
    root = rank + round;
    for (int r = 0; r < size; ++r) in[r] = rank * round;
    rondo_request* request = NULL;
    EXPECT_OK(rondo_plan_start(made[0], &request));
    for (int i = 1; i < 4; ++i) EXPECT_OK(rondo_plan_start(made[i], NULL));
    EXPECT_OK(rondo_request_wait(request));
    rondo_request_free(request);
    EXPECT(sum == round * size && root == round && all[size - 1] == size - 1);
    EXPECT(share == (size - 1) * round);
  }
  for (int i = 0; i < 4; ++i) rondo_plan_free(made[i]);
}

static void memory(rondo_world* world) {
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

/* Memory of malloc(), which shares its first and last page with other things. */
static void adoption(rondo_world* world) {
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

static void split(rondo_communicator* ranks) {
  const int rank = rondo_communicator_rank(ranks);
  const int size = rondo_communicator_size(ranks);
  rondo_communicator* part = NULL;
  /* Even and odd ranks, in reverse order. */
  EXPECT_OK(rondo_communicator_split(ranks, rank % 2, -rank, &part));
  const int members = rank % 2 == 0 ? (size + 1) / 2 : size / 2;
  EXPECT(rondo_communicator_size(part) == members);
  EXPECT(rondo_communicator_rank(part) == members - 1 - rank / 2);
  other_collectives(part);
  rondo_communicator_free(part);
  /* The last rank stays out. */
  EXPECT_OK(rondo_communicator_split(ranks, rank == size - 1 ? RONDO_NO_COLOR : 3, 0, &part));
  EXPECT((part == NULL) == (rank == size - 1));
  if (part != NULL) EXPECT(rondo_communicator_size(part) == size - 1);
  rondo_communicator_free(part);
  EXPECT_OK(rondo_communicator_dup(ranks, &part));
  EXPECT(rondo_communicator_rank(part) == rank && rondo_communicator_size(part) == size);
  other_collectives(part);
  rondo_communicator_free(part);
  /* That of the world stays. */
  rondo_communicator_free(ranks);
  EXPECT_OK(rondo_barrier(ranks, NULL));
}

/* The peer takes part only when the limit has passed. One request may stand there twice. */
static void limited_wait_for_all(rondo_communicator* ranks) {
  rondo_request* requests[3] = {NULL, NULL, NULL};
  uint64_t value = 0;
  int complete = -1;
  size_t index = 0;
  EXPECT_OK(rondo_request_wait_all_for(requests, 3, 0, &complete));
  EXPECT(complete == 1);
  if (rondo_communicator_size(ranks) > 1 && rondo_communicator_rank(ranks) == 0) {
    EXPECT_OK(rondo_wait_signal(ranks, 1, &value, 7, &requests[0]));
    requests[2] = requests[0];
    EXPECT_OK(rondo_request_wait_all_for(requests, 3, 1000, &complete));
    EXPECT(complete == 0);
    EXPECT_OK(rondo_request_wait_any(requests, 3, 0, &index));
    EXPECT(index == 3);
    EXPECT_OK(rondo_request_test(requests[0], &complete));
    EXPECT(complete == 0);
    EXPECT_OK(rondo_put_signal(ranks, 1, 1, 7, NULL));
    EXPECT_OK(rondo_request_wait_all_for(requests, 3, INT64_C(60000000000), &complete));
    EXPECT(complete == 1 && value == 2);
    rondo_request_free(requests[0]);
  } else if (rondo_communicator_rank(ranks) == 1) {
    EXPECT_OK(rondo_wait_signal(ranks, 0, &value, 7, NULL));
    EXPECT_OK(rondo_put_signal(ranks, 0, 2, 7, NULL));
  }
  EXPECT_INVALID(rondo_request_wait_all_for(NULL, 1, 0, &complete));
  EXPECT_INVALID(rondo_request_wait_all_for(NULL, 0, -1, &complete));
  EXPECT_INVALID(rondo_request_wait_all_for(NULL, 0, 0, NULL));
}

static void several_requests(rondo_communicator* ranks) {
  rondo_request* requests[3] = {NULL, NULL, NULL};
  size_t index = 0;
  EXPECT_OK(rondo_barrier(ranks, &requests[0]));
  EXPECT_OK(rondo_barrier(ranks, &requests[2]));
  int given[3] = {0, 0, 0};
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(rondo_request_wait_any(requests, 3, -1, &index));
    EXPECT(index < 3 && index != 1 && given[index] == 0);
    if (index < 3) given[index] = 1;
  }
  EXPECT_OK(rondo_request_wait_any(requests, 3, -1, &index));
  EXPECT(index == 3);
  EXPECT_OK(rondo_request_wait_any(NULL, 0, -1, &index));
  EXPECT(index == 0);
  rondo_request_free(requests[0]);
  rondo_request_free(requests[2]);

  EXPECT_OK(rondo_barrier(ranks, &requests[0]));
  EXPECT_OK(rondo_barrier(ranks, &requests[2]));
  EXPECT_OK(rondo_request_wait_all(requests, 3));
  rondo_request_free(requests[0]);
  rondo_request_free(requests[2]);
  requests[0] = requests[2] = NULL;

  EXPECT_INVALID(rondo_request_wait_any(requests, 3, -1, NULL));
  EXPECT_INVALID(rondo_request_wait_any(NULL, 1, -1, &index));
  EXPECT_INVALID(rondo_request_wait_all(NULL, 1));
  EXPECT_INVALID(rondo_communicator_split(ranks, -2, 0, NULL));
  EXPECT_INVALID(rondo_communicator_dup(ranks, NULL));
}

static void facts(rondo_world* world) {
  const int rank = rondo_world_rank(world);
  rondo_rank_info info = {.struct_size = sizeof info};
  rondo_counters counters = {.struct_size = sizeof counters};
  EXPECT_OK(rondo_world_rank_info(world, rank, &info));
  EXPECT(info.pid > 0 && info.node == 0 && strlen(info.host) > 0);
  EXPECT(rondo_world_nodes(world) == 1);
  EXPECT(rondo_world_oversubscribed(world) == 0 || rondo_world_oversubscribed(world) == 1);
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
static void event_loop(rondo_world* world) {
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

/* Nothing of this is posted: what follows works. */
static void wrong_arguments(rondo_world* world) {
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

static void null_worlds(void) {
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

static void wrong_options(void) {
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

static void create(void) {
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

/* The error names what was done, and it is the same on all ranks. */
static void mismatch(rondo_world* world) {
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

static void flight_record(rondo_world* world) {
  const char* path = getenv("RONDO_TEST_RECORD");
  if (path != NULL && rondo_world_rank(world) == 0) {
    EXPECT_OK(rondo_world_set_dump_folder(world, ""));
    EXPECT_OK(rondo_world_dump_flight_record(world, path));
    EXPECT(remove(path) == 0);
    EXPECT(rondo_world_dump_flight_record(world, "/dev/null/no/such/folder") == RONDO_SYSTEM_ERROR);
  }
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

/* The other rank does not come. */
static void deadline(void) {
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

static void stall_and_abort(void) {
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
  deadline();
  stall_and_abort();
  rondo_world* worlds[MOST_RANKS];
  pthread_t threads[MOST_RANKS];
  EXPECT_OK(rondo_make_threads(ranks, NULL, worlds));
  if (failures != 0) return 1;
  for (int r = 0; r < ranks; ++r) pthread_create(&threads[r], NULL, run_rank, worlds[r]);
  for (int r = 0; r < ranks; ++r) pthread_join(threads[r], NULL);
  return failures == 0 ? 0 : 1;
}
