"""Mangled C++ names as people write them."""

from __future__ import annotations

import ctypes
import functools


@functools.lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    for name in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.__cxa_demangle.restype = ctypes.c_void_p
        library.__cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        return library
    return None


@functools.lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """``_Z4gemvPKfS0_Pfii`` as ``gemv(float const*, float const*, float*, int, int)``; other names as they are."""
    library = _library()
    if library is None or not name.startswith("_Z"):
        return name
    status = ctypes.c_int()
    made = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not made or status.value:
        return name
    text = ctypes.string_at(made).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(made))
    return text
