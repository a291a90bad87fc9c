/* Tensors through a C interface: what the facade headers know of torch, so that a candidate's host code compiles in
 * seconds without torch's own headers and still works on real tensors, real dispatch and real autograd.
 *
 * Why: torch/extension.h costs 90 s under nvcc. The rule: everything here is plain C, exported by libkw_torch.so, which
 * is loaded with RTLD_GLOBAL before any extension; so extensions link with nothing and find these names at load time.
 *
 * Conventions
 *   handle     `kw_tensor` is one owned reference to an at::Tensor; NULL is the undefined tensor. A function that returns
 *              a kw_tensor gives the caller a new reference (release it); one that takes a kw_tensor borrows it.
 *   dtype      c10::ScalarType's numbers (KW_DTYPE_*, the same in torch 2.9-2.14); -1 means "not given".
 *   device     type is c10::DeviceType (0 CPU, 1 CUDA), index -1 means "the current one".
 *   failure    an int function returns 0 on success; a handle function returns NULL and sets kw_error_message().
 *              kw_error_message() is NULL when the last call of this thread succeeded (so NULL with no message is an
 *              undefined tensor). The facade throws: c10::IndexError and friends by kw_error_kind().
 *   thread     the GIL is needed only where a function says so.
 */
#ifndef KW_TORCH_H
#define KW_TORCH_H
#include <stddef.h>
#include <stdint.h>
#ifndef KW_API
#define KW_API __attribute__((visibility("default")))
#endif
#ifdef __cplusplus
extern "C" {
#endif

typedef struct kw_tensor_opaque *kw_tensor;

enum kw_dtype {
  KW_DTYPE_NONE = -1, KW_UINT8 = 0, KW_INT8 = 1, KW_INT16 = 2, KW_INT32 = 3, KW_INT64 = 4, KW_FLOAT16 = 5,
  KW_FLOAT32 = 6, KW_FLOAT64 = 7, KW_COMPLEX32 = 8, KW_COMPLEX64 = 9, KW_COMPLEX128 = 10, KW_BOOL = 11,
  KW_BFLOAT16 = 15, KW_FLOAT8_E5M2 = 23, KW_FLOAT8_E4M3FN = 24, KW_FLOAT8_E5M2FNUZ = 25, KW_FLOAT8_E4M3FNUZ = 26,
  KW_UINT16 = 27, KW_UINT32 = 28, KW_UINT64 = 29
};

typedef struct kw_device { int32_t type, index; } kw_device;

/* ---- the last error of this thread ------------------------------------------------------------------------------- */
KW_API const char *kw_error_message(void);      /* NULL: the last call succeeded. Without backtrace. */
KW_API const char *kw_error_kind(void);         /* Python's class: "RuntimeError", "IndexError", "ValueError",
                                                   "TypeError", "NotImplementedError", "OutOfMemoryError",
                                                   "AcceleratorError" */
/* What C10_CUDA_CHECK does with a cudaError_t: 0, or 1 with torch's "CUDA error: …" message as an AcceleratorError. */
KW_API int kw_cuda_check(int code);

/* ---- references --------------------------------------------------------------------------------------------------- */
KW_API kw_tensor kw_tensor_new_ref(kw_tensor);  /* NULL gives NULL */
KW_API void kw_tensor_release(kw_tensor);
KW_API kw_tensor kw_tensor_from_python(void *object); /* GIL; NULL with a TypeError when it is no tensor; None gives NULL */
KW_API void *kw_tensor_to_python(kw_tensor);    /* GIL; new PyObject reference; an undefined tensor gives None */
KW_API int kw_tensor_is_python(void *object);   /* GIL; 1 when the object is a torch.Tensor */
KW_API int kw_dtype_from_python(void *object);  /* GIL; -1 with an error when it is no torch.dtype */
KW_API void *kw_dtype_to_python(int dtype);     /* GIL; new reference */
KW_API int kw_device_from_python(void *object, kw_device *out); /* GIL; accepts torch.device, str */
KW_API void *kw_device_to_python(kw_device);    /* GIL; new reference */

/* ---- facts (of a defined tensor) ----------------------------------------------------------------------------------- */
KW_API int64_t kw_tensor_dim(kw_tensor);
KW_API const int64_t *kw_tensor_sizes(kw_tensor);     /* valid while the tensor lives and is not resized */
KW_API const int64_t *kw_tensor_strides(kw_tensor);
KW_API int64_t kw_tensor_numel(kw_tensor);
KW_API int64_t kw_tensor_storage_offset(kw_tensor);
KW_API int64_t kw_tensor_storage_bytes(kw_tensor);
KW_API int kw_tensor_dtype(kw_tensor);
KW_API int64_t kw_tensor_element_size(kw_tensor);
KW_API kw_device kw_tensor_device(kw_tensor);
KW_API int kw_tensor_layout(kw_tensor);               /* c10::Layout: 0 strided, 1 sparse, … */
KW_API int kw_tensor_is_contiguous(kw_tensor, int memory_format); /* c10::MemoryFormat: 0 contiguous, 2 channels_last,
                                                                     3 channels_last_3d */
KW_API int kw_tensor_is_same(kw_tensor, kw_tensor);
KW_API int kw_tensor_is_alias_of(kw_tensor, kw_tensor);
KW_API int kw_tensor_requires_grad(kw_tensor);
KW_API int kw_tensor_set_requires_grad(kw_tensor, int on);
KW_API kw_tensor kw_tensor_grad(kw_tensor);
KW_API int kw_tensor_is_leaf(kw_tensor);
KW_API int kw_tensor_is_pinned(kw_tensor);
/* Data pointer. dtype >= 0 asks what data_ptr<T>() asks ("expected scalar type Float but found Double"); the pointer
 * may be NULL for an empty tensor: test kw_error_message(). `is_const` is what const_data_ptr does (no copy-on-write). */
KW_API void *kw_tensor_data(kw_tensor, int dtype, int is_const);
/* Raises what packed_accessor/accessor<T, N> raise: "expected 2 dims but tensor has 3", scalar type. 0 when fine. */
KW_API int kw_tensor_check_accessor(kw_tensor, int dtype, int dims);
KW_API char *kw_tensor_text(kw_tensor);               /* as operator<< prints it; free() it */
KW_API const char *kw_dtype_name(int dtype);          /* "Float", "Half", … as c10::toString */
KW_API int64_t kw_dtype_bytes(int dtype);
KW_API int kw_dtype_promote(int a, int b);
KW_API int kw_default_dtype(void);

/* ---- making tensors ------------------------------------------------------------------------------------------------ */
/* dtype -1: the default dtype. memory_format as above or -1. pinned only for CPU. */
KW_API kw_tensor kw_tensor_empty(const int64_t *sizes, int ndim, int dtype, kw_device, int memory_format, int pinned);
KW_API kw_tensor kw_tensor_empty_strided(const int64_t *sizes, const int64_t *strides, int ndim, int dtype, kw_device);
KW_API kw_tensor kw_tensor_zeros(const int64_t *sizes, int ndim, int dtype, kw_device);
KW_API kw_tensor kw_tensor_full(const int64_t *sizes, int ndim, double value, int dtype, kw_device);
/* As torch::empty_like, zeros_like, …; op is "empty_like", "zeros_like", "ones_like", "rand_like", "randn_like".
 * dtype -1, device.type -1 and memory_format -1 keep the tensor's own. */
KW_API kw_tensor kw_tensor_like(const char *op, kw_tensor, int dtype, kw_device, int memory_format);
/* torch::from_blob: borrowed memory; deleter(context) when the last reference goes (may be NULL). strides may be NULL. */
KW_API kw_tensor kw_tensor_from_blob(void *data, const int64_t *sizes, const int64_t *strides, int ndim, int dtype,
                                     kw_device, void (*deleter)(void *), void *context);
/* torch::tensor({...}): copies `count` elements of `dtype` from host memory. */
KW_API kw_tensor kw_tensor_from_host(const void *data, int64_t count, int dtype, kw_device);

/* A cuda:0 tensor over a CPU tensor's memory, without a copy; keeps that memory alive. Reports call it `name`. */
KW_API kw_tensor kw_tensor_device_twin(kw_tensor host, const char *name);

/* Resizes the tensor's storage, keeping its bytes. 0 on success. */
KW_API int kw_tensor_resize_storage(kw_tensor, int64_t bytes);

/* ---- any operator, through the boxed dispatcher --------------------------------------------------------------------- */
enum kw_tag { KW_NONE = 0, KW_TENSOR = 1, KW_INT = 2, KW_DOUBLE = 3, KW_BOOLEAN = 4, KW_STRING = 5, KW_INTLIST = 6,
              KW_DOUBLELIST = 7, KW_BOOLLIST = 8, KW_TENSORLIST = 9, KW_DTYPE = 10, KW_DEVICE = 11, KW_COMPLEX = 12 };

typedef struct kw_value {
  int32_t tag;            /* enum kw_tag */
  int32_t count;          /* elements of a list */
  const char *name;       /* NULL: positional; else the schema's argument name ("dim", "dtype", …) */
  union {
    kw_tensor tensor;
    int64_t integer;      /* KW_INT; also layout, memory format (their enum numbers) */
    double number;
    int32_t boolean;
    const char *string;
    const int64_t *integers;
    const double *numbers;
    const int32_t *booleans;
    const kw_tensor *tensors; /* NULL elements: None in an optional tensor list */
    int32_t dtype;        /* KW_DTYPE: enum kw_dtype, -1 is None */
    kw_device device;
    double complex_number[2];
  } as;
} kw_value;

/* Calls e.g. kw_op_call("aten::add", "Tensor", args, 2, outs, &nouts).
 * name       with or without "aten::".
 * overload   the overload's name ("" is the one without a name); NULL takes the first overload whose schema accepts the
 *            arguments, tried in torch's order (Tensor overloads before Scalar ones, out= overloads only when named).
 * args       positional ones first, then named ones; whatever is missing takes the schema's default. An integer is taken
 *            where a float, a Scalar or an int list (one element) is wanted; a Scalar parameter takes int/double/bool.
 * outs       room for *nouts results (8 is always enough); *nouts is set to how many there are. Give each to
 *            kw_value_release. An in-place operator returns its first argument as a new reference.
 * 0 on success; 1 with kw_error_message()/kw_error_kind() else. Never throws. The GIL is left as the caller has it
 * (operators do not need it). */
KW_API int kw_op_call(const char *name, const char *overload, const kw_value *args, int nargs, kw_value *outs, int *nouts);
KW_API void kw_value_release(kw_value *);   /* releases tensors, frees lists and strings of a result */
KW_API int kw_op_exists(const char *name);

/* ---- modes, device and stream ---------------------------------------------------------------------------------------- */
KW_API int kw_grad_mode(void);
KW_API void kw_set_grad_mode(int on);
/* at::AutoDispatchBelowADInplaceOrView as a pair of calls on one thread. */
KW_API void *kw_below_autograd_enter(void);
KW_API void kw_below_autograd_leave(void *);
/* c10::InferenceMode */
KW_API void *kw_inference_mode_enter(int on);
KW_API void kw_inference_mode_leave(void *);

KW_API int kw_device_count(void);
KW_API int kw_current_device(void);
KW_API int kw_set_current_device(int index);         /* 0, or 1 with torch's "invalid device ordinal" */
KW_API void *kw_current_stream(int device);          /* cudaStream_t of torch's current stream (NULL: the default one) */
KW_API void kw_set_current_stream(int device, void *stream);
KW_API void *kw_stream_from_pool(int high_priority, int device);

#ifdef __cplusplus
}
#endif
#endif
