#pragma once

/* What the sources of this program check, and how: what does not hold is printed. */

#include <rondo/rondo.h>

#define MOST_RANKS 8

void expect(int holds, const char* what, const char* file, int line);

#define EXPECT(condition) expect((condition), #condition, __FILE__, __LINE__)
#define EXPECT_OK(call) expect((call) == RONDO_OK, #call, __FILE__, __LINE__)
#define EXPECT_INVALID(call) expect((call) == RONDO_INVALID_ARGUMENT, #call, __FILE__, __LINE__)

/* collectives.c */
void reduce_all_types(rondo_world* world);
void other_collectives(rondo_communicator* ranks);
void plans(rondo_communicator* ranks);
void split(rondo_communicator* ranks);

/* requests.c */
void point_to_point(rondo_communicator* ranks);
void several_requests(rondo_communicator* ranks);
void limited_wait_for_all(rondo_communicator* ranks);

/* worlds.c: of a world that is open, and of worlds that each makes for itself. */
void memory(rondo_world* world);
void memory_of_threads(void);
void adoption(rondo_world* world);
void facts(rondo_world* world);
void event_loop(rondo_world* world);
void flight_record(rondo_world* world);
void mismatch(rondo_world* world);
void create(void);
void oversubscription(void);
void deadline(void);
void stall_and_abort(void);

/* mistakes.c */
void null_worlds(void);
void wrong_options(void);
void wrong_arguments(rondo_world* world);
