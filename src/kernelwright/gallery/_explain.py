"""Says which variant the gallery chooses for a shape on a device, without running or compiling anything.

Why: a choice that cannot be asked about cannot be doubted. The rule: the answer comes from the very function that
chooses at run time.
"""

from __future__ import annotations

from kernelwright.device.specs import spec
from kernelwright.errors import UsageError
from kernelwright.gallery import _tables as tables
from kernelwright.gallery.kernels import linear, matvec, softmax

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
SHAPES = {"matvec": "M K", "softmax": "M N", "linear": "M N K", "linear_gelu_softmax": "M N K"}


class BadShape(UsageError):
    """A shape or dtype that does not belong to the kernel."""

    message = "{name} takes the shape {wanted} in {dtypes}, got {shape} in {dtype}"


def explanation(name: str, shape: tuple[int, ...], *, dtype: str, transposed: bool, device: str) -> str:
    """One line for each kernel that is launched at ``shape`` (contiguous, aligned) on ``device``."""
    dtypes = tuple(ITEM_BYTES) if name in ("matvec", "softmax") else ("float32",)
    if len(shape) != len(SHAPES[name].split()) or dtype not in dtypes or min(shape) < 1:
        raise BadShape(
            name=name, wanted=SHAPES[name], dtypes=", ".join(dtypes), shape=" ".join(map(str, shape)), dtype=dtype
        )
    facts = spec(device)
    hopper = facts.compute_capability == (9, 0)
    tables.install()
    if name == "matvec":
        M, K = shape
        aligned = (M if transposed else K) * ITEM_BYTES[dtype] % 16 == 0
        sms = facts.multiprocessors
        return str(matvec.choose(M, K, ITEM_BYTES[dtype], aligned, transposed, sms, hopper, facts.name))
    if name == "softmax":
        M, N = shape
        rows = softmax.ROWS if N * ITEM_BYTES[dtype] % 16 == 0 else softmax.WHOLE
        return str(softmax.choose(M, N, ITEM_BYTES[dtype], rows, hopper, False, True, facts.name))
    M, N, K = shape
    lines = [str(linear.choose(M, N, K, facts.multiprocessors, hopper, facts.name))]
    if name == "linear_gelu_softmax":
        rows = softmax.ROWS if N % 4 == 0 else softmax.WHOLE
        lines.append(str(softmax.choose(M, N, 4, rows, hopper, False, False, facts.name)))
    return "\n".join(lines)
