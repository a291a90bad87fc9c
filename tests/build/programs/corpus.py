"""Wrapper code as people write it, built in the tier that is asked for; what each call of corpus.txt gives.

``corpus.py fast`` uses the facade headers, ``corpus.py full`` torch's own: a difference between the two is a fault of
the facade. Run in a process of its own, because the emulated device stays in it.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent


def calls(m: Any) -> list[tuple[str, Callable[[], Any]]]:
    """Each call by its text."""
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3).cuda() - 2
    cpu = x.cpu()
    names = {"m": m, "x": x, "cpu": cpu, "torch": torch}
    texts = (HERE / "corpus.txt").read_text().splitlines()
    return [(text, functools.partial(eval, text, names)) for text in texts]


def plain(value: Any) -> Any:
    """A result as JSON can hold it."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), str(value.device), list(value.shape), value.double().cpu().tolist()]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)


def main(tier: str) -> None:
    """Builds in ``tier`` and prints one line a call."""
    from kernelwright import build
    from kernelwright.build import fast
    from kernelwright.build.nvcc import CommandFailed
    from kernelwright.device.specs import spec
    from kernelwright.emulate import device as emulated

    if tier == "full":

        def refuse(*_: Any, **__: Any) -> Any:
            raise CommandFailed("g++", "", "candidate.py:1: error: as asked")

        fast.build = refuse
    device = emulated.install(spec("h200"), memory_limit_bytes=None)
    records: list[Any] = []
    file = Path(__file__)
    build.install(
        build.BuildContext(str(file), file.read_text(), device, "sm_80", records.append, lambda request: None)
    )
    from torch.utils.cpp_extension import load_inline

    module = load_inline("corpus", (HERE / "corpus.cpp").read_text(), (HERE / "corpus.cu").read_text())
    assert records[-1].tier == tier, records[-1]
    for text, call in calls(module):
        try:
            answer = plain(call())
        except Exception as error:
            answer = [type(error).__name__, re.sub(r"0x[0-9a-f]+", "0x…", str(error))]
        print(json.dumps([text, answer]))


if __name__ == "__main__":
    main(sys.argv[1])
