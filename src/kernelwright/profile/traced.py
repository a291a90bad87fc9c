"""In the candidate's own process: the kernels of a few forward passes by name and time, and what the problem demands.

Why: ncu's times are of kernels run one by one; the trace says what share each has of a forward pass as it runs. The
rule: the candidate is traced after warm-up with warm caches; the reference runs afterwards, to count its work.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

import torch

from kernelwright.device.specs import from_cuda
from kernelwright.errors import KernelwrightError
from kernelwright.measure import ceilings, limits, work
from kernelwright.records import to_json
from kernelwright.worker.forward import Session
from kernelwright.worker.seeds import seed_all
from kernelwright.worker.tree import map_tensors

WARM = 3
PASSES = 5


def main(session: Session) -> None:
    """Trace, then tell the device's ceilings and the problem's work."""
    for _ in range(WARM):
        session.forward("the warm forward")
    session.tell(passes=[_pass(session) for _ in range(PASSES)])
    properties: Any = torch.cuda.get_device_properties(0)
    major, minor = torch.cuda.get_device_capability(0)
    session.tell(
        device={"name": properties.name, "capability": f"{major}.{minor}"},
        versions={
            "torch": torch.__version__,
            "cuda": str(torch.version.cuda),
            "driver": ceilings.driver(),
            "numpy": importlib.metadata.version("numpy"),
        },
    )
    session.say("the device's ceilings")
    session.tell(ceilings=_ceilings(session))
    session.say("the reference's work")
    session.tell(work=_work(session))


def _pass(session: Session) -> list[list[Any]]:
    """One forward pass: name and microseconds of each kernel, copy and fill in order of its start."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
        session.forward("the traced forward")
    found = [
        (event.time_range.start, event.name, event.time_range.elapsed_us())
        for event in trace.events()
        if event.device_type.name == "CUDA"
    ]
    return [[name, time] for _, name, time in sorted(found, key=lambda item: item[0])]


def _ceilings(session: Session) -> Any:
    kept = ceilings.kept()
    try:
        return to_json(kept or ceilings.measure(session.say))
    except (KernelwrightError, RuntimeError) as error:
        session.tell(ceilings_note=f"ceilings are the data sheet's: {str(error).splitlines()[0]}")
    try:
        return to_json(limits.from_data_sheet(from_cuda(torch.cuda.get_device_properties(0))))
    except KernelwrightError:
        return None


def _work(session: Session) -> Any:
    """What the problem demands; None where counting it is not possible, which is no reason not to profile."""
    try:
        place = session.place
        assert place is not None
        seed_all(session.config.seed)
        arguments = map_tensors(session.arguments, lambda t: place.to_device(t, "constructor argument"))
        model = place.module(session.problem.model(*arguments))
        named = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []
        return to_json(work.count(lambda: model(*session.inputs), session.inputs, named))
    except Exception as error:
        session.tell(work_note=f"counting the reference's work raised {type(error).__name__}")
        return None
