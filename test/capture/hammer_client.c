/* SPDX-License-Identifier: Apache-2.0 */
/* Eight threads that call every function of the C interface at once; driven by test_hammer.cpp.
 *   iteration 0:  each collective refers to a record of its thread; micro-batches change meanwhile
 *   then:         iterations begin and end while the threads record
 *   at last:      the trace is closed under them
 * Prints how many records and collectives were accepted. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/capture/abi_client.h"

enum { THREADS = 8, ROUNDS = 150, ITERATIONS = 12 };

static atomic_int phase, arrived;
static atomic_long records, collectives, failed;

static void expect(int good) { failed += !good; }

/* A failure is only that nothing is captured at the moment. */
static int64_t counted(int64_t result, atomic_long* count) {
  expect(result >= 0 || result == -ENOTCONN);
  *count += result >= 0;
  return result;
}

static int64_t record_here(const char* text, uint8_t phase_code, const char* slot) {
  const uint64_t size = strlen(text);
  ttrace_tensor t = tensor(NULL, TTRACE_UINT8, 1, &size, text);
  t.phase = phase_code;
  t.slot = slot;
  t.microbatch = TTRACE_CURRENT;
  const int64_t sequence = counted(ttrace_record(&t), &records);
  char copy[64] = "";
  expect(ttrace_feed(&t, copy) == 0); /* no replay */
  return sequence;
}

static void call_here(int member, uint64_t sequence, int64_t input) {
  ttrace_collective c;
  memset(&c, 0, sizeof c);
  c.struct_size = sizeof c;
  c.function = "all_reduce";
  c.group = "world";
  c.sequence = sequence;
  c.factor = 1;
  c.size = THREADS;
  c.member = member;
  c.peer = -1;
  c.microbatch = TTRACE_CURRENT;
  c.dtype = TTRACE_UINT8;
  c.input = input;
  c.output = c.position = -1;
  if (input >= 0) {
    c.flags = TTRACE_BEGUN;
    expect(ttrace_record_collective(&c) == 0);
    c.flags = 0;
  }
  counted(ttrace_record_collective(&c), &collectives);
}

/* What belongs to the whole process. */
static void tell(int number, int round) {
  char name[32];
  const int32_t ranks[2] = {number, number + 1};
  const uint64_t address = (uint64_t)(uintptr_t)name, size = sizeof name;
  int64_t hash = 0;
  snprintf(name, sizeof name, "axis.%d", number);
  int result = ttrace_axis(name, round + 1, round);
  expect(result == 0 || result == -ENOTCONN);
  result = ttrace_group(name, ranks, 2);
  expect(result == 0 || result == -ENOTCONN);
  result = ttrace_note("told", name, "by the test");
  expect(result == 0 || result == -ENOTCONN);
  result = ttrace_set("{\"note\":{\"a\":1}}");
  expect(result == 0 || result == -ENOTCONN);
  expect(ttrace_hash(&address, &size, 1, &hash) == 0);
  expect(ttrace_collectives_wanted() == 3);
  expect(ttrace_pause(0) == 0);
  expect(ttrace_last_error() != NULL);
  (void)ttrace_active();
  expect(ttrace_iteration() >= -1 && ttrace_microbatch() >= -1);
}

static void* work(void* argument) {
  const int number = *(const int*)argument;
  char module[32];
  int round = 0;
  for (int now = 0; now < 3; ++now) {
    while (phase < now) {
    }
    for (int i = 0; i < ROUNDS; ++i, ++round) {
      snprintf(module, sizeof module, "thread.%d.round.%d", number, round);
      expect(ttrace_push_scope(module) == 0 && strcmp(ttrace_scope(), module) == 0);
      const int64_t input = record_here(module, TTRACE_COMM, "all_reduce.input");
      call_here(number, (uint64_t)round, now == 0 ? input : -1);
      if (i % 16 == 0) tell(number, round);
      expect(ttrace_pop_scope() == 0 && ttrace_scope()[0] == '\0');
    }
    ++arrived;
  }
  return NULL;
}

int main(void) {
  pthread_t running[THREADS];
  int numbers[THREADS];
  if (ttrace_open(NULL) != 0 || ttrace_begin_iteration(0) != 0) return 1;
  for (int i = 0; i < THREADS; ++i) {
    numbers[i] = i;
    pthread_create(&running[i], NULL, work, &numbers[i]);
  }
  for (int i = 0; arrived < THREADS; i = (i + 1) % 4) expect(ttrace_begin_microbatch(i) == 0);
  expect(ttrace_begin_iteration(1) == 0);
  phase = 1;
  for (int i = 2; i < ITERATIONS || arrived < 2 * THREADS; ++i) {
    expect(ttrace_open(NULL) == 0); /* it is */
    expect(ttrace_begin_iteration(i) == 0 && ttrace_begin_microbatch(0) == 0);
    usleep(2000);
  }
  const long before = records;
  phase = 2;
  while (records < before + 100) {
  }
  expect(ttrace_close() == 0);
  for (int i = 0; i < THREADS; ++i) pthread_join(running[i], NULL);
  expect(ttrace_close() == 0);
  printf("%ld %ld\n", (long)records, (long)collectives);
  return failed == 0 ? 0 : 1;
}
