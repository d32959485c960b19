/* Messages between two ranks, and waiting for several requests at once. */

#include <stdint.h>
#include <string.h>

#include "checks.h"

/* Each rank sends to the next one, round the ring. */
void point_to_point(rondo_communicator* ranks) {
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
    EXPECT(rondo_request_finished(requests[i]) == 1);
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

/* The peer takes part only when the limit has passed. One request may stand there twice. */
void limited_wait_for_all(rondo_communicator* ranks) {
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
    EXPECT(rondo_request_finished(requests[0]) == 0 && rondo_request_finished(NULL) == 1);
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

void several_requests(rondo_communicator* ranks) {
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
