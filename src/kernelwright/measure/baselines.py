"""What a candidate is compared with: the problem's ``Model``, eagerly, compiled, and with TF32.

Why: a speed-up needs a partner that somebody would really use. The rule: eager and TF32 always run beside the
candidate; a compiled baseline does so the first time, and is then kept per problem, device, driver and versions,
because compiling takes up to a minute. It is kept as paired samples of itself *and eager*: later runs carry it over
through eager, which they time anew, so that a slower day of the card moves both. TF32 rounds fp32 inputs to 10 bits: it
is shown, and marked as not fp32-accurate.

The compiled baselines take no CUDA graphs of their own (``max-autotune-no-cudagraphs``): a graph is a figure of its own
for every contestant, and PyTorch's would copy each input into its own buffers first.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.settings import cache_folder

EAGER = "eager"


@dataclass(frozen=True)
class Baseline:
    """One way of running the problem's model."""

    name: str
    compile_mode: str | None = None
    """torch.compile's mode; None where nothing is compiled."""
    tf32: bool = False
    keep: bool = False
    """Whether it is kept between runs."""


BASELINES: tuple[Baseline, ...] = (
    Baseline(EAGER),
    Baseline("tf32", tf32=True),
    Baseline("compile", compile_mode="default", keep=True),
    Baseline("max-autotune", compile_mode="max-autotune-no-cudagraphs", keep=True),
)
TABLE = {baseline.name: baseline for baseline in BASELINES}


def chosen(names: Sequence[str]) -> tuple[Baseline, ...]:
    """The baselines called ``names``, eager always first. Raises ``KeyError`` for an unknown one."""
    wanted = {EAGER, *(TABLE[name].name for name in names)}
    return tuple(baseline for baseline in BASELINES if baseline.name in wanted)


def made(baseline: Baseline, model: Any) -> Any:
    """``model`` as ``baseline`` runs it. Compiling happens at the first call."""
    if baseline.compile_mode is None:
        return model
    import torch

    return torch.compile(model, mode=baseline.compile_mode)


@dataclass(frozen=True)
class Kept:
    """Samples of a baseline and of eager, paired by round, in ms."""

    eager_ms: tuple[float, ...]
    baseline_ms: tuple[float, ...]


def key(
    *, problem_text: str, sets: Mapping[str, str], device: str, driver: str, versions: Mapping[str, str]
) -> tuple[str, ...]:
    """Everything that could change a compiled baseline's time: problem and sizes, device and driver, libraries."""
    libraries = (f"{name} {version}" for name, version in sorted(versions.items()))
    return (problem_text, json.dumps(dict(sets), sort_keys=True), device, driver, *libraries)


class Store:
    """Kept baselines of one problem on one device. ``key`` names everything that could change a time."""

    def __init__(self, *key: str, folder: Callable[[], Path] = cache_folder) -> None:
        self._key, self._folder = key, folder

    def load(self, baseline: Baseline) -> Kept | None:
        """What was kept; None where nothing readable was."""
        try:
            read = json.loads(self._path(baseline).read_text(encoding="utf-8"))
            kept = Kept(tuple(map(float, read["eager_ms"])), tuple(map(float, read["baseline_ms"])))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return kept if len(kept.eager_ms) == len(kept.baseline_ms) >= 2 else None

    def save(self, baseline: Baseline, kept: Kept) -> None:
        """Keep it; appears whole or not at all."""
        path = self._path(baseline)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".making-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"key": list(self._key), "eager_ms": kept.eager_ms, "baseline_ms": kept.baseline_ms}, file)
        Path(name).rename(path)

    def _path(self, baseline: Baseline) -> Path:
        from kernelwright.build.cache import digest

        return self._folder() / "baselines" / f"{digest(*self._key, baseline.name, str(baseline))}.json"
