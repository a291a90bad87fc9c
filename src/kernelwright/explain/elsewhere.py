"""What a correct candidate does that goes wrong, or is slow, in other hands: advice, never a reason for a verdict.

Why: equal seeds hide that trained weights cannot be taken over, one stream hides that there are others, and a check of
values times no host. The rule: seen (names that do not load, an operator that waits), or written in a function that
ran, outside any condition, where the language leaves no other reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelwright.explain import access, semantic
from kernelwright.explain.case import Case
from kernelwright.explain.cpp import Function, Launch
from kernelwright.records import Cause, Confidence, Stage


def causes(case: Case) -> Iterator[Cause]:
    """Remarks on a candidate that was found correct."""
    yield from weights_by_name(case)
    yield from default_stream(case)
    yield from host_sync(case)


def weights_by_name(case: Case) -> Iterator[Cause]:
    """Equal under one seed, but the reference's state does not load."""
    numerics = case.evidence.numerics
    if numerics is None or not numerics.weights_note:
        return
    line, expected = semantic.first_other_member(case)
    yield case.cause(
        "semantic.weights",
        Stage.JUDGE,
        "Right where both are constructed under one seed; trained weights cannot be taken over, since the reference's "
        "state_dict does not load.",
        line=line,
        evidence=[numerics.weights_note, expected],
        fix="Keep the same layers under the same names as the reference, and pass their tensors to the kernel.",
    )


def default_stream(case: Case) -> Iterator[Cause]:
    """A launch without a stream goes to the legacy default stream, whatever stream PyTorch works on."""
    for launch in _ran(case):
        stream = launch.configuration[3] if len(launch.configuration) > 3 else ""
        if stream not in ("", "0", "nullptr", "NULL", "cudaStreamLegacy"):
            continue
        if re.search(r"\bCUDAStreamGuard\b|\bcudaStreamLegacy\b", launch.within.body):
            continue
        yield case.cause(
            "interface.wrong-stream",
            Stage.RUN,
            f"{launch.kernel} is launched on the legacy default stream: inside torch.cuda.stream(s), under CUDA graphs "
            f"or with non-blocking streams nothing orders it with the tensors' producers and consumers.",
            line=launch.line,
            evidence=[f"<<<{', '.join(launch.configuration)}>>> names no stream"],
            fix="Pass c10::cuda::getCurrentCUDAStream() as the fourth launch argument.",
            confidence=Confidence.LIKELY,
        )
        return


_WAITS = {
    "cudaMalloc": "waits for the device and takes memory that PyTorch's allocator would reuse",
    "cudaMallocHost": "pins host memory anew",
    "cudaFree": "waits for all work on the device",
    "cudaDeviceSynchronize": "waits for all work on the device",
    "cudaStreamSynchronize": "waits for the stream",
    "cudaMemcpy": "waits for the copy",
}
_CALL = re.compile(rf"(?:\b\w*CHECK\w*\s*\(\s*)?\b({'|'.join(_WAITS)})\s*\(")


def host_sync(case: Case) -> Iterator[Cause]:
    """The wrapper allocates, frees or waits in each call, or an operator takes a value to the host."""
    for function in {launch.within.line: launch.within for launch in _ran(case)}.values():
        found = [(function.line_at(at), name) for at, name in _unconditional(function)]
        if found:
            line, name = found[0]
            yield case.cause(
                "performance.host-sync",
                Stage.MEASURE,
                f"Each call of {function.name} runs {', '.join(dict.fromkeys(n for _, n in found))}: {name} "
                f"{_WAITS[name]}, so the host cannot run ahead of the GPU.",
                line=line,
                evidence=[f"line {at}: {case.text(at)}" for at, _ in found[:4]],
                fix="Allocate with torch::empty, whose memory is reused, and leave out the waiting: work on one stream "
                "is ordered.",
                confidence=Confidence.LIKELY,
            )
            return
    conduct = case.evidence.conduct
    if any(one.name == _TO_HOST for one in conduct.reference_operators or ()):
        return
    lines = list(dict.fromkeys(one.line for one in conduct.operators or () if one.name == _TO_HOST and one.line))
    if lines:
        yield case.cause(
            "performance.host-sync",
            Stage.MEASURE,
            "The forward pass takes a value to the host, so the host waits for all work before it goes on.",
            line=lines[0],
            evidence=[f"line {line}: {case.text(line)}" for line in lines[:4]],
            fix="Keep the value in a tensor on the device, and pass that to the kernel.",
        )


_TO_HOST = "_local_scalar_dense"
"""What ``item()``, ``int(tensor)`` and ``if tensor:`` run."""


def _unconditional(function: Function) -> Iterator[tuple[int, str]]:
    """Calls that each run of ``function`` comes to: a statement of its own, in no block, before no return."""
    if re.search(r"\bstatic\b", function.body):
        return
    for call in _CALL.finditer(function.body):
        before = function.body[: call.start()]
        if before.count("{") == before.count("}") and before.rstrip()[-1:] in ("", ";", "}"):
            if re.search(r"\breturn\b", before):
                return
            yield call.start(1), call[1]


def _ran(case: Case) -> list[Launch]:
    """The launches in the candidate's text whose kernels ran."""
    names = dict.fromkeys(access.kernel(fact.kernel) for fact in case.evidence.launches if fact.error == 0)
    return [launch for name in names for launch in case.sources.launches_of(name)]
