/* SPDX-License-Identifier: Apache-2.0 */
/* A C program on ttrace.h, driven by test_abi.cpp and the tests in test/cli. The first argument
 * says what it does; all settings come from the environment, as in a user's program. */
#include "test/capture/abi_client.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Every dtype, a scalar, an empty tensor, an alias, statistics: test_abi.cpp knows the values. */
static int every_dtype(void) {
  static const size_t sizes[12] = {8, 4, 2, 2, 1, 1, 1, 2, 4, 8, 1, 1};
  const uint64_t shape[2] = {3, 5};
  unsigned char bytes[15 * 8];
  char module[32];
  int failed = ttrace_open(NULL) != 0;
  failed +=
      ttrace_set("{\"axes\":[{\"name\":\"tp\",\"size\":2,\"coord\":1}],\"note\":{\"a\":1}}") != 0;
  failed += ttrace_set("{\"note\":{\"b\":[2,3]}}") != 0;
  failed += ttrace_begin_iteration(0) != 0;
  for (uint8_t dtype = 0; dtype < 12; ++dtype) {
    for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = (unsigned char)(dtype * 7 + i * 13);
    if (dtype == TTRACE_BOOL)
      for (size_t i = 0; i < 15; ++i) bytes[i] &= 1;
    snprintf(module, sizeof module, "layer.%d", dtype);
    ttrace_tensor t = tensor(module, dtype, 2, shape, bytes);
    t.microbatch = dtype;
    failed += ttrace_record(&t) != dtype;
    memset(bytes, 0xee, sizes[dtype] * 15); /* the call has copied them */
  }
  const float one = 1.5f;
  ttrace_tensor scalar = tensor("scalar", TTRACE_FLOAT32, 0, NULL, &one);
  failed += ttrace_record(&scalar) != 12;
  const uint64_t none[2] = {4, 0};
  ttrace_tensor empty = tensor("empty", TTRACE_FLOAT32, 2, none, NULL);
  failed += ttrace_record(&empty) != 13;
  ttrace_tensor alias = tensor("alias", TTRACE_FLOAT32, 0, NULL, NULL);
  alias.alias_of = 12;
  alias.flags = TTRACE_ROOT_INPUT;
  alias.raw_name = "module.alias";
  alias.layout = "{\"dims\":\"\",\"source\":\"program\"}";
  failed += ttrace_record(&alias) != 14;
  const float values[4] = {1, 2, -3, 4};
  const uint64_t four = 4;
  ttrace_tensor stats = tensor("stats", TTRACE_FLOAT32, 1, &four, values);
  stats.kind = TTRACE_STATS;
  stats.call = 2;
  failed += ttrace_record(&stats) != 15;
  failed += ttrace_note("dropped", "layer.9", "the test says so") != 0;
  failed += ttrace_begin_iteration(4) != 0;
  failed += record_bytes("later", 1, "x") != 0;
  failed += ttrace_close() != 0;
  return failed;
}

static int wrong_arguments(void) {
  const uint64_t shape[17] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const uint64_t huge[2] = {1ull << 40, 1ull << 40};
  const float value = 1;
  int64_t failed = ttrace_record(NULL) != -ENOTCONN; /* not open yet */
  failed += ttrace_open(NULL) != 0;
  failed += ttrace_open(NULL) != 0;
  const ttrace_tensor good = tensor("m", TTRACE_FLOAT32, 1, shape, &value);
  failed += refused(good, "no iteration was begun");
  failed += ttrace_begin_iteration(-1) != -EINVAL;
  failed += ttrace_begin_iteration(2) != 0;
  failed += ttrace_begin_iteration(2) != -EINVAL;
  ttrace_tensor t = good;
  failed += ttrace_record(&t) != 0;
  t = good, t.struct_size = 8;
  failed += refused(t, "struct_size");
  t = good, t.ndim = 17;
  failed += refused(t, "dimensions");
  t = good, t.dtype = 12;
  failed += refused(t, "dtype 12");
  t = good, t.phase = 7;
  failed += refused(t, "phase 7");
  t = good, t.kind = 3;
  failed += refused(t, "kind 3");
  t = good, t.shape = NULL;
  failed += refused(t, "shape is NULL");
  t = good, t.shape = huge, t.ndim = 2;
  failed += refused(t, "larger than any memory");
  t = good, t.data = NULL;
  failed += refused(t, "data is NULL");
  t = good, t.module = "";
  failed += refused(t, "module is empty");
  t = good, t.slot = NULL;
  failed += refused(t, "slot is empty");
  t = good, t.alias_of = 1;
  failed += refused(t, "no earlier record");
  t = good, t.alias_of = 0, t.dtype = TTRACE_INT32;
  failed += refused(t, "another size or dtype");
  t = good, t.layout = "{\"dims\":\"h[tp d\"}";
  failed += refused(t, "dims: \"h[tp d\", column 5: expected");
  t = good, t.layout = "h[tp]";
  failed += refused(t, "layout: h[tp]: ");
  t = good, t.module = "n", t.layout = "{\"dims\":\"h[tp]\",\"shape\":[2]}";
  failed += ttrace_record(&t) != 1; /* errors took no number */
  failed += ttrace_close() != 0;
  failed += ttrace_record(&t) != -ENOTCONN;
  failed += ttrace_close() != 0;
  return (int)failed;
}

static void* record_many(void* argument) {
  char module[32];
  for (int i = 0; i < 200; ++i) {
    snprintf(module, sizeof module, "thread.%d.%d", *(int*)argument, i);
    if (record_bytes(module, (uint64_t)strlen(module), module) < 0) return argument;
  }
  return NULL;
}

static int threads(void) {
  pthread_t running[4];
  int numbers[4] = {0, 1, 2, 3};
  int failed = ttrace_open(NULL) != 0 || ttrace_begin_iteration(0) != 0;
  for (int i = 0; i < 4; ++i) pthread_create(&running[i], NULL, record_many, &numbers[i]);
  for (int i = 0; i < 4; ++i) {
    void* result = NULL;
    pthread_join(running[i], &result);
    failed += result != NULL;
  }
  return failed; /* closed by the library, at exit */
}

/* A forked child records nothing, and its end does not close its parent's trace. */
static int forked(void) {
  int failed = ttrace_open(NULL) != 0 || ttrace_begin_iteration(0) != 0;
  failed += record_bytes("parent", 6, "before") != 0;
  const pid_t child = fork();
  if (child == 0) {
    const int silent = ttrace_active() == 0 && record_bytes("child", 5, "child") == -ENOTCONN &&
                       ttrace_open(NULL) == -ENOTCONN && ttrace_close() == 0;
    exit(silent ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  failed += status != 0;
  /* The writer is no child of ours: a program may wait for all of its own. */
  failed += waitpid(-1, &status, WNOHANG) != -1 || errno != ECHILD;
  failed += record_bytes("parent.again", 5, "after") != 1;
  return failed + (ttrace_close() != 0);
}

/* Numbered tensors of mixed sizes; "returned n" after each, on an unbuffered pipe. */
static int numbered(int count) {
  static unsigned char bytes[1 << 20];
  char module[32];
  if (ttrace_open(NULL) != 0 || ttrace_begin_iteration(0) != 0) return 1;
  for (int n = 0; n < count; ++n) {
    const uint64_t size = n % 17 == 16 ? sizeof bytes : (uint64_t)n * 7919 % 40000;
    for (uint64_t i = 0; i < size; ++i)
      bytes[i] = (unsigned char)(i * 31 + (uint64_t)n * 17 + (i >> 8));
    snprintf(module, sizeof module, "record.%d", n);
    if (record_bytes(module, size, bytes) != n) return 1;
    dprintf(STDOUT_FILENO, "returned %d\n", n);
  }
  return 0;
}

/* Iterations 0 to 3 of one small tensor; says which were wanted. */
static int iterations(void) {
  if (ttrace_open(NULL) != 0) return 1;
  for (int i = 0; i < 4; ++i) {
    if (ttrace_begin_iteration(i) != 0) return 1;
    const int64_t result = ttrace_active() ? record_bytes("layer", 3, "abc") : -1;
    printf("%lld ", (long long)result);
  }
  return ttrace_close() == 0 ? 0 : 1;
}

/* Records until stopped; after the writer has died the program must go on. */
static int until_disarmed(void) {
  static unsigned char bytes[100000];
  if (ttrace_open(NULL) != 0 || ttrace_begin_iteration(0) != 0) return 1;
  puts("ready");
  fflush(stdout);
  while (ttrace_active()) record_bytes("layer", sizeof bytes, bytes);
  printf("%s\n", ttrace_last_error());
  return record_bytes("layer", 1, bytes) == -ENOTCONN && ttrace_close() == 0 ? 0 : 1;
}

/* `count` tensors of 64 KiB, whatever happens to them; the exit code says how the end went. */
static int fill(int count) {
  static unsigned char bytes[1 << 16];
  if (ttrace_open(NULL) != 0 || ttrace_begin_iteration(0) != 0) return 1;
  char module[32];
  for (int n = 0; n < count; ++n) {
    memset(bytes, n, sizeof bytes);
    snprintf(module, sizeof module, "record.%d", n);
    if (record_bytes(module, sizeof bytes, bytes) != n) return 1;
  }
  puts("recorded all");
  return ttrace_close() == 0 ? 0 : 5;
}

/* Weights cut in two over tp, by rows; a bias that both ranks have. Values are global indices. */
static int parameters(void) {
  const char* text = getenv("RANK");
  const int rank = text != NULL ? atoi(text) : 0;
  const uint64_t rows[2] = {2, 3};
  const uint64_t three = 3;
  float weight[6];
  const float bias[3] = {0, 1, 2};
  char axes[80];
  for (int i = 0; i < 6; ++i) weight[i] = (float)(rank * 6 + i);
  snprintf(axes, sizeof axes, "{\"axes\":[{\"name\":\"tp\",\"size\":2,\"coord\":%d}]}", rank);
  int failed = ttrace_open(NULL) != 0 || ttrace_set(axes) != 0 || ttrace_begin_iteration(0) != 0;
  ttrace_tensor w = tensor("layer.weight", TTRACE_FLOAT32, 2, rows, weight);
  ttrace_tensor b = tensor("layer.bias", TTRACE_FLOAT32, 1, &three, bias);
  w.phase = b.phase = TTRACE_PARAM;
  w.microbatch = b.microbatch = -1;
  w.slot = b.slot = "value";
  w.layout = "{\"dims\":\"h[tp] d\",\"shape\":[4,3],\"source\":\"program\"}";
  b.layout = "{\"dims\":\"d\",\"shape\":[3],\"source\":\"program\"}";
  failed += ttrace_record(&w) != 0;
  failed += ttrace_record(&b) != 1;
  return failed + (ttrace_close() != 0);
}

/* Three tensors of four bytes, which options may leave out, and one of eight that they may not. */
static int chosen(void) {
  static const char* const modules[3] = {"a.x", "a.y", "b.x"};
  const uint64_t one = 1;
  const float value = 1;
  const int64_t token = 7;
  int failed = ttrace_open(NULL) != 0 || ttrace_begin_iteration(0) != 0;
  for (int n = 0; n < 3; ++n) {
    ttrace_tensor t = tensor(modules[n], TTRACE_FLOAT32, 1, &one, &value);
    const int64_t sequence = ttrace_record(&t);
    failed += sequence < 0 && sequence != -ENOTCONN;
  }
  ttrace_tensor t = tensor("@root", TTRACE_INT64, 1, &one, &token);
  t.slot = "input.0";
  t.flags = TTRACE_ROOT_INPUT;
  failed += ttrace_record(&t) < 0;
  return failed + (ttrace_close() != 0);
}

static int hold(void) {
  if (ttrace_open(NULL) != 0) return 3;
  ttrace_begin_iteration(0);
  record_bytes("held", 4, "held");
  puts("open");
  fflush(stdout);
  return getchar() == EOF ? 0 : 1;
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  const int count = argc > 2 ? atoi(argv[2]) : 0;
  if (strcmp(what, "dtypes") == 0) return every_dtype();
  if (strcmp(what, "wrong") == 0) return wrong_arguments();
  if (strcmp(what, "threads") == 0) return threads();
  if (strcmp(what, "forked") == 0) return forked();
  if (strcmp(what, "numbered") == 0) return numbered(count);
  if (strcmp(what, "iterations") == 0) return iterations();
  if (strcmp(what, "disarm") == 0) return until_disarmed();
  if (strcmp(what, "fill") == 0) return fill(count);
  if (strcmp(what, "parameters") == 0) return parameters();
  if (strcmp(what, "chosen") == 0) return chosen();
  if (strcmp(what, "hold") == 0) return hold();
  fprintf(stderr, "abi_client: unknown task '%s'\n", what);
  return 2;
}
