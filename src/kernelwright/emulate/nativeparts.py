"""What an extension is linked with, instead of NVIDIA's libraries: the CUDA runtime shim and the device's libraries.

Why: with the real libcudart and no GPU a launch fails in silence. The rule: the shim is compiled against the header of
the toolkit that compiles the extension, so that structures have its layout; it is static and hidden, so that nothing
can clash with a real one.
"""

from __future__ import annotations

from pathlib import Path

from kernelwright.emulate import nativebuild

SOURCES = (
    *("cudart_launch.cpp", "cudart_limits.cpp", "cudart_memory.cpp", "cudart_pools.cpp", "cudart_volumes.cpp"),
    *("cudart_device.cpp", "cudart_streams.cpp", "cudart_graph.cpp", "cudart_graph_nodes.cpp", "cudart_capture.cpp"),
    "cudart_refused.cpp",
)


def archive(cuda_include: Path) -> Path:
    """libkw_cudart.a for the toolkit whose ``cuda_runtime_api.h`` is in ``cuda_include``; 2 s the first time."""
    return nativebuild.build_archive(
        "kw_cudart",
        [nativebuild.NATIVE / source for source in SOURCES],
        flags=["-std=c++17", "-O1", "-w", "-fvisibility=hidden", f"-I{nativebuild.NATIVE}", f"-I{cuda_include}"],
        headers=[cuda_include / "cuda_runtime_api.h", cuda_include / "driver_types.h"],
    )


def blas(cuda_include: Path) -> Path:
    """libkw_cublas.a: the part of cuBLAS that is served; 4 s the first time."""
    return nativebuild.build_archive(
        "kw_cublas",
        [nativebuild.NATIVE / "cublas.cpp"],
        flags=["-std=c++17", "-O3", "-w", "-fvisibility=hidden", f"-I{nativebuild.NATIVE}", f"-I{cuda_include}"],
        headers=[nativebuild.NATIVE / "cudart_state.h", nativebuild.NATIVE / "kw_runtime.h"],
    )


def extension_link_flags() -> tuple[str, ...]:
    """What follows the objects on an extension's link line; every symbol of the native parts resolves by it.

    The two shared libraries are in the candidate's process already, found again by their soname.
    """
    from kernelwright.build import toolchain
    from kernelwright.emulate import bridge, runtime

    shim = archive(toolchain.find().cuda_include)
    return (str(shim), str(bridge.build()), str(runtime.library()._name))


def program_link_flags() -> tuple[str, ...]:
    """The same for a program with its own ``main``, which knows nothing of torch."""
    from kernelwright.build import toolchain
    from kernelwright.emulate import runtime

    include = toolchain.find().cuda_include
    return (str(archive(include)), str(blas(include)), str(runtime.build()))


def include_folder() -> Path:
    """Headers of CUDA's libraries, as far as they are served and ATen names them; real ones win where there are any."""
    return nativebuild.NATIVE / "include"
