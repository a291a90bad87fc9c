"""Runs api_probe.cu on the emulated H200 and prints what it prints on a GPU."""

import ctypes
import tempfile
from pathlib import Path

from link import load

from kernelwright.device.specs import spec
from kernelwright.emulate import runtime
from kernelwright.emulate.device import install

ILLEGAL_ADDRESS = 700


def main() -> None:
    """Prints the probe's text, then that of the calls after a fault."""
    device = install(spec("h200"))
    # What ptxas counted for the GPU's run: 8 registers, and 128 for the kernel that wants many.
    names = ("_Z5plainPi", "_Z14dynamic_sharedPi", "_Z13static_sharedPi", "_Z7boundedPi")
    device.provide_registers({**dict.fromkeys(names, 8), "_Z14many_registersPi": 128})
    with tempfile.TemporaryDirectory() as folder:
        library = load(Path(__file__).with_name("api_probe.cu"), Path(folder))
    text = ctypes.create_string_buffer(1 << 16)
    library.probe(text, len(text))
    print(text.value.decode(), end="")
    if device.fault is not None:
        raise device.fault
    runtime.library().kw_set_sticky_error(ILLEGAL_ADDRESS)
    library.probe_after_fault(text, len(text))
    print("-- after a fault")
    print(text.value.decode(), end="")


if __name__ == "__main__":
    main()
