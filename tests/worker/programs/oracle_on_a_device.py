"""The oracle's process with its reference on ``cuda:0``, here the emulated one: every request, and what it replied."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from kernelwright.device.emulated import Emulated
from kernelwright.worker import gpu, memory, oracle
from kernelwright.worker.recipe import Recipe, replayed
from kernelwright.worker.tree import pack

DEVICE = Emulated("h200", memory_limit_bytes=1 << 32)


def open_emulated(place: str) -> None:
    """Stands in for a GPU's context."""
    DEVICE.prepare()


def budget(place: str) -> int:
    """The oracle's budget on the device."""
    if sys.argv[3] == "0":
        raise torch.OutOfMemoryError("CUDA out of memory")
    return int(sys.argv[3])


class Line:
    """A channel that keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.fds: list[int] = []

    def send(self, message: dict[str, Any], fds: list[int] | tuple[int, ...] = ()) -> None:
        self.sent.append(message)
        self.fds = [os.dup(fd) for fd in fds]


def main() -> None:
    """``problem.py``, what the candidate's output is off by, the oracle's budget, where inputs are drawn.

    A budget of 0 stands for a device whose memory runs out. Prints one JSON line a request.
    """
    gpu.open, gpu.release, gpu.budget_bytes = open_emulated, lambda: None, budget
    line = Line()
    config = {
        "problem": sys.argv[1], "sets": {}, "seed": 0, "atol": None, "rtol": None,
        "budget_bytes": 1 << 30, "place": "cuda:0",
    }  # fmt: skip
    session = oracle._Session(line, config)  # type: ignore[arg-type]

    def ask(operation: str, fds: list[int] | None = None, **request: Any) -> dict[str, Any]:
        getattr(session, f"on_{operation}")({"op": operation, **request}, fds or [])
        reply = line.sent[-1]
        print(json.dumps(reply))
        return reply

    ask("open")
    ask("load")
    for seed in (1, 2):
        drawn = ask("trial", seed=seed, draw=sys.argv[4])
        ask("reference")
        ask("oracle")
        leaf = session.judging.reference.leaves[0]  # type: ignore[union-attr]
        print(json.dumps({"place": session.judging.place, "device": str(leaf.device)}))
        if "recipe" in drawn:
            same = replayed(Recipe(**drawn["recipe"]))
            mine = session.judging.given.values[0].cpu()  # type: ignore[union-attr]
            print(json.dumps({"equal": torch.equal(same[0].cpu(), mine)}))
        out = leaf.detach().cpu() + float(sys.argv[2])
        tensors: list[torch.Tensor] = []
        packed = pack(out, tensors)
        fd, spec = memory.share(out.contiguous())
        ask("compare", [fd], outputs=packed, tensors=[{**vars(spec), "device": "cuda:0"}], device="cuda:0")
        ask("rest")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(sys.argv[1]).parent))
    main()
