/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface of ttrace: record tensors of a C or C++ trainer, or of any language with a C FFI.
 *
 *   ttrace_open(NULL);                        // once a rank; settings come from ttrace-capture
 *   ttrace_begin_iteration(0);
 *   ttrace_record(&tensor);                   // copies the bytes before it returns
 *   ttrace_close();
 *
 * Every function is safe to call when nothing is being captured, never throws, never aborts, and
 * returns 0 (or a sequence number) on success and a negative errno on failure: -ENOTCONN when there
 * is nothing to record to (not open, closed, a forked child, an iteration or a tensor that
 * ttrace-capture leaves out). After any other error the trace is marked degraded and the program
 * goes on. All functions may be called from any thread. A forked child records nothing. Strings are
 * UTF-8 and copied. */
#ifndef TTRACE_H
#define TTRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows with what is added here; structs say by struct_size which of their members they have. */
#define TTRACE_API_VERSION 3

/* In ttrace_tensor and ttrace_collective: the micro-batch that ttrace_begin_microbatch told. */
#define TTRACE_CURRENT (-2)

/* Values equal ttrace's DType, Phase and RecordKind; new ones are only appended. Unsigned integers
 * of 16 bits and more are given as signed ones of their size. */
enum ttrace_dtype {
  TTRACE_FLOAT64 = 0,
  TTRACE_FLOAT32 = 1,
  TTRACE_BFLOAT16 = 2,
  TTRACE_FLOAT16 = 3,
  TTRACE_FLOAT8_E4M3FN = 4,
  TTRACE_FLOAT8_E5M2 = 5,
  TTRACE_INT8 = 6,
  TTRACE_INT16 = 7,
  TTRACE_INT32 = 8,
  TTRACE_INT64 = 9,
  TTRACE_UINT8 = 10,
  TTRACE_BOOL = 11
};

enum ttrace_phase {
  TTRACE_PARAM = 0,
  TTRACE_FORWARD = 1,
  TTRACE_RECOMPUTE = 2,
  TTRACE_BACKWARD = 3,
  TTRACE_GRAD = 4,
  TTRACE_STEP = 5,
  TTRACE_COMM = 6
};

enum ttrace_kind { TTRACE_FULL = 0, TTRACE_STATS = 1, TTRACE_HASH = 2 };

enum ttrace_flag {
  TTRACE_TRAINABLE = 1,  /* parameter that gets a gradient */
  TTRACE_ROOT_INPUT = 2, /* input of the whole model: integer ones identify the micro-batch */
  TTRACE_GLUE = 4,       /* input that no module returned */
  TTRACE_NO_GRADIENT = 8 /* parameter whose gradient was absent at the step */
};

/* Where a tensor's bytes are. Anywhere: what the driver of the program knows as memory of a device
 * is on one, and so is pinned memory of the host if a stream is named (the default one as
 * cudaStreamLegacy): with NULL it is copied at once, as all other memory of the host. */
enum ttrace_device { TTRACE_HOST = 0, TTRACE_DEVICE = 1, TTRACE_ANYWHERE = 2 /* ask the driver */ };

enum ttrace_collective_flag {
  TTRACE_IN_PLACE = 1,     /* input and output are the same memory */
  TTRACE_ASYNCHRONOUS = 2, /* the call returned before the data were there */
  TTRACE_IN_GROUP = 4,     /* one of several that were issued together */
  TTRACE_FAILED = 8,       /* the call returned an error */
  TTRACE_BEGUN = 16        /* the call is about to be made: see ttrace_record_collective */
};

enum ttrace_open_flag {
  TTRACE_NO_FEED = 1 /* ttrace_feed will not be called: the pack of a replay is not opened */
};

/* A member left zero or NULL is taken from the environment that ttrace-capture prepared
 * (TTRACE_OUT, TTRACE_WRITER, TTRACE_RUN_ID, TTRACE_RING, TTRACE_REPLAY; RANK, WORLD_SIZE and their
 * MPI and Slurm cousins). TTRACE_RANKS and TTRACE_ITERATIONS ("0-2,5"), TTRACE_FILTERS (a glob a
 * line), TTRACE_WHAT ("stats", "hash") and TTRACE_COMM ("metadata", "hash", "full") say what is
 * wanted. Set struct_size to sizeof(ttrace_options). */
typedef struct ttrace_options {
  uint32_t struct_size;
  int32_t rank;          /* -1: from the environment, else 0 */
  int32_t world_size;    /* 0: from the environment, else 1 */
  uint32_t flags;        /* enum ttrace_open_flag, or-ed */
  const char* directory; /* the trace */
  const char* writer;    /* path of the ttrace-writer program */
  const char* run_id;
  uint64_t ring_bytes; /* shared memory between this process and its writer */
} ttrace_options;

/* Starts this rank's writer. NULL: everything from the environment. Without a trace directory there
 * it returns -ENOENT and all other calls do nothing, so instrumented programs run as before.
 * Returns 0 too when it is already open. */
int ttrace_open(const ttrace_options* options);

/* 1 while records are accepted: use it to skip preparing what nobody records. */
int ttrace_active(void);

/* The iteration that records belong to, -1 while none is open that is captured. */
int64_t ttrace_iteration(void);

/* Merges the members of a JSON object into rank.json (objects merge recursively, other values
 * replace), e.g. {"axes":[{"name":"tp","size":2,"coord":1}]}. Members: see docs/format.md. */
int ttrace_set(const char* json);

/* An axis of the device mesh and where this rank is on it, outermost first; told again, it is
 * changed in its place. A program uses this or ttrace_set's "axes", not both. */
int ttrace_axis(const char* name, int32_t size, int32_t coordinate);

/* A process group: the global ranks of its members, in the order of their numbers in it. */
int ttrace_group(const char* name, const int32_t* ranks, size_t count);

/* Appends to rank.json's list why something is missing: what, where, why. */
int ttrace_note(const char* what, const char* where, const char* why);

/* Closes the former segment and opens the next; records belong to the latest. From 0, ascending. In
 * an iteration that ttrace-capture --iterations leaves out nothing is recorded. */
int ttrace_begin_iteration(int64_t iteration);

/* Closes the segment now (it would be closed by the next begin or by ttrace_close). */
int ttrace_end_iteration(void);

/* What TTRACE_CURRENT means from now on, in all threads: until the next call, or the end of the
 * iteration, after which it is none (-1). */
int ttrace_begin_microbatch(int32_t microbatch);
/* What TTRACE_CURRENT means now. */
int32_t ttrace_microbatch(void);

/* The module that the calling thread is in. Scopes nest; each push needs its pop. They are kept
 * whether or not anything is captured. */
int ttrace_push_scope(const char* module);
int ttrace_pop_scope(void);
/* The innermost one, "" when there is none; valid until this thread's next push or pop. */
const char* ttrace_scope(void);

typedef struct ttrace_tensor {
  uint32_t struct_size; /* sizeof(ttrace_tensor) */
  uint8_t phase;        /* enum ttrace_phase */
  uint8_t dtype;        /* enum ttrace_dtype */
  uint8_t kind;         /* enum ttrace_kind: how much of the data is kept */
  uint8_t ndim;         /* 0..16 */
  int32_t microbatch;   /* from 0; -1: of no single micro-batch; or TTRACE_CURRENT */
  uint32_t call;        /* n-th call of the module in this micro-batch, from 0 */
  uint32_t flags;       /* enum ttrace_flag, or-ed */
  uint32_t reserved;
  const char* module;   /* the same name in every layout; "@root" for the whole model; NULL: this
                           thread's innermost scope, or "@root" */
  const char* slot;     /* "output.0", "grad_output.0"; of a parameter "value", "reduced", "param":
                           docs/frameworks.md lists what is compared and checked. "@root" has the
                           loss, forward "output.0", and the gradient norm, grad "norm" */
  const char* raw_name; /* NULL, or the name as this program spells it */
  const char* layout;   /* NULL, or what is known: {"dims":"h[tp] d","shape":[256,64]} */
  const uint64_t* shape;
  const void* data; /* packed in row-major order; may be NULL for an alias or an empty tensor */
  int64_t alias_of; /* -1, or the sequence number of an earlier record of this segment with the
                       same storage: only a row is written, no bytes */
  /* ---- since version 2 ---- */
  uint32_t device; /* enum ttrace_device */
  uint32_t reserved2;
  void* stream; /* of a tensor on a device: the cudaStream_t on which its data are ready; NULL: the
                   default stream of that device, cudaStreamPerThread: this thread's */
} ttrace_tensor;

/* Copies the tensor into the ring, blocking while it is full. Of a tensor on a device it only
 * queues the copy: behind the work that the stream has now, before what it gets later, so that the
 * memory may be overwritten or freed in the stream's order. While the ring is full it blocks until
 * older copies have ended, and with them the work before them in their streams. A stream that is
 * being captured into a CUDA graph: -ENOTCONN, and rank.json says so. Memory on the device that
 * copies pass through is as large as the ring (at most 256 MiB), or what there is of it; without
 * any, the stream itself waits for the copies to the host. Not to be called in a function that a
 * stream runs (cudaLaunchHostFunc): a full ring would wait for it.
 *
 * Returns the record's sequence number within its segment (>= 0), or a negative errno. What
 * --filter leaves out is -ENOTCONN and has no number; integer inputs of the model
 * (TTRACE_ROOT_INPUT) are never left out. */
int64_t ttrace_record(const ttrace_tensor* tensor);

/* A collective call of this rank, or a send or receive. The buffers are ordinary records of phase
 * TTRACE_COMM, module as here, slot "<function>.input" and "<function>.output". Of these records
 * --comm hash keeps hashes, --comm metadata and a capture without --comm keep none: ttrace_record
 * then returns -ENOTCONN, which is a good value for input and output. */
typedef struct ttrace_collective {
  uint32_t struct_size;      /* sizeof(ttrace_collective) */
  uint32_t flags;            /* enum ttrace_collective_flag, or-ed */
  const char* function;      /* "all_reduce", "reduce", "broadcast", "reduce_scatter", "all_gather",
                                "all_to_all", "gather", "scatter", "send", "recv", "barrier" */
  const char* reduction;     /* "sum", "prod", "min", "max", "avg", "premul_sum", "band", "bor",
                                "bxor"; NULL where nothing is reduced */
  const char* group;         /* the same text on all members */
  const char* module;        /* NULL: this thread's innermost scope */
  const char* input_splits;  /* elements for each member where uneven, "3,5"; NULL: equal */
  const char* output_splits; /* likewise, from each member */
  uint64_t sequence;         /* n-th call on that group by this rank since it was created, from 0,
                                counting those that were not recorded */
  uint64_t count;     /* elements: of the buffer; all_gather: of what is sent; reduce_scatter:
                         of what is received; all_to_all: of the part for one member */
  double factor;      /* of "premul_sum", else 1 */
  int32_t member;     /* own number in the group */
  int32_t size;       /* members of the group */
  int32_t peer;       /* number of the root or of the other side, -1: none */
  int32_t microbatch; /* from 0, -1: none, or TTRACE_CURRENT */
  uint8_t dtype;      /* enum ttrace_dtype */
  uint8_t reserved[7];
  int64_t input;    /* what ttrace_record returned for what went in; negative: not recorded */
  int64_t output;   /* likewise for what came out */
  int64_t position; /* it was called before the record of this sequence number; negative: now */
} ttrace_collective;

/* Adds the call to the current segment, after it was made. 0, or a negative errno: -ENOTCONN also
 * when ttrace-capture was not told to record collectives (--comm).
 *
 * A run that hangs or dies in the call says so only to who was told before: record it with
 * TTRACE_BEGUN before it is made, without output, and again without the flag after it. The second
 * one, of the same group, sequence number and iteration, takes the place of the first; what it has
 * no input for keeps that of the first, and it stands where the first was recorded. A call whose
 * second one never comes stays as one that has begun. Since version 3. */
int ttrace_record_collective(const ttrace_collective* call);

/* What ttrace-capture --comm asked for: 0 nothing, 1 the calls, 2 hashes of their buffers, too, 3
 * the buffers; 0 also while ttrace_pause says so. Needs no ttrace_open. */
int ttrace_collectives_wanted(void);

/* 1: collectives that begin from here on, in any thread, are counted and not recorded by who
 * watches the program from outside, as ttrace-capture --comm does with NCCL's: an evaluation within
 * an iteration. 0: they are again. What is recorded through this interface is not touched. Returns
 * what it was, 1 or 0, so that it can be put back. */
int ttrace_pause(int paused);

/* Writes over `data` (packed in row-major order, of tensor->shape and tensor->dtype) what another
 * run has computed at the same place: ttrace-capture --replay PACK judges each module alone, with
 * inputs that are the other run's. To be called for every tensor between modules, right after
 * ttrace_record has been given it:
 *   forward, backward: before anything is computed from it
 *   param:             before the first forward pass of the iteration
 *   grad:              before the step, and before clipping
 *   step:              before the step and before any record of it: optimizer states by their slot
 *                      (not "param") become what the other run's step before this one left
 * Returns 1 when data was written, 0 when there is nothing to write (no replay, no such tensor in
 * the pack, an iteration that is not captured), and a negative errno when the tensor in the pack
 * does not fit; rank.json then says why. Floats are rounded to the nearest of tensor->dtype, other
 * types must be equal; a rank of several gets its part, for which the axes must have been told by
 * ttrace_set. `data` is on the host, and a tensor that says to be on a device is refused. */
int ttrace_feed(const ttrace_tensor* tensor, void* data);

/* XXH3-64 of the bytes of `count` host arrays, as signed integers: for collectors of events that
 * tell whether a tensor has changed. Needs no ttrace_open. */
int ttrace_hash(const uint64_t* addresses, const uint64_t* sizes, uint64_t count, int64_t* hashes);

/* Waits until the copies from devices have ended and the writer has closed the last segment. Also
 * runs at exit, where a device may be gone already: programs that record tensors on one call it
 * before. Returns 0 when all records reached the disk. */
int ttrace_close(void);

/* The latest error of this process, "" if none; valid until the next call of any function here. */
const char* ttrace_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* TTRACE_H */
