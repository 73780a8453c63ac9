/* SPDX-License-Identifier: Apache-2.0 */
/* A C program that says where it is and which collectives it makes, driven by test_marks.cpp. The
 * first argument says what it does; all settings come from the environment. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/capture/abi_client.h"

static ttrace_collective collective(const char* function, uint64_t sequence) {
  ttrace_collective c;
  memset(&c, 0, sizeof c);
  c.struct_size = sizeof c;
  c.function = function;
  c.group = "tp:0,1";
  c.sequence = sequence;
  c.factor = 1;
  c.size = 2;
  c.peer = -1;
  c.microbatch = TTRACE_CURRENT;
  c.dtype = TTRACE_FLOAT32;
  c.input = c.output = c.position = -1;
  return c;
}

/* Buffers and calls of two iterations; what is wanted of them says the environment. */
static int collectives(int wanted) {
  const float in[3] = {1, 2, 3}, out[3] = {2, 4, 6};
  const uint64_t three = 3;
  int failed = ttrace_collectives_wanted() != wanted;
  failed += ttrace_open(NULL) != 0 || ttrace_begin_iteration(0) != 0;
  failed += ttrace_collectives_wanted() != wanted;
  failed += ttrace_pause(1) != 0 || ttrace_pause(1) != 1 || ttrace_collectives_wanted() != 0;
  failed += ttrace_pause(0) != 1 || ttrace_collectives_wanted() != wanted;
  failed += ttrace_begin_microbatch(4) != 0 || ttrace_push_scope("layers.1.fc") != 0;
  failed += record_bytes("before", 1, "x") != 0;
  ttrace_tensor t = tensor(NULL, TTRACE_FLOAT32, 1, &three, in);
  t.phase = TTRACE_COMM;
  t.microbatch = TTRACE_CURRENT;
  t.slot = "all_reduce.input";
  ttrace_collective c = collective("all_reduce", 5);
  c.reduction = "sum";
  c.count = 3;
  c.member = 1;
  c.flags = TTRACE_ASYNCHRONOUS;
  c.position = c.input = ttrace_record(&t);
  t.data = out;
  t.slot = "all_reduce.output";
  c.output = ttrace_record(&t);
  const int expected = wanted == 0 ? -ENOTCONN : 0;
  failed += ttrace_record_collective(&c) != expected;
  failed += ttrace_pop_scope() != 0 || ttrace_begin_iteration(1) != 0;
  ttrace_collective b = collective("all_to_all", 6);
  b.input_splits = "1,2";
  b.module = "named";
  failed += ttrace_record_collective(&b) != expected;
  return failed + (ttrace_close() != 0);
}

static int begun(ttrace_collective c) {
  c.flags |= TTRACE_BEGUN;
  return ttrace_record_collective(&c) != 0;
}

/* Two that overlap, one that never ends, one whose end comes too late, and one that is told twice.
 */
static int overlapping(void) {
  int failed = ttrace_open(NULL) != 0 || ttrace_begin_iteration(0) != 0;
  ttrace_collective sum = collective("all_reduce", 0), gather = collective("all_gather", 1);
  sum.reduction = "sum";
  sum.input = record_bytes("sent", 4, "sent");
  failed += begun(sum);
  gather.input = record_bytes("part", 4, "part");
  failed += begun(gather);
  gather.output = record_bytes("all", 4, "both");
  failed += ttrace_record_collective(&gather) != 0;
  sum.input = -1;
  sum.output = record_bytes("got", 4, "got!");
  failed += ttrace_record_collective(&sum) != 0;
  ttrace_collective never = collective("send", 2), late = collective("barrier", 3);
  never.input = record_bytes("five bytes", 5, "12345");
  never.dtype = TTRACE_UINT8; /* as record_bytes has them */
  never.count = 6;
  failed += begun(never) + begun(late);
  failed += ttrace_begin_iteration(1) != 0 || ttrace_record_collective(&late) != 0;
  ttrace_collective other = late;
  other.member = 1; /* of another member of the same process */
  failed += ttrace_record_collective(&other) != 0 || ttrace_record_collective(&other) != 0;
  return failed + (ttrace_close() == 0); /* which says that one was lost */
}

/* Ends without a word in the middle of an iteration, between two calls of one kind. */
static int dies(void) {
  if (ttrace_open(NULL) != 0 || ttrace_begin_iteration(0) != 0) return 1;
  ttrace_collective c = collective("broadcast", 0);
  c.input = record_bytes("root", 4, "sent");
  if (c.input != 0 || ttrace_record_collective(&c) != 0) return 1;
  if (begun(collective("barrier", 1))) return 1;
  _exit(9); /* nothing runs at exit */
}

static int refused_call(ttrace_collective c, const char* words) {
  const int result = ttrace_record_collective(&c);
  if (result == -EINVAL && strstr(ttrace_last_error(), words) != NULL) return 0;
  printf("%s: %d, \"%s\"\n", words, result, ttrace_last_error());
  return 1;
}

/* One that is too long must not cost what is recorded later. */
static int refused_name(void) {
  static char name[70001];
  const uint64_t shape[1] = {1};
  const float value = 1;
  ttrace_tensor tensor;
  memset(name, 'x', sizeof name - 1);
  memset(&tensor, 0, sizeof tensor);
  tensor.struct_size = sizeof tensor;
  tensor.phase = TTRACE_FORWARD, tensor.dtype = TTRACE_FLOAT32, tensor.ndim = 1;
  tensor.shape = shape, tensor.data = &value, tensor.alias_of = -1;
  tensor.module = name, tensor.slot = "output.0";
  return ttrace_record(&tensor) != -EINVAL;
}

static int wrong_calls(void) {
  const int32_t twice[2] = {1, 1}, below[1] = {-1};
  const ttrace_collective good = collective("barrier", 0);
  ttrace_collective c = good;
  int failed = ttrace_record_collective(&c) != -ENOTCONN; /* not open yet */
  failed += ttrace_begin_microbatch(0) != -ENOTCONN || ttrace_axis("tp", 1, 0) != -ENOTCONN;
  failed += ttrace_open(NULL) != 0;
  failed += refused_call(good, "no iteration was begun");
  failed += ttrace_begin_microbatch(0) != -EINVAL || ttrace_begin_iteration(0) != 0;
  failed += ttrace_begin_microbatch(-2) != -EINVAL;
  c.struct_size = sizeof c - 8;
  failed += refused_call(c, "struct_size");
  c = good, c.function = NULL;
  failed += refused_call(c, "function is empty");
  c = good, c.group = "";
  failed += refused_call(c, "group is empty");
  c = good, c.member = 2;
  failed += refused_call(c, "member 2 is not in a group of 2");
  c = good, c.peer = 2;
  failed += refused_call(c, "peer 2 is not in a group of 2");
  c = good, c.dtype = 12;
  failed += refused_call(c, "dtype 12");
  c = good, c.microbatch = -3;
  failed += refused_call(c, "microbatch");
  c = good, c.count = UINT64_C(1) << 61;
  failed += refused_call(c, "is too large");
  c = good, c.flags = 64;
  failed += refused_call(c, "flags 64");
  c = good, c.function = "allreduce";
  failed += refused_call(c, "function \"allreduce\" is none of all_reduce, ");
  c = good, c.reduction = "mean";
  failed += refused_call(c, "reduction \"mean\" is none of sum, ");
  c = good, c.input_splits = "3,x";
  failed += refused_call(c, "\"3,x\" is no list of numbers");
  c = good, c.input_splits = "3,";
  failed += refused_call(c, "\"3,\" is no list of numbers");
  c = good, c.output_splits = "3,4,5";
  failed += refused_call(c, "\"3,4,5\" has 3 numbers, not one for each of 2 members");
  c = good, c.output_splits = "18446744073709551616,1";
  failed += refused_call(c, "is no list of numbers");
  c = good, c.input = 0;
  failed += refused_call(c, "no earlier record");
  c = good, c.position = 1;
  failed += refused_call(c, "position 1 is behind");
  failed += ttrace_record_collective(NULL) != -EINVAL;
  failed += ttrace_axis("", 2, 0) != -EINVAL || ttrace_axis("tp", 2, 2) != -EINVAL;
  failed += ttrace_group("g", twice, 2) != -EINVAL || ttrace_group("g", below, 1) != -EINVAL;
  failed += ttrace_group("g", twice, 0) != -EINVAL || ttrace_group("g", NULL, 1) != -EINVAL;
  failed += ttrace_push_scope("") != -EINVAL || ttrace_pop_scope() != -EINVAL;
  failed += refused_name();
  failed += ttrace_record_collective(&good) != 0;
  return failed + (ttrace_close() != 0);
}

/* NULL when a thread starts without scopes. */
static void* other_scope(void* failed) {
  const int clean = ttrace_scope()[0] == '\0' && ttrace_push_scope("of.the.other.thread") == 0;
  return clean ? NULL : failed;
}

/* Where the program is, told instead of passed: the scopes outlive iterations, micro-batches do
 * not, and both are there without a trace. */
static int marks(void) {
  const int32_t ranks[2] = {4, 2};
  const uint64_t one = 1;
  pthread_t running;
  void* result = NULL;
  ttrace_tensor t = tensor(NULL, TTRACE_UINT8, 1, &one, "x");
  t.microbatch = TTRACE_CURRENT;
  int failed = ttrace_push_scope("outer") != 0 || strcmp(ttrace_scope(), "outer") != 0;
  failed += ttrace_open(NULL) != 0 || ttrace_begin_iteration(0) != 0;
  failed += ttrace_axis("dp", 3, 0) != 0 || ttrace_axis("tp", 2, 1) != 0;
  failed += ttrace_axis("dp", 3, 2) != 0; /* changed in its place */
  failed +=
      ttrace_group("tensor \"parallel\"", ranks, 2) != 0 || ttrace_group("all", ranks, 1) != 0;
  failed += ttrace_record(&t) != 0; /* outer, no micro-batch */
  failed += ttrace_microbatch() != -1;
  failed += ttrace_begin_microbatch(1) != 0 || ttrace_push_scope("outer.inner") != 0;
  failed += ttrace_microbatch() != 1;
  failed += ttrace_record(&t) != 1; /* outer.inner, micro-batch 1 */
  pthread_create(&running, NULL, other_scope, &t);
  pthread_join(running, &result);
  failed += result != NULL || strcmp(ttrace_scope(), "outer.inner") != 0;
  failed += ttrace_end_iteration() != 0 || ttrace_begin_iteration(1) != 0;
  failed += ttrace_microbatch() != -1;
  failed += ttrace_record(&t) != 0; /* outer.inner, no micro-batch */
  failed += ttrace_pop_scope() != 0 || ttrace_pop_scope() != 0 || ttrace_scope()[0] != '\0';
  failed += ttrace_begin_microbatch(0) != 0 || ttrace_record(&t) != 1; /* @root, micro-batch 0 */
  return failed + (ttrace_close() != 0);
}

/* ttrace_tensor as version 1 had it, at the end of a page that nothing may be read behind. */
struct tensor_1 {
  uint32_t struct_size;
  uint8_t phase, dtype, kind, ndim;
  int32_t microbatch;
  uint32_t call, flags, reserved;
  const char *module, *slot, *raw_name, *layout;
  const uint64_t* shape;
  const void* data;
  int64_t alias_of;
};

static int versions(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory + page, page, PROT_NONE) != 0) return 1;
  struct tensor_1* old = (struct tensor_1*)(memory + page - sizeof *old);
  const uint64_t one = 1;
  int failed = ttrace_open(NULL) != 0 || ttrace_begin_iteration(0) != 0;
  old->struct_size = sizeof *old;
  old->phase = TTRACE_FORWARD;
  old->dtype = TTRACE_UINT8;
  old->ndim = 1;
  old->module = "old";
  old->slot = "output.0";
  old->shape = &one;
  old->data = "x";
  old->alias_of = -1;
  failed += ttrace_record((const ttrace_tensor*)old) != 0;
  failed += ttrace_feed((const ttrace_tensor*)old, memory) != 0;
  struct {
    ttrace_tensor known;
    char unknown[24];
  } newer; /* of a version to come */
  memset(&newer, 0xff, sizeof newer);
  newer.known = tensor("newer", TTRACE_UINT8, 1, &one, "y");
  newer.known.struct_size = sizeof newer;
  failed += ttrace_record(&newer.known) != 1;
  ttrace_tensor t = tensor("host", TTRACE_UINT8, 1, &one, "z");
  t.device = 7;
  failed += (int)refused(t, "device 7 is unknown");
  return failed + (ttrace_close() != 0);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "collectives") == 0) return collectives(argc > 2 ? atoi(argv[2]) : 0);
  if (strcmp(what, "overlapping") == 0) return overlapping();
  if (strcmp(what, "dies") == 0) return dies();
  if (strcmp(what, "wrong") == 0) return wrong_calls();
  if (strcmp(what, "marks") == 0) return marks();
  if (strcmp(what, "versions") == 0) return versions();
  fprintf(stderr, "marks_client: unknown task '%s'\n", what);
  return 2;
}
