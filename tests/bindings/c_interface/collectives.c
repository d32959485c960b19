/* Collectives in every type and with every reduction, plans of them, and the groups of ranks that
 * they run in. Numbers are small enough to be exact in every type. */

#include <stdint.h>
#include <string.h>

#include "checks.h"

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
void reduce_all_types(rondo_world* world) {
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

void other_collectives(rondo_communicator* ranks) {
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

void plans(rondo_communicator* ranks) {
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

void split(rondo_communicator* ranks) {
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
