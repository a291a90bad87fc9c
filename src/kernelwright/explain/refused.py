"""The cause ``device.refused``: the code needs what the emulated device does not have, so nothing was decided.

Needs: the device's finding of that name. The rule: the finding's own line in the candidate; it says what the
instruction belongs to where that is known, and never that the candidate is at fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.explain import access
from kernelwright.explain.case import Case
from kernelwright.records import Cause, Finding, Stage

REFUSED = "device.refused"

_PARTS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("tex.", "tld4.", "txq.", "suld.", "sust.", "sured.", "suq.", "istypep."),
        "textures and surfaces",
        "Read and write global memory instead where the emulated device shall check the rest of the kernel.",
    ),
    (
        ("wgmma.", "tcgen05.", "stmatrix.", "mma.sp", "mma.sync.aligned.m16n8k32.row.col.f32.e"),
        "tensor-core instructions newer than sm_80",
        "Keep a path on mma.sync for sm_80 (chosen by __CUDA_ARCH__ or by the device's compute capability).",
    ),
    (
        ("cp.async.bulk", "cp.reduce.async.bulk", "tensormap.", "multimem.", "fence.proxy.tensormap"),
        "bulk copies and tensor maps (sm_90)",
        "Keep a path on cp.async for sm_80 (chosen by __CUDA_ARCH__ or by the device's compute capability).",
    ),
    (
        ("barrier.cluster", "mapa.", "getctarank.", "clusterlaunchcontrol.", "ld.shared::cluster", "st.async"),
        "thread block clusters (sm_90)",
        "Keep a path without clusters for sm_80.",
    ),
    (
        ("cublas", "cudnn", "cufft", "cusparse", "cusolver", "curand", "cutensor", "nccl", "npp"),
        "a library of NVIDIA's",
        "Of those the emulated device serves a part of cuBLAS: gemm, gemv and vector operations.",
    ),
    (
        ("cudaLaunchDevice", "cudaGetParameterBuffer", "cudaStreamCreateWithFlags", "cudaDeviceSynchronize"),
        "dynamic parallelism",
        "Launch the inner kernel from the host where the emulated device shall check it.",
    ),
)
"""Beginnings of opcodes and names of functions, what they belong to, and what to do."""

_ELSEWHERE = "On a machine with a GPU, --device cuda checks it as it is."


def causes(case: Case) -> Iterator[Cause]:
    """One for each refusal."""
    for finding in case.evidence.findings:
        if finding.cause == REFUSED:
            yield seen(case, finding)


def seen(case: Case, finding: Finding) -> Cause:
    """What the device does not know, at its line."""
    frame = case.own_frame(finding.frames)
    what = finding.access or "this module's PTX"
    belongs = next((part for part in _PARTS if what.startswith(part[0])), None)
    family = f", which belongs to {belongs[1]}" if belongs else ""
    where = f" in {access.kernel(finding.kernel)}" if finding.kernel else ""
    why = f": {finding.message}" if finding.message else ""
    advice = belongs[2] if belongs else "Please report it with the line above."
    line = f"PTX line {finding.ptx_line}" if finding.ptx_line else ""
    return case.cause(
        REFUSED,
        Stage.RUN,
        f"The emulated device does not know {what}{family}{where}{why}. Nothing was decided about the candidate.",
        line=frame.line if frame else 0,
        evidence=[line, *(f"inlined from {f.file}:{f.line}" for f in finding.frames[:1] if f is not frame)],
        fix=f"{advice} {_ELSEWHERE}",
    )
