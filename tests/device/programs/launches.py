"""Runs launches.cu on torch's tensors on the emulated device; prints as JSON what the record holds afterwards."""

import ctypes
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from link import load

from kernelwright import records
from kernelwright.device.emulated import Emulated
from kernelwright.emulate import bridge


def raised(run: Any) -> str:
    """What ``run`` raises, or an empty string."""
    try:
        run()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


def main() -> None:
    """Each step fills one key."""
    emulated = Emulated("h200")
    emulated.prepare()
    device = emulated.device
    started: list[str] = []
    device.on_launch = lambda fact: started.append(fact.kernel)
    with tempfile.TemporaryDirectory() as folder:
        library = load(Path(__file__).with_name("launches.cu"), Path(folder))
        tell: dict[str, Any] = {}

        def pointer(t: torch.Tensor) -> ctypes.c_void_p:
            return ctypes.c_void_p(t.data_ptr())

        host = torch.arange(100, dtype=torch.float32)
        x = emulated.to_device(host, name="input 0")
        y = torch.empty(100, device="cuda")
        tell["shares memory"] = x.data_ptr() == host.data_ptr()
        tell["poison"] = bool(torch.isnan(y).all())
        counts = [library.run_scale(pointer(y), pointer(x), 100, ctypes.c_float(3.0)) for _ in range(2)]
        tell["counts"] = counts
        tell["right"] = torch.equal(y.cpu(), host * 3 + 2)
        tell["speak"] = library.run_speak()
        tell["printed"] = device.printed
        tell["large"] = library.run_large(pointer(y))
        tell["no fault yet"] = raised(torch.cuda.synchronize)
        tell["copy"] = library.copy_too_much(pointer(y), 400), library.copy_too_much(pointer(y), 401)
        tell["copy to host memory"] = library.copy_too_much(pointer(host.clone()), 4)
        tell["array"] = library.make_array()
        tell["check"] = raised(lambda: bridge.check(1))
        tell["overrun"] = library.run_overrun(pointer(y), 128)
        tell["copy after"] = raised(y.cpu)
        tell["item after"] = raised(y.sum().item)
        tell["synchronize after"] = raised(emulated.synchronize)
        tell["launches"] = records.to_json(emulated.launches())
        tell["findings"] = records.to_json(emulated.findings())
        tell["refusals"] = [(r.error, r.cause, r.sentence) for r in device.refusals]
        tell["started"] = started
        tell["fact"] = records.to_json(emulated.fact())
        tell["fault"] = repr(device.fault)
    print(json.dumps(tell))


if __name__ == "__main__":
    main()
