// Handles and caught exceptions, for the files that implement kw_torch.h.
#pragma once
#include "kw_torch.h"

#include <ATen/core/Tensor.h>

namespace kw {

void clear_error();
void set_error(const char* kind, std::string message);
void keep_exception();  // from inside a catch block

inline const at::Tensor& get(kw_tensor t) {
  static const at::Tensor undefined;
  return t ? *reinterpret_cast<const at::Tensor*>(t) : undefined;
}

inline kw_tensor give(at::Tensor t) {
  return t.defined() ? reinterpret_cast<kw_tensor>(new at::Tensor(std::move(t))) : nullptr;
}

template <class F>
kw_tensor guarded(F make) {
  clear_error();
  try {
    return give(make());
  } catch (...) {
    keep_exception();
    return nullptr;
  }
}

template <class F>
int guarded_status(F run) {
  clear_error();
  try {
    run();
    return 0;
  } catch (...) {
    keep_exception();
    return 1;
  }
}

}  // namespace kw
