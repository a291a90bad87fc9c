// TensorAccessor and PackedTensorAccessor: strided views passed to kernels by value, laid out as ATen's.
#pragma once
#include <kw_facade/exception.h>

#ifdef __CUDACC__
#define KW_HD __host__ __device__
#else
#define KW_HD
#endif

namespace at {
inline namespace kw {
template <typename T>
struct DefaultPtrTraits {
  using PtrType = T*;
};
#ifdef __CUDACC__
template <typename T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};
#endif

template <typename T, size_t N, template <typename U> class P = DefaultPtrTraits, typename I = int64_t>
class TensorAccessor {
 public:
  using PtrType = typename P<T>::PtrType;
  KW_HD TensorAccessor(PtrType data, const I* sizes, const I* strides) : data_(data), sizes_(sizes), strides_(strides) {}
  ArrayRef<I> sizes() const { return ArrayRef<I>(sizes_, N); }
  ArrayRef<I> strides() const { return ArrayRef<I>(strides_, N); }
  KW_HD I stride(I i) const { return strides_[i]; }
  KW_HD I size(I i) const { return sizes_[i]; }
  KW_HD PtrType data() { return data_; }
  KW_HD const PtrType data() const { return data_; }
  KW_HD decltype(auto) operator[](I i) {
    if constexpr (N == 1) return (data_[strides_[0] * i]);
    else return TensorAccessor<T, N - 1, P, I>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }
  KW_HD decltype(auto) operator[](I i) const {
    if constexpr (N == 1) return static_cast<const T&>(data_[strides_[0] * i]);
    else return static_cast<const TensorAccessor<T, N - 1, P, I>>(
        TensorAccessor<T, N - 1, P, I>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1));
  }

 protected:
  PtrType data_;
  const I* sizes_;
  const I* strides_;
};

template <typename T, size_t N, template <typename U> class P = DefaultPtrTraits, typename I = int64_t>
class GenericPackedTensorAccessor {
 public:
  using PtrType = typename P<T>::PtrType;
  template <typename J>
  GenericPackedTensorAccessor(PtrType data, const J* sizes, const J* strides) : data_(data) {
    for (size_t i = 0; i < N; ++i) {
      sizes_[i] = static_cast<I>(sizes[i]);
      strides_[i] = static_cast<I>(strides[i]);
    }
  }
  KW_HD I stride(I i) const { return strides_[i]; }
  KW_HD I size(I i) const { return sizes_[i]; }
  KW_HD PtrType data() { return data_; }
  KW_HD const PtrType data() const { return data_; }
  KW_HD decltype(auto) operator[](I i) {
    if constexpr (N == 1) return (data_[strides_[0] * i]);
    else return TensorAccessor<T, N - 1, P, I>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }
  KW_HD decltype(auto) operator[](I i) const {
    if constexpr (N == 1) return static_cast<const T&>(data_[strides_[0] * i]);
    else return static_cast<const TensorAccessor<T, N - 1, P, I>>(
        TensorAccessor<T, N - 1, P, I>(const_cast<PtrType>(data_) + strides_[0] * i, sizes_ + 1, strides_ + 1));
  }

 protected:
  PtrType data_;
  I sizes_[N];
  I strides_[N];
};
template <typename T, size_t N, template <typename U> class P = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, P, int32_t>;
template <typename T, size_t N, template <typename U> class P = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, P, int64_t>;
}  // namespace kw
}  // namespace at
namespace torch {
inline namespace kw {
using at::DefaultPtrTraits;
using at::PackedTensorAccessor32;
using at::PackedTensorAccessor64;
#ifdef __CUDACC__
using at::RestrictPtrTraits;
#endif
}  // namespace kw
}  // namespace torch
