/* The emulated device's memory and scheduler, as every native part of Kernelwright sees them.
 *
 * Why: three native parts share one device: the runtime (runtime.c: allocations, checks, the block scheduler), the CUDA
 * runtime shim (cudart.cpp, linked statically into each extension) and the torch bridge (torch_bridge.cpp). This header
 * is the whole of what they know of each other. The rule: all state lives in libkw_runtime.so; everything exported is
 * named kw_*, so nothing can clash with a real CUDA library in the same process.
 *
 * A device address is a host address: a tensor's data pointer is what kernels dereference. Shared and local memory lie at
 * host addresses too, so generic loads need no window translation.
 */
#ifndef KW_RUNTIME_H
#define KW_RUNTIME_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define KW_API __attribute__((visibility("default")))

/* Every 16-bit half of poisoned memory holds this: a NaN in fp16 (0x7fa5), bf16 and, doubled, a signalling NaN in fp32;
 * arithmetic on it sets the quiet bit (0x7fe57fa5), which tells "read" from "never written". In fp64 it is a number,
 * 5.6e306, known by its bits. */
#define KW_POISON16 0x7fa5u

/* ---- allocations ------------------------------------------------------------------------------------------------ */
enum kw_kind { KW_GLOBAL = 1, KW_HOST = 2, KW_PINNED = 3, KW_MANAGED = 4, KW_BINDING_TEMPORARY = 5, KW_CONST = 6,
               KW_FREED = 7, KW_SHARED = 8, KW_LOCAL = 9, KW_PARAM = 10 };

typedef struct kw_allocation {
  uint64_t base, bytes;
  int32_t kind;         /* enum kw_kind */
  int32_t id;           /* serial number, deterministic in program order */
  char name[120];       /* "input 0", "y = torch.empty", a __device__ variable's name; may be empty */
  char dtype[16];       /* may be empty */
  int64_t shape[8];
  int32_t ndim;         /* -1 unknown */
  uint64_t host_pc;     /* return address of the allocating call in the extension, 0 unknown */
} kw_allocation;

/* Device memory of `bytes` bytes, aligned to 512, between red zones, filled with poison. NULL (and the CUDA error
 * cudaErrorMemoryAllocation to report) where the presented device or the process's budget would not hold it. */
KW_API void *kw_alloc(size_t bytes, int kind, const char *name);
/* Free: the range stays known as KW_FREED (quarantined) for a while, so that later use is recognised. */
KW_API int kw_free(void *base);                       /* 0, or -1 when base is not an allocation's start */
/* Declare memory that somebody else owns (an input mapped from a file, a host temporary, a CPU tensor). */
KW_API void kw_adopt(void *base, size_t bytes, int kind, const char *name);
KW_API void kw_forget(void *base);
/* Describe an allocation (shape for messages). ndim <= 8. */
KW_API void kw_describe(void *base, const char *name, const char *dtype, const int64_t *shape, int ndim);
/* This pointer was handed out for a tensor that reaches from `before` bytes before it to `after` bytes behind it. */
KW_API void kw_view(void *pointer, uint64_t before, uint64_t after);
/* The allocation holding addr, else the nearest within 64 KiB: 1 inside, 2 near, 0 none. */
KW_API int kw_find(uint64_t addr, kw_allocation *out);
KW_API size_t kw_bytes_in_use(void);
KW_API size_t kw_peak_bytes(void);
KW_API void kw_set_memory_limit(size_t bytes);        /* of the presented device */
/* cudaMemset, copies and the like need no call: poison is recognised by value. */

/* ---- launches ---------------------------------------------------------------------------------------------------- */
typedef struct kw_dim3 { uint32_t x, y, z; } kw_dim3;

/* What the CUDA runtime shim hands to the emulator for every launch that the static limits allow. */
typedef struct kw_launch {
  const char *module_key;      /* what kw_module_register returned */
  const char *kernel;          /* mangled name */
  kw_dim3 grid, block;
  void **args;                 /* as cudaLaunchKernel has them: one pointer a parameter */
  uint64_t dynamic_shared;
  uint64_t stream;
  uint64_t host_pc;            /* return address of the <<<>>> site inside the extension */
  int32_t cooperative;
} kw_launch;

/* Python installs these once; the shim calls them (any thread; the callee takes the GIL). A launch returns a cudaError_t. */
typedef int (*kw_launch_fn)(const kw_launch *);
typedef const char *(*kw_module_fn)(const void *fatbin, uint64_t bytes);  /* a module's key, kept alive by the callee */
/* Attributes of a kernel: fills out[0..7] = registers, static shared bytes, local bytes, const bytes, max threads per
 * block, ptx version*10, binary version*10, max dynamic shared bytes; returns cudaError_t. */
typedef int (*kw_attributes_fn)(const char *module_key, const char *kernel, int32_t *out);
/* Address and size of a __device__/__constant__ variable in the module's memory. */
typedef int (*kw_symbol_fn)(const char *module_key, const char *name, void **address, uint64_t *bytes);
/* The offset and size in bytes of each of a kernel's parameters: at most `room` pairs into out; how many there are, or -1. */
typedef int (*kw_parameters_fn)(const char *module_key, const char *kernel, int32_t *out, int room);
/* A refused launch or a failed API call, for the record: cudaError_t, cause id, sentence. */
typedef void (*kw_refusal_fn)(const kw_launch *, int error, const char *cause, const char *sentence);

typedef struct kw_callbacks {
  kw_launch_fn launch;
  kw_module_fn module_register;
  kw_attributes_fn attributes;
  kw_symbol_fn symbol;
  kw_refusal_fn refusal;
  kw_parameters_fn parameters;
} kw_callbacks;
KW_API void kw_set_callbacks(const kw_callbacks *);
KW_API const kw_callbacks *kw_get_callbacks(void);

/* ---- the presented device (filled from the data sheet) ----------------------------------------------------------- */
typedef struct kw_device_properties {
  char name[256];
  int32_t major, minor, multiprocessors, clock_khz, memory_clock_khz, memory_bus_bits, l2_bytes;
  int32_t max_threads_per_block, max_threads_per_sm, max_blocks_per_sm, registers_per_block, registers_per_sm, warp_size;
  int32_t max_grid[3], max_block[3];
  uint64_t total_memory, shared_per_block, shared_per_block_optin, shared_per_sm, reserved_shared_per_block;
} kw_device_properties;
KW_API void kw_set_device(const kw_device_properties *);
KW_API const kw_device_properties *kw_get_device(void);

/* Sticky error of the context (0 none): set by a kernel that faulted, returned by every later call, as CUDA does. */
KW_API void kw_set_sticky_error(int error);
KW_API int kw_sticky_error(void);

#ifdef __cplusplus
}
#endif
#endif
