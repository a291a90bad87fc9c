"""Builds and loads libkw_torch.so, which makes ``cuda:0`` a real device of this torch.

Why: it is compiled against the user's own torch. The rule: loaded once, globally (extensions find its symbols without
linking to it), and only in the process that runs a candidate.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kernelwright.emulate import nativebuild, torchfiles

if TYPE_CHECKING:
    import torch

UNITS = ("torch_unit_operators.cpp", "torch_unit_interface.cpp")
"""Compiled side by side."""
PARTS = (
    "torch_bridge.cpp",
    "torch_checks.cpp",
    "torch_rnn.cpp",
    "torch_device.cpp",
    "torch_python.cpp",
    "torch_tensor.cpp",
    "torch_call.cpp",
    "torch_cuda.cpp",
)
"""What the units include."""


def build() -> Path:
    """libkw_torch.so for this torch; compiles for about 20 s on two cores where the cache does not hold it."""
    home = torchfiles.folder()
    include = [
        nativebuild.NATIVE,
        home / "include",
        home / "include/torch/csrc/api/include",
        Path(sysconfig.get_paths()["include"]),
    ]
    return nativebuild.build_shared(
        "kw_torch",
        [nativebuild.NATIVE / unit for unit in UNITS],
        # Every Linux build of torch since 2.7 uses the C++11 ABI.
        flags=["-std=c++20", "-O1", "-w", "-D_GLIBCXX_USE_CXX11_ABI=1", *(f"-I{path}" for path in include)],
        links=[f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"],
        headers=[nativebuild.NATIVE / part for part in PARTS],
        salt=f"{torchfiles.versions()} {sysconfig.get_config_var('SOABI')}",
    )


@functools.cache
def load() -> ctypes.CDLL:
    """Loads libkw_runtime.so and libkw_torch.so and takes the CUDA backend over. Idempotent; no way back."""
    import torch  # noqa: F401  its libraries are what ours is linked against

    from kernelwright.emulate import runtime

    runtime.library()
    bridge = ctypes.CDLL(str(build()), ctypes.RTLD_GLOBAL)
    bridge.kw_tensor_device_twin.restype = ctypes.c_void_p
    bridge.kw_tensor_device_twin.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    bridge.kw_tensor_release.argtypes = [ctypes.c_void_p]
    bridge.kw_tensor_resize_storage.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    bridge.kw_error_message.restype = ctypes.c_char_p
    bridge.kw_last_error_slot.restype = ctypes.POINTER(ctypes.c_int)
    bridge.kw_torch_install()
    bridge.kw_torch_register()
    bridge.kw_watch_host_memory()
    return bridge


def _python(name: str, *argument_types: type) -> ctypes._NamedFuncPointer:
    """A function of the bridge that needs the GIL and returns a new Python reference."""
    function = ctypes.PyDLL(load()._name)[name]
    function.restype = ctypes.py_object
    function.argtypes = list(argument_types)
    return function


@contextlib.contextmanager
def _handle(tensor: torch.Tensor) -> Iterator[int]:
    """The tensor as a ``kw_tensor``, for a ``with`` block."""
    function = ctypes.PyDLL(load()._name).kw_tensor_from_python
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.py_object]
    handle = function(tensor)
    try:
        yield handle
    finally:
        load().kw_tensor_release(handle)


def _raise_unless(fine: object) -> None:
    if not fine:
        raise RuntimeError((load().kw_error_message() or b"no message").decode())


def device_twin(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """A ``cuda:0`` tensor over a CPU tensor's memory: no copy; reports call the memory ``name``."""
    with _handle(tensor) as host:
        twin = load().kw_tensor_device_twin(host, name.encode())
    _raise_unless(twin)
    try:
        return cast("torch.Tensor", _python("kw_tensor_to_python", ctypes.c_void_p)(twin))
    finally:
        load().kw_tensor_release(twin)


def resize_storage(tensor: torch.Tensor, size: int) -> None:
    """Makes the tensor's storage ``size`` bytes long, keeping what fits."""
    with _handle(tensor) as handle:
        _raise_unless(load().kw_tensor_resize_storage(handle, size) == 0)


def default_generator() -> torch.Generator:
    """The generator that ``cuda:0`` draws from unless told otherwise."""
    return cast("torch.Generator", _python("kw_default_generator")())


def sticky_error() -> int:
    """The context's sticky ``cudaError_t``, 0 for none."""
    from kernelwright.emulate import runtime

    return int(runtime.library().kw_sticky_error())


def check(code: int) -> None:
    """Raises torch's "CUDA error: …" for a ``cudaError_t``; nothing for 0."""
    import torch

    bridge = load()
    if bridge.kw_cuda_check(code):
        kind = getattr(torch, "AcceleratorError", RuntimeError)
        raise kind((bridge.kw_error_message() or b"").decode())
