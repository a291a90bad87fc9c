"""What this very device does at best: bandwidths, an empty launch, matrix rates; measured once and kept.

Why: data sheets promise what no kernel reaches, and a limit built on them flatters nobody. The rule: each ceiling is
the best that any of several ways reached on random data (zeros are faster, which no problem is), with its sustained
figure and clock beside it; kept per device and driver, and measured anew when either changes or how it is measured.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kernelwright.errors import MachineError
from kernelwright.measure import trials
from kernelwright.measure.nvml import Card, Sampler, Unavailable
from kernelwright.measure.records import Ceiling, Ceilings
from kernelwright.measure.statistics import median
from kernelwright.measure.trials import Trial
from kernelwright.records import from_json, to_json
from kernelwright.settings import cache_folder

SUSTAINED_SECONDS = 0.4
SETTLE_NS = 150_000_000
"""The clock is read once the card has had this long to find it."""


def measure(progress: Callable[[str], None] = lambda words: None) -> Ceilings:
    """Measure device 0's ceilings, keep them, and return them. Takes about ten seconds.

    Raises ``MachineError`` where PyTorch sees no GPU.
    """
    import torch

    if not torch.cuda.is_available():
        raise MachineError("PyTorch sees no GPU on this machine", hint="ceilings can only be measured on one")
    uuid = _uuid()
    found: dict[str, Ceiling] = {}
    with Sampler(lambda: Card(uuid), ours=(os.getpid(),)) as sampler:
        for family in (trials.memory, trials.products):
            best: dict[str, Trial] = {}
            for trial in family(progress):
                if trial.name not in best or trial.better(best[trial.name]):
                    best[trial.name] = trial
            for name, trial in best.items():
                progress(f"sustaining {name}")
                found[name] = _sustained(trial, sampler)
    made = Ceilings(
        device=torch.cuda.get_device_name(0),
        driver=driver(),
        l2_bytes=int(torch.cuda.get_device_properties(0).L2_cache_size),
        ceilings=found,
        versions={"torch": torch.__version__, "cuda": str(torch.version.cuda)},
    )
    _keep(_file(uuid, made.driver), made)
    return made


def kept() -> Ceilings | None:
    """Device 0's ceilings from the cache; None where they were not measured with this driver and this version."""
    path = _file(_uuid(), driver())
    try:
        return from_json(Ceilings, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def driver() -> str:
    """The driver's version; empty where NVML is not there to tell."""
    try:
        return Card(_uuid()).driver()
    except Unavailable:
        return ""


def _sustained(trial: Trial, sampler: Sampler) -> Ceiling:
    """The trial's ceiling: its burst or better, and what it holds over ``SUSTAINED_SECONDS``, with the clock then."""
    if not trial.amount:
        return Ceiling(trial.name, trial.unit, trial.burst_ms, None, trial.how)
    batch = max(1, int(20 / max(trial.burst_ms, 1e-3)))
    began, at = time.perf_counter(), time.monotonic_ns()
    times: list[float] = []
    while time.perf_counter() - began < SUSTAINED_SECONDS:
        times.append(trials.batch(trial.run, batch))
    clocks = [float(state.sm_mhz) for state in sampler.states if state.at_ns >= at + SETTLE_NS]
    # GB or TFLOP over ms are thousands of them a second.
    best = trial.amount / min(trial.burst_ms, *times) * 1e3
    late = trial.amount / median(times[len(times) // 3 :]) * 1e3
    return Ceiling(trial.name, trial.unit, best, late, trial.how, int(median(clocks)) if clocks else 0)


# ---- keeping -------------------------------------------------------------------------------------------------------
def _uuid() -> str:
    import torch

    return str(torch.cuda.get_device_properties(0).uuid)


def _file(uuid: str, driver: str) -> Path:
    from kernelwright.build.cache import digest

    name = digest(
        uuid,
        driver,
        *(path.read_bytes() for path in (trials.MEMORY, trials.BYTES, Path(trials.__file__), Path(__file__))),
    )
    return cache_folder() / "ceilings" / f"{name}.json"


def _keep(path: Path, made: Ceilings) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".making-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(to_json(made), file, indent=1)
    Path(name).rename(path)
