"""What torch says of mistakes with devices: one line for each, as this machine's ``cuda`` answers.

The text of a GPU is kept in device_errors.txt; the emulated device must answer the same. Run as a program it prints it.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def cases() -> dict[str, Callable[[], Any]]:
    """Name to mistake."""
    d = torch.arange(12.0, device="cuda").reshape(3, 4) / 10
    h = torch.arange(12.0).reshape(3, 4) / 10
    di, hi = torch.tensor([0, 2], device="cuda"), torch.tensor([0, 2])
    image, weight = torch.ones(1, 3, 8, 8, device="cuda"), torch.ones(4, 3, 3, 3)
    zero = torch.tensor(2.0)
    return {
        "add": lambda: d + h,
        "add swapped": lambda: h + d,
        "add a host scalar": lambda: d + zero,
        "add a host scalar swapped": lambda: zero + d,
        "add_ device to host": lambda: h.clone().add_(d),
        "mul": lambda: d * h,
        "where": lambda: torch.where(d > 0.5, d, h),
        "mm": lambda: d @ h.t(),
        "mm swapped": lambda: h @ d.t(),
        "bmm": lambda: torch.bmm(d[None], h.t()[None]),
        "mv": lambda: d @ h[0],
        "addmm": lambda: torch.addmm(torch.zeros(3), d, d.t()),
        "linear": lambda: F.linear(d, h),
        "linear bias": lambda: F.linear(d, d, torch.zeros(3)),
        "cat": lambda: torch.cat([d, h]),
        "stack": lambda: torch.stack([d, h]),
        "conv2d": lambda: F.conv2d(image, weight),
        "conv2d bias": lambda: F.conv2d(image, weight.cuda(), torch.zeros(4)),
        "layer_norm": lambda: F.layer_norm(d, (4,), torch.ones(4)),
        "batch_norm": lambda: F.batch_norm(image, torch.zeros(3), torch.ones(3)),
        "embedding": lambda: F.embedding(hi, d),
        "embedding swapped": lambda: F.embedding(di, h),
        "index with host indices": lambda: d[hi],
        "index host with device indices": lambda: h[di],
        "index_select": lambda: d.index_select(0, hi),
        "gather": lambda: d.gather(0, hi[None]),
        "scatter_": lambda: d.clone().scatter_(0, di[None], h[:1, :2]),
        "index_put_ host value": lambda: d.clone().index_put_((di,), h[0]),
        "masked_fill host mask": lambda: d.masked_fill(h > 0.5, 0.0),
        "cross_entropy": lambda: F.cross_entropy(d, torch.tensor([0, 1, 2])),
        "mse_loss": lambda: F.mse_loss(d, h),
        "prelu": lambda: F.prelu(d, torch.ones(1)),
        "sdpa": lambda: F.scaled_dot_product_attention(d[None], h[None], d[None]),
        "out on host": lambda: torch.add(d, d, out=h.clone()),
        "copy_": lambda: d.clone().copy_(h),
        "equal": lambda: torch.equal(d, h),
        "allclose": lambda: torch.allclose(d, h),
        "numpy": lambda: d.numpy(),
        "item of many": lambda: d.item(),
        "tolist": lambda: d[0, :2].tolist(),
        "device 1": lambda: torch.empty(1, device="cuda:1"),
        "set_device 1": lambda: torch.cuda.set_device(1),
        "host generator": lambda: torch.randn(2, device="cuda", generator=torch.Generator()),
        "device generator on host": lambda: torch.randn(2, generator=torch.Generator("cuda")),
        "pin_memory of device": lambda: d.pin_memory(),
        "pinned on device": lambda: torch.empty(2, device="cuda", pin_memory=True),
        "from_numpy then cuda": lambda: torch.from_numpy(h.numpy()).cuda().is_cuda,
        "shape": lambda: d @ d,
        "dtype": lambda: d @ d.t().double(),
        "view": lambda: d.t().view(12),
        "index out of range": lambda: d[3],
        "narrow": lambda: d.narrow(0, 2, 2),
        "inplace on leaf": lambda: torch.ones(2, device="cuda", requires_grad=True).add_(1),
        "backward of vector": lambda: torch.ones(2, device="cuda", requires_grad=True).mul(2).backward(),
        "is_pinned": lambda: d.is_pinned(),
    }


def answer(mistake: Callable[[], Any]) -> str:
    """Its exception's class and first line, or its value's device and sum."""
    try:
        value = mistake()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    if isinstance(value, torch.Tensor):
        return f"{value.device} {tuple(value.shape)} {value.double().sum().item():.6g}"
    return repr(value)


def main() -> None:
    """Prints every case."""
    for name, mistake in cases().items():
        print(f"{name} | {answer(mistake)}")


if __name__ == "__main__":
    if "--emulated" in sys.argv:
        from kernelwright.device.specs import spec
        from kernelwright.emulate.device import install

        install(spec("h200"))
    main()
