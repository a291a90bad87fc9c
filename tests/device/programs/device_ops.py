"""Operators on ``cuda`` against the same on the CPU: prints a JSON object, case to what differs ("" is right).

Each case is a function of a device; its tensors are made on the CPU from one seed and moved, so both devices see equal
values. A case checks that its results lie on the device, then their values.
"""

from __future__ import annotations

import copy
import io
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Make = Callable[..., torch.Tensor]
Case = Callable[[Make], Any]


def maker(device: str) -> Make:
    """Makes the n-th tensor of a case: normal values, the same on every device."""
    generator = torch.Generator().manual_seed(7)

    def make(*shape: int, dtype: torch.dtype = torch.float32, low: int | None = None, high: int = 0) -> torch.Tensor:
        if low is not None:
            return torch.randint(low, high, shape, generator=generator, dtype=torch.int64).to(dtype).to(device)
        return torch.randn(shape, generator=generator).to(dtype).to(device)

    return make


I64 = torch.int64

UNARY = """
    abs neg exp exp2 expm1 log1p sin cos tan tanh sinh cosh asinh atan erf erfc sigmoid relu sign floor ceil round
    trunc frac square reciprocal sgn isnan isfinite isinf logical_not digamma lgamma sinc
""".split()  # noqa: SIM905
BINARY = """
    add sub mul div maximum minimum atan2 fmod remainder pow copysign hypot eq ne lt le gt ge logical_and logical_or
    nextafter logaddexp floor_divide
""".split()  # noqa: SIM905
REDUCE = """
    sum mean amax amin prod std var logsumexp argmax argmin cumsum cumprod softmax log_softmax any all
""".split()  # noqa: SIM905
ACTIVATIONS = """
    relu gelu silu elu selu celu leaky_relu softplus mish hardtanh hardswish hardsigmoid softsign tanhshrink
    logsigmoid
""".split()  # noqa: SIM905


def _unary(name: str) -> Case:
    return lambda t: getattr(torch, name)(t(3, 17))


def _binary(name: str) -> Case:
    return lambda t: getattr(torch, name)(t(3, 17).abs() + 0.5, t(17).abs() + 0.5)


def _reduce(name: str) -> Case:
    return lambda t: getattr(torch, name)(t(4, 9), 1)


def _activation(name: str) -> Case:
    return lambda t: getattr(F, name)(t(5, 11))


def _in_place(t: Make) -> Any:
    a = t(4, 4)
    before = a.data_ptr()
    a.add_(1).mul_(2).clamp_(-1, 3).t_()
    assert a.data_ptr() == before
    return a


def _views(t: Make) -> Any:
    a = t(6, 8)
    b = a[1:5, ::2].t()
    b += 10
    c = a.view(4, 12)[2]
    c.fill_(3)
    d = a.unfold(1, 4, 2)
    d[0, 0, 0] = 5
    assert b.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()
    return a, b, c, d, a.view(torch.int32), a.unsqueeze(0).expand(2, 6, 8).narrow(1, 2, 3), a.split(2), a.chunk(3, 1)


def _out(t: Make) -> Any:
    a, b = t(3, 5), t(3, 5)
    empty, right, wide = (
        torch.empty(0, device=a.device),
        torch.empty(3, 5, device=a.device),
        torch.zeros(3, 10, device=a.device),
    )
    torch.add(a, b, out=empty)
    torch.mul(a, b, out=right)
    torch.sub(a, b, out=wide[:, ::2])
    values, places = torch.empty(0, device=a.device), torch.empty(0, dtype=I64, device=a.device)
    torch.sort(a, 1, out=(values, places))
    return empty, right, wide, values, places


def _resize(t: Make) -> Any:
    a = t(3, 4)
    a.resize_(2, 3)
    b = torch.empty(0, device=a.device).set_(a)
    b.zero_()
    return a, b


def _index(t: Make) -> Any:
    a, i = t(6, 7), t(3, dtype=I64, low=0, high=6)
    a[i, 2] = 1.5
    a[a > 1] = -1
    a.index_put_((i,), t(3, 7), accumulate=True)
    a[torch.tensor([0, 1])] *= 2
    return a, a[i], a[:, None, 3], a[a < 0], a[..., -1], a[i, i], torch.nonzero(a > 0)


def _scatter(t: Make) -> Any:
    a, i = t(4, 6), t(4, 6, dtype=I64, low=0, high=4)
    return (
        a.gather(0, i),
        torch.zeros_like(a).scatter_add_(0, i, a),
        a.scatter_reduce(0, i, a, "amax"),
        a.index_add(0, i[0], t(6, 6)),
        a.index_copy(0, torch.tensor([2, 0], device=a.device), t(2, 6)),
        a.index_fill(1, i[0], 0.5),
        a.take(i),
        torch.take_along_dim(a, i, 0),
    )


def _backward(model: Callable[[], nn.Module], *shape: int) -> Case:
    def run(t: Make) -> Any:
        torch.manual_seed(3)
        x = t(*shape).requires_grad_()
        m = model().to(x.device)
        y = m(x)
        y = y[0] if isinstance(y, tuple) else y
        y.square().sum().backward()
        return y, x.grad, *(p.grad for p in m.parameters() if p.grad is not None)

    return run


def _training(optimiser: Callable[[Any], torch.optim.Optimizer]) -> Case:
    def run(t: Make) -> Any:
        torch.manual_seed(3)
        x, y = t(8, 5), t(8, dtype=I64, low=0, high=3)
        m = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)).to(x.device)
        o = optimiser(m.parameters())
        for _ in range(3):
            o.zero_grad()
            F.cross_entropy(m(x), y).backward()
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            o.step()
        return list(m.parameters())

    return run


def _save(t: Make) -> Any:
    file = io.BytesIO()
    torch.save({"a": t(3, 4), "b": t(2, dtype=torch.bfloat16)}, file)
    file.seek(0)
    return torch.load(file)["a"]


def _state(t: Make) -> Any:
    torch.manual_seed(1)
    device = t(1).device
    a, b = nn.Linear(3, 4).to(device), nn.Linear(3, 4).to(device)
    b.load_state_dict(a.state_dict())
    c = copy.deepcopy(b)
    return b.weight, c.weight, copy.deepcopy(b.weight.detach()), list(c.parameters())


def _lists(t: Make) -> Any:
    a = [t(3), t(2, 2), t(1)]
    torch._foreach_mul_(a, 2.0)
    return torch._foreach_add(a, a, alpha=0.5), torch._foreach_norm(a), torch.cat([x.flatten() for x in a])


def _custom_function(t: Make) -> Any:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return 2 * x

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * 2 + 0 * ctx.saved_tensors[0]

    x = t(4).requires_grad_()
    Twice.apply(x).sum().backward()
    return x.grad


def _storage(t: Make) -> Any:
    a = t(5)
    s = a.untyped_storage()
    b = torch.empty(0, dtype=a.dtype, device=a.device).set_(s.clone(), 0, (5,), (1,))
    s.resize_(8 * 4)
    return a, b, torch.frombuffer(bytearray(a.cpu().numpy().tobytes()), dtype=torch.float32).to(a.device)


def cases() -> dict[str, Case]:
    """Every case by name."""
    table: dict[str, Case] = {}
    for names, make in ((UNARY, _unary), (BINARY, _binary), (REDUCE, _reduce), (ACTIVATIONS, _activation)):
        for name in names:
            table[f"{make.__name__[1:]} {name}"] = make(name)
    table |= {
        "in place": _in_place,
        "views": _views,
        "out": _out,
        "resize": _resize,
        "index": _index,
        "scatter": _scatter,
        "lists": _lists,
        "state": _state,
        "save": _save,
        "storage": _storage,
        "custom function": _custom_function,
        "where": lambda t: torch.where(t(3, 4) > 0, t(3, 4), t(1, 4)),
        "lerp": lambda t: torch.lerp(t(3), t(3), 0.3),
        "addcmul": lambda t: torch.addcmul(t(3), t(3), t(3), value=0.5),
        "addcdiv": lambda t: torch.addcdiv(t(3), t(3), t(3), value=0.5),
        "clamp": lambda t: (torch.clamp(t(9), -0.5, 0.5), torch.clamp(t(9), min=t(9))),
        "matmul": lambda t: (t(3, 4) @ t(4, 5), t(2, 3, 4) @ t(4, 5), t(4) @ t(4), t(3, 4) @ t(4)),
        "matmul half": lambda t: t(8, 16, dtype=torch.float16) @ t(16, 8, dtype=torch.float16),
        "matmul bf16": lambda t: t(8, 16, dtype=torch.bfloat16) @ t(16, 8, dtype=torch.bfloat16),
        "bmm": lambda t: torch.bmm(t(2, 3, 4), t(2, 4, 5)),
        "baddbmm": lambda t: torch.baddbmm(t(2, 3, 5), t(2, 3, 4), t(2, 4, 5), beta=0.5),
        "addmm": lambda t: torch.addmm(t(5), t(3, 4), t(4, 5)),
        "einsum": lambda t: torch.einsum("bij,bkj->bik", t(2, 3, 4), t(2, 5, 4)),
        "linear": lambda t: F.linear(t(2, 3, 4), t(5, 4), t(5)),
        "conv1d": lambda t: F.conv1d(t(2, 3, 9), t(4, 3, 3), t(4), padding=1),
        "conv2d": lambda t: F.conv2d(t(2, 4, 9, 9), t(6, 2, 3, 3), t(6), stride=2, padding=1, groups=2),
        "conv2d depthwise": lambda t: F.conv2d(t(2, 4, 9, 9), t(4, 1, 3, 3), groups=4),
        "conv2d channels last": lambda t: F.conv2d(
            t(2, 4, 9, 9).contiguous(memory_format=torch.channels_last), t(6, 4, 3, 3)
        ),
        "conv3d": lambda t: F.conv3d(t(1, 2, 5, 5, 5), t(3, 2, 3, 3, 3)),
        "conv_transpose2d": lambda t: F.conv_transpose2d(t(1, 3, 5, 5), t(3, 2, 3, 3), stride=2),
        "max_pool2d": lambda t: F.max_pool2d(t(1, 3, 8, 8), 2, return_indices=True),
        "avg_pool2d": lambda t: F.avg_pool2d(t(1, 3, 8, 8), 3, 2, 1),
        "adaptive_avg_pool2d": lambda t: F.adaptive_avg_pool2d(t(1, 3, 8, 8), 3),
        "adaptive_max_pool1d": lambda t: F.adaptive_max_pool1d(t(1, 3, 8), 3),
        "interpolate": lambda t: F.interpolate(t(1, 2, 4, 4), scale_factor=2, mode="bilinear"),
        "grid_sample": lambda t: F.grid_sample(t(1, 2, 4, 4), t(1, 3, 3, 2), align_corners=False),
        "pad": lambda t: (F.pad(t(2, 3), (1, 2)), F.pad(t(1, 2, 3), (1, 1), mode="reflect")),
        "batch_norm": lambda t: F.batch_norm(t(4, 3, 5), t(3), t(3).abs(), t(3), t(3), training=True),
        "batch_norm eval": lambda t: F.batch_norm(t(4, 3, 5), t(3), t(3).abs(), t(3), t(3)),
        "layer_norm": lambda t: F.layer_norm(t(4, 8), (8,), t(8), t(8)),
        "group_norm": lambda t: F.group_norm(t(2, 6, 4), 3, t(6), t(6)),
        "instance_norm": lambda t: F.instance_norm(t(2, 3, 8)),
        "rms_norm": lambda t: F.rms_norm(t(4, 8), (8,), t(8)),
        "normalize": lambda t: F.normalize(t(4, 8)),
        "embedding": lambda t: F.embedding(t(3, 4, dtype=I64, low=0, high=9), t(9, 5)),
        "embedding_bag": lambda t: F.embedding_bag(t(3, 4, dtype=I64, low=0, high=9), t(9, 5), mode="sum"),
        "one_hot": lambda t: F.one_hot(t(5, dtype=I64, low=0, high=4), 4),
        "cross_entropy": lambda t: F.cross_entropy(t(4, 6), t(4, dtype=I64, low=0, high=6), label_smoothing=0.1),
        "nll_loss": lambda t: F.nll_loss(F.log_softmax(t(4, 6), 1), t(4, dtype=I64, low=0, high=6)),
        "mse_loss": lambda t: F.mse_loss(t(4, 6), t(4, 6)),
        "smooth_l1_loss": lambda t: F.smooth_l1_loss(t(4, 6), t(4, 6)),
        "huber_loss": lambda t: F.huber_loss(t(4, 6), t(4, 6)),
        "kl_div": lambda t: F.kl_div(F.log_softmax(t(4, 6), 1), F.softmax(t(4, 6), 1), reduction="batchmean"),
        "binary_cross_entropy": lambda t: F.binary_cross_entropy_with_logits(t(4), t(4).sigmoid()),
        "hinge": lambda t: F.hinge_embedding_loss(t(4), torch.ones_like(t(4))),
        "triplet": lambda t: F.triplet_margin_loss(t(4, 3), t(4, 3), t(4, 3)),
        "cosine_similarity": lambda t: F.cosine_similarity(t(4, 3), t(4, 3)),
        "ctc_loss": lambda t: F.ctc_loss(
            F.log_softmax(t(6, 2, 4), 2), t(2, 3, dtype=I64, low=1, high=4), torch.tensor([6, 6]), torch.tensor([3, 2])
        ),
        "sdpa": lambda t: F.scaled_dot_product_attention(t(1, 2, 6, 8), t(1, 2, 6, 8), t(1, 2, 6, 8)),
        "sdpa causal": lambda t: F.scaled_dot_product_attention(
            t(1, 2, 6, 8), t(1, 2, 6, 8), t(1, 2, 6, 8), is_causal=True
        ),
        "sdpa mask": lambda t: F.scaled_dot_product_attention(
            t(1, 2, 6, 8), t(1, 2, 6, 8), t(1, 2, 6, 8), attn_mask=t(6, 6) > 0
        ),
        "sort": lambda t: t(4, 9).sort(dim=1, descending=True, stable=True),
        "argsort": lambda t: t(4, 9).argsort(0),
        "topk": lambda t: t(4, 9).topk(3, 1),
        "kthvalue": lambda t: t(4, 9).kthvalue(2, 1),
        "median": lambda t: (t(9).median(), t(4, 9).median(1)),
        "max": lambda t: (t(4, 9).max(), t(4, 9).max(1), torch.max(t(3), t(3))),
        "min": lambda t: (t(4, 9).min(), t(4, 9).min(0)),
        "norm": lambda t: (t(4, 9).norm(), t(4, 9).norm(dim=1, p=1), torch.linalg.vector_norm(t(9))),
        "cummax": lambda t: (t(4, 9).cummax(1), t(4, 9).cummin(0)),
        "unique": lambda t: torch.unique(t(20, dtype=I64, low=0, high=6), return_inverse=True, return_counts=True),
        "bincount": lambda t: torch.bincount(t(20, dtype=I64, low=0, high=6)),
        "histc": lambda t: torch.histc(t(20), 5),
        "searchsorted": lambda t: torch.searchsorted(t(9).sort()[0], t(4)),
        "bucketize": lambda t: torch.bucketize(t(4), t(9).sort()[0]),
        "cdist": lambda t: torch.cdist(t(4, 3), t(5, 3)),
        "tril": lambda t: (t(4, 4).tril(), t(4, 4).triu(1), torch.tril_indices(3, 3, device=t(1).device)),
        "diag": lambda t: (t(4).diag(), t(4, 4).diagonal(), torch.diag_embed(t(2, 3)), t(4, 4).trace()),
        "flip": lambda t: (t(3, 4).flip(0), t(3, 4).roll(1, 1), t(3, 4).rot90()),
        "repeat": lambda t: (t(3).repeat(2, 2), t(3).repeat_interleave(2), t(2, 3).tile(2)),
        "permute": lambda t: (
            t(2, 3, 4).permute(2, 0, 1).contiguous(),
            t(2, 3, 4).movedim(0, 2),
            t(2, 3).reshape(3, 2),
        ),
        "stack": lambda t: (torch.stack([t(3), t(3)]), torch.hstack([t(3), t(2)]), torch.vstack([t(3), t(3)])),
        "meshgrid": lambda t: torch.meshgrid(t(2), t(3), indexing="ij"),
        "outer": lambda t: (
            torch.outer(t(3), t(4)),
            torch.dot(t(3), t(3)),
            torch.kron(t(2, 2), t(2, 2)),
            torch.linalg.cross(t(3), t(3)),
        ),
        "masked": lambda t: (t(4, 4).masked_fill(t(4, 4) > 0, 0.0), t(4).masked_select(t(4) > 0)),
        "masked_scatter": lambda t: t(4).masked_scatter(t(4) > 0, t(4)),
        "bitwise": lambda t: (
            t(4, dtype=I64, low=0, high=99) ^ 5,
            t(4, dtype=I64, low=0, high=99) << 2,
            ~t(4, dtype=I64, low=0, high=9),
        ),
        "integer division": lambda t: (t(4, dtype=I64, low=-9, high=9) // 4, t(4, dtype=I64, low=-9, high=9) % 4),
        "cast": lambda t: (
            t(4).half(),
            t(4).bfloat16(),
            t(4).double(),
            t(4).int(),
            t(4).bool(),
            t(4).to(torch.uint8).float(),
        ),
        "fp8": lambda t: t(4).to(torch.float8_e4m3fn).float(),
        "complex": lambda t: (
            torch.complex(t(3), t(3)).conj() * 2,
            torch.view_as_real(torch.complex(t(3), t(3))).contiguous(),
        ),
        "fft": lambda t: (torch.fft.fft(t(8)).abs(), torch.fft.irfft(torch.fft.rfft(t(8)))),
        "linalg": lambda t: (torch.linalg.inv(t(3, 3)), torch.linalg.det(t(3, 3)), torch.linalg.solve(t(3, 3), t(3))),
        "cholesky": lambda t: torch.linalg.cholesky(t(3, 3) @ t(3, 3).mT * 0 + torch.eye(3, device=t(1).device) * 2),
        "svd": lambda t: torch.linalg.svdvals(t(4, 3)),
        "factories": lambda t: (
            [f(3, 4, device=t(1).device) for f in (torch.zeros, torch.ones)]
            + [
                torch.full((2,), 1.5, device=t(1).device),
                torch.arange(5, device=t(1).device),
                torch.eye(3, device=t(1).device),
                torch.linspace(0, 1, 5, device=t(1).device),
                torch.tensor([1, 2], device=t(1).device),
            ]
        ),
        "like": lambda t: (
            torch.zeros_like(t(3)),
            torch.ones_like(t(3, dtype=torch.half)),
            torch.full_like(t(3), 2),
            t(3).new_zeros(2),
        ),
        "copy": lambda t: (torch.empty_like(t(3, 4)).copy_(t(4)), t(3, 4).t().clone(), t(3, 4).cpu().to(t(1).device)),
        "scalars": lambda t: torch.tensor(
            [t(3).sum().item(), float(t(1)), len(t(5)), int(t(1) > 9), *t(2).tolist()]
        ).to(t(1).device),
        "equal": lambda t: torch.tensor([torch.equal(t(3) * 0, t(3) * 0), torch.allclose(t(3) * 0, t(3) * 0)]).to(
            t(1).device
        ),
        "iterate": lambda t: [row + 1 for row in t(3, 2)],
        "vmap": lambda t: torch.vmap(lambda a, b: (a * b).sum())(t(4, 3), t(4, 3)),
        "grad": lambda t: torch.func.grad(lambda x: (x**3).sum())(t(4)),
        "checkpoint": lambda t: torch.utils.checkpoint.checkpoint(
            torch.sin, t(4).requires_grad_(), use_reentrant=False
        ),
        "inference": lambda t: torch.inference_mode()(lambda: t(4).relu() @ t(4))(),
        "autocast": _autocast,
        "hooks": _hooks,
        "padded sequence": lambda t: nn.utils.rnn.pack_padded_sequence(t(4, 2, 3), torch.tensor([4, 2])).data,
        "train linear": _backward(lambda: nn.Linear(4, 3), 5, 4),
        "train conv": _backward(lambda: nn.Conv2d(3, 4, 3, padding=1), 2, 3, 6, 6),
        "train batch norm": _backward(lambda: nn.BatchNorm2d(3), 2, 3, 4, 4),
        "train layer norm": _backward(lambda: nn.LayerNorm(6), 4, 6),
        "train group norm": _backward(lambda: nn.GroupNorm(2, 4), 2, 4, 5),
        "train gelu": _backward(lambda: nn.GELU(), 4, 6),
        "train softmax": _backward(lambda: nn.Softmax(-1), 4, 6),
        "train max pool": _backward(lambda: nn.MaxPool2d(2), 1, 2, 6, 6),
        "train attention": _backward(lambda: _SelfAttention(), 3, 2, 8),
        "train transformer": _backward(
            lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2, 3, 8
        ),
        "train lstm": _backward(lambda: nn.LSTM(3, 4), 5, 2, 3),
        "train gru": _backward(lambda: nn.GRU(3, 4), 5, 2, 3),
        "train rnn": _backward(lambda: nn.RNN(3, 4), 5, 2, 3),
        "train lstm cell": _backward(lambda: nn.LSTMCell(3, 4), 2, 3),
        "sgd": _training(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
        "adam": _training(lambda p: torch.optim.Adam(p, 0.01)),
        "adamw fused": _training(lambda p: torch.optim.AdamW(p, 0.01, fused=True)),
    }
    return table


def _autocast(t: Make) -> Any:
    a, b = t(4, 4), t(4, 4)
    with torch.autocast(a.device.type, dtype=torch.bfloat16):
        return a @ b


def _hooks(t: Make) -> Any:
    seen: list[torch.Tensor] = []
    x = t(4).requires_grad_()
    x.register_hook(lambda g: seen.append(g) or g * 2)
    (x * 3).sum().backward()
    return x.grad, seen[0]


class _SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x)[0]


def flat(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested value, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in flat(item)]


def difference(case: Case) -> str:
    """What differs between the devices; empty when nothing does."""
    try:
        expected, got = flat(case(maker("cpu"))), flat(case(maker("cuda")))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    if len(expected) != len(got):
        return f"{len(got)} results, expected {len(expected)}"
    for number, (e, g) in enumerate(zip(expected, got, strict=True)):
        if g.device != torch.device("cuda", 0):
            return f"result {number} lies on {g.device}"
        if (e.dtype, e.shape, e.stride()) != (g.dtype, g.shape, g.stride()):
            forms = [f"{t.dtype} {tuple(t.shape)} {t.stride()}" for t in (g, e)]
            return f"result {number} is {forms[0]}, not {forms[1]}"
        try:
            torch.testing.assert_close(g.detach().cpu(), e.detach(), rtol=2e-5, atol=1e-5, equal_nan=True)
        except AssertionError as error:
            return f"result {number}: {' '.join(str(error).split())}"
    return ""


if __name__ == "__main__":
    if "--names" in sys.argv:
        print(json.dumps(list(cases())))
    else:
        if "--emulated" in sys.argv:
            from kernelwright.device.specs import spec
            from kernelwright.emulate.device import install

            install(spec("h200"))
        print(json.dumps({name: difference(case) for name, case in cases().items()}))
