/* What generated code, the memory helpers and the block scheduler share: a warp, its block, its launch.
 *
 * Why: a warp's state lies in memory, not on a stack, so that it can stop at a barrier and resume on any call. The rule:
 * the offsets of kw_warp are known to emulate/codegen/layout.py, and the static assertions below keep the two equal.
 */
#ifndef KW_RUNTIME_WARP_H
#define KW_RUNTIME_WARP_H
#include "kw_runtime.h"
#include <stdatomic.h>

#define KW_LANES 32
#define KW_NONE_WAITS 0x7fffffff
/* Backward branches that a warp may take before others get their turn; measured: 4096 costs nothing (2026-11). */
#define KW_BUDGET 4096
#define KW_BARRIERS 16
#define KW_REGISTERS_AT 2048

/* CUDA error numbers that a launch can end in (driver_types.h). */
enum { KW_OK = 0, KW_TIMEOUT = 702, KW_ILLEGAL_ADDRESS = 700, KW_ASSERT = 710, KW_MISALIGNED = 716, KW_LAUNCH_FAILURE = 719 };
enum kw_status { KW_RUNNING = 0, KW_WAITS = 1, KW_YIELDED = 2, KW_EXITED = 3, KW_STOPPED = 4 };
enum kw_space { KW_IN_GLOBAL = 0, KW_IN_SHARED = 1, KW_IN_LOCAL = 2, KW_IN_GENERIC = 3, KW_IN_CONST = 4, KW_IN_PARAM = 5 };
enum kw_access { KW_LOAD = 0, KW_STORE = 1, KW_ATOMIC = 2, KW_AT_BARRIER = 3, KW_AT_ASSERT = 4, KW_AT_TRAP = 5, KW_AT_SYNC = 6 };
/* Causes, in the order of emulate/findings.py. */
enum kw_cause { KW_OUT_OF_BOUNDS = 0, KW_MISALIGNED_ACCESS = 1, KW_LOCAL_OVERRUN = 2, KW_HOST_MEMORY = 3, KW_RAW_POINTER = 4,
                KW_USE_AFTER_FREE = 5, KW_DIVERGENT_BARRIER = 6, KW_DEADLOCK = 7, KW_WARP_MASK = 8, KW_ASSERTION = 9,
                KW_TRAPPED = 10, KW_EXITED_BEFORE_BARRIER = 11, KW_SHARED_RACE = 12, KW_TOLERATED_RACE = 13,
                KW_UNINITIALISED = 14, KW_UNINITIALISED_LOAD = 15, KW_GLOBAL_RACE = 16, KW_TOLERATED_GLOBAL_RACE = 17,
                KW_STALE_READ = 18, KW_COPY_UNDER_WAY = 19, KW_OUTSIDE_VIEW = 20 };

/* One place in the code that may fault. */
typedef struct kw_site {
  int32_t parameter;       /* byte offset of the kernel parameter that the address is derived from; -1 unknown */
  int32_t low, high;       /* shared: window range of the one declared array it is derived from; high -1: to the window's end */
  int32_t bytes;           /* of one lane's access */
  uint8_t space, access;   /* enum kw_space, enum kw_access */
  uint8_t strong;          /* 1 volatile; 2 atomic, relaxed and above: the latter never race with a strong access */
  uint8_t parts;           /* bit j: somebody uses component j of what is loaded; of an atomic bit 0: that it combines */
  int32_t variable;        /* the module's variable (an index of kw_run.symbols) that the address is derived from; -1 unknown */
  uint8_t granule;         /* bytes of one element: what races are told apart by */
  uint8_t read_only;       /* a load through the read-only cache (ld.global.nc) */
  uint8_t padding[2];
} kw_site;

/* Bit of kw_site.parts of an atomic whose result somebody uses. */
#define KW_RETURNS 2

/* kw_site.variable of an address that is certain to lie in shared or local memory. */
#define KW_ELSEWHERE (-2)

typedef struct kw_cover kw_cover;

/* The addresses a site may touch: lo <= a and a - lo <= last; and, where accesses there are watched, their shadow. */
typedef struct kw_range { uint64_t lo, last; const kw_cover *cover; } kw_range;

typedef struct kw_finding {
  int32_t cause, site, lane_space, access;
  uint64_t block, count, address;
  int64_t offset;
  uint32_t thread, bytes;
  int32_t has_allocation, other_site;     /* other_site: of the access that a race is with, which comes first; -1 none */
  uint32_t other_thread, other_block;
  kw_allocation allocation;
  char message[512];
} kw_finding;

typedef struct kw_run kw_run;
typedef struct kw_block kw_block;
typedef struct kw_shadow kw_shadow;
typedef struct kw_mbarriers kw_mbarriers;
typedef struct kw_counts kw_counts;
typedef struct kw_watch kw_watch;

typedef struct kw_warp {
  int32_t pcs[KW_LANES];                     /* 0 */
  uint32_t mask, live, waiting;              /* 128 */
  int32_t next_waits;                        /* 140: lowest pc of runnable lanes outside mask */
  int32_t budget, status;                    /* 144 */
  uint64_t count;                            /* 152: thread instructions */
  uint8_t *params, *shared, *local;          /* 160 */
  uint64_t local_stride;                     /* 184 */
  kw_block *block;                           /* 192 */
  kw_range *ranges;                          /* 200 */
  uint32_t ctaid[3], ntid[3], nctaid[3];     /* 208 */
  uint32_t index;                            /* 244 */
  int32_t where;                             /* 248 */
  uint32_t red;                              /* 252: result of the last barrier reduction */
  uint32_t tid[3][KW_LANES];                 /* 256 */
  uint64_t a[KW_LANES];                      /* 640 */
  uint64_t d[4][KW_LANES];                   /* 896 */
  const uint64_t *symbols;                   /* 1920 */
  uint64_t dynamic_shared;                   /* 1928 */
  uint32_t total_shared, sync_lanes;         /* 1936 */
  uint32_t barrier_lanes, rotate;            /* 1944 */
  uint8_t barrier_id[KW_LANES];              /* 1952 */
  int32_t *barrier_site;                     /* 1984: [32] */
  uint32_t *members;                         /* 1992: [32] */
  uint32_t sync_any, sync_passed;            /* 2000 */
  kw_shadow *shadow;                         /* 2008 */
  uint32_t clock, clock_reads;               /* 2016: the first event since lanes of the warp last met */
  uint64_t *cells;                           /* 2024: of a counted launch; NULL in any other */
  kw_counts *counts;                         /* 2032 */
  uint32_t global_clock, reserved;           /* 2040: of events of global memory, as clock is of shared memory's */
} kw_warp;

_Static_assert(offsetof(kw_warp, count) == 152 && offsetof(kw_warp, block) == 192 && offsetof(kw_warp, tid) == 256 &&
                   offsetof(kw_warp, a) == 640 && offsetof(kw_warp, d) == 896 && offsetof(kw_warp, symbols) == 1920 &&
                   offsetof(kw_warp, cells) == 2024 &&
                   sizeof(kw_warp) == KW_REGISTERS_AT,
               "codegen/layout.py knows these offsets");

typedef void (*kw_code)(kw_warp *);

typedef struct kw_barrier { uint32_t arrived, announced, count, all, any, popc, used; } kw_barrier;

typedef struct kw_text { char *bytes; size_t used, capacity; } kw_text;

struct kw_block {
  kw_run *run;
  uint64_t index;
  uint32_t threads, exited, warps, done;
  kw_barrier barriers[KW_BARRIERS];
  kw_finding *findings;
  uint32_t n_findings, c_findings, turns_after_error;
  int error, stop;
  kw_text text;
  kw_range *ranges;
  uint8_t *memory;         /* one mapping: shared memory, then contexts, then local depots */
  uint8_t *shared;
  kw_shadow *shadow;
  kw_counts *counts;       /* the worker's; NULL where nothing is counted */
  uint64_t count;
  uint32_t ctaid[3], placed;   /* placed: its warps know their threads' numbers */
  kw_mbarriers *mbarriers; /* NULL until the block has one */
  uint32_t haste;          /* halvings of KW_BUDGET while several blocks do nothing but wait for one another */
};

/* A launch, as module.py fills it (fields up to `error`) and reads it back. */
struct kw_run {
  kw_code code;
  const char *kernel;
  const uint8_t *params;
  const kw_site *sites;
  const uint64_t *symbols;
  uint64_t parameter_bytes, dynamic_shared;
  double deadline_s;            /* wall-clock seconds; 0 none */
  uint32_t grid[3], block[3];
  uint32_t n_sites, static_shared, local_bytes, register_bytes;
  uint32_t parallel, resident_limit;
  uint32_t worker_limit, granule;   /* granule: bytes that the races of shared memory are told apart by: 1, 2 or 4 */
  uint64_t *cells;              /* n_cells counters to fill in; NULL: the launch is not counted */
  uint32_t n_cells, n_accesses;
  uint32_t global_races, cooperative; /* 1: look for races in global memory; 1: all blocks are resident from the start */
  uint32_t shared_races;        /* 1: look for races in shared memory, and for reads of it that nobody wrote */
  /* results */
  int32_t error, interrupted;
  uint64_t count;
  kw_finding *findings;
  uint64_t n_findings;
  char *text;
  uint64_t text_bytes;
  int32_t where[64];            /* block numbers of the stopped warps */
  uint32_t where_thread[64];
  uint64_t where_block;
  int32_t n_where, padding;
  uint64_t sectors_read, sectors_written;                 /* distinct ones */
  uint64_t atomics, atomic_addresses, hottest;            /* in global memory; on the address that has most */
  /* private */
  uint64_t blocks;
  atomic_ullong next, first_fault;
  atomic_int stop;
  double started;
  kw_text *texts;
  kw_counts *counts;
  kw_watch *watch;              /* NULL: global memory is not watched */
};

KW_API int kw_run_launch(kw_run *);
KW_API void kw_run_release(kw_run *);
KW_API void kw_interrupt(void);
extern atomic_int kw_interrupted;

/* findings */
kw_finding *kw_report(kw_warp *, int cause, int site, int lane, uint64_t address, int error);
void kw_text_add(kw_text *, const char *, size_t);
double kw_now(void);
void kw_note_place(const kw_warp *);

/* allocation table */
int kw_range_of(uint64_t address, uint64_t *base, uint64_t *bytes, int *kind);
int kw_is_mapped(uint64_t address);
int kw_view_of(uint64_t pointer, uint64_t *low, uint64_t *high);
void kw_drop_views(uint64_t base, uint64_t bytes);
#endif
