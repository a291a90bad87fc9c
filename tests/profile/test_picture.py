"""The roofline picture: marks, roofs and words, read back from the SVG."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree

import pytest

from kernelwright.measure.limits import limit
from kernelwright.measure.records import Ceilings, Work
from kernelwright.profile.picture import picture
from kernelwright.profile.records import Point, Profile
from kernelwright.records import DeviceFact

pytestmark = pytest.mark.tiny

SVG = "{http://www.w3.org/2000/svg}"
GEMV = Point("void gemv<float>(const float *)", 4.3e9, "fp32", 8.6e9, 1.95e-3)
PRODUCT = Point("gemm(Params)", 1.4e11, "fp32", 6e8, 2.8e-3)
COPY = Point("copy(float *)", 0.0, "", 8e6, 4e-6)
UNTIMED = Point("softmax(float *)", 2e6, "fp32", 4e6, None)


def drawn(ceilings: Ceilings | None, *points: Point) -> ElementTree.Element:
    profile = Profile(
        "p.py", "a<b>.py", DeviceFact("cuda", "NVIDIA H200", "9.0"), "ncu", points=points, ceilings=ceilings
    )
    return ElementTree.fromstring(picture(profile))


def words(root: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def marks(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Centres of the marks in the plot; the legend's are smaller."""
    return [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in root.iter(f"{SVG}circle") if c.get("r") == "7"]


def test_axes_roofs_and_kernels_are_named_with_their_units(ceilings: Ceilings) -> None:
    told = words(drawn(ceilings, GEMV, PRODUCT, COPY))
    assert "arithmetic intensity [flop for each byte of device memory]" in told
    assert "performance [TFLOP/s]" in told
    assert "memory, reading: 4,600 GB/s" in told
    assert "fp32 50 TFLOP/s" in told
    assert "fp16 tensor 770 TFLOP/s" in told
    assert "gemv: 2.21 TFLOP/s at 0.5 flop/B, 96 % of the roof above it; 1.95 ms" in told
    assert "gemm: 50 TFLOP/s at 233 flop/B, 100 % of the roof above it; 2.8 ms" in told
    assert "copy: 2,000 GB/s, no floating-point work, so no place above" in told
    assert any("measured on this device" in line for line in told)
    assert "Roofline of a<b>.py" in told


def test_marks_lie_where_their_figures_say(ceilings: Ceilings) -> None:
    root = drawn(ceilings, GEMV, PRODUCT)
    (x1, y1), (x2, y2) = marks(root)
    below = [e for e in root.iter(f"{SVG}text") if e.get("y") == "568"]
    ticks = {"".join(e.itertext()): float(e.get("x", 0)) for e in below}
    decade = (ticks["100"] - ticks["0.1"]) / 3
    # log10(233 / 0.5) = 2.669 decades apart.
    assert x2 - x1 == pytest.approx(2.669 * decade, abs=0.5)
    assert y2 < y1
    for x, y in ((x1, y1), (x2, y2)):
        assert 84 <= x <= 760
        assert 78 <= y <= 548


def test_a_kernel_without_a_time_is_a_hollow_mark_on_its_roof(ceilings: Ceilings) -> None:
    root = drawn(ceilings, UNTIMED)
    (mark,) = [c for c in root.iter(f"{SVG}circle") if c.get("r") == "7"]
    assert mark.get("fill") == "#ffffff"
    assert "softmax: at most 2.3 TFLOP/s at 0.5 flop/B (not timed)" in words(root)


def limited(ceilings: Ceilings, work: Work, forward_ms: float) -> ElementTree.Element:
    profile = Profile(
        "p.py", "c.py", DeviceFact("cuda", "NVIDIA H200", "9.0"), "ncu", points=(GEMV,), ceilings=ceilings,
        work=work, limit=limit(work, ceilings, {"forward": forward_ms}),
    )  # fmt: skip
    return ElementTree.fromstring(picture(profile))


def crosses(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Centres of the crosses, the plot's first."""
    found = [re.match(r"M ([\d.]+) ([\d.]+) H ([\d.]+)", path.get("d", "")) for path in root.iter(f"{SVG}path")]
    return [((float(m[1]) + float(m[3])) / 2, float(m[2])) for m in found if m]


def test_the_problems_limit_is_a_cross_above_the_kernel_that_comes_near_it(ceilings: Ceilings) -> None:
    # The matrix-vector product: 8.6 GB once, two flop a value. fp16x3 is the least arithmetic, the memory binds.
    root = limited(ceilings, Work(8_600_000_000, 8192, {"fp32": 4_300_000_000}), 1.95)
    cross, in_legend = crosses(root)
    (kernel,) = marks(root)
    assert cross[0] == pytest.approx(kernel[0], abs=0.5)
    assert 78 <= cross[1] < kernel[1]
    assert in_legend[1] > 548
    assert (
        "the problem at its limit, 1.87 ms by memory traffic: 2.3 TFLOP/s at 0.5 flop/B; the forward pass takes 1.95 ms"
        in words(root)
    )


def test_a_problem_without_products_has_its_limit_in_words_only(ceilings: Ceilings) -> None:
    root = limited(ceilings, Work(8_600_000_000, 8192, {}), 2.0)
    assert crosses(root) == []
    assert "the problem at its limit, 1.87 ms by memory traffic; the forward pass takes 2 ms" in words(root)


def test_without_ceilings_there_are_marks_and_no_roofs() -> None:
    root = drawn(None, GEMV)
    assert len(marks(root)) == 1
    assert not any("GB/s" in line and "memory" in line for line in words(root))


def test_labels_of_near_roofs_do_not_cover_one_another(ceilings: Ceilings) -> None:
    from dataclasses import replace

    from kernelwright.measure.records import Ceiling

    near = {**ceilings.ceilings, "bf16": Ceiling("bf16", "TFLOP/s", 790.0, None, "test")}
    points = (GEMV, replace(PRODUCT, unit="bf16"))
    root = drawn(replace(ceilings, ceilings=near), *points)
    heights = sorted(
        float(e.get("y", 0)) for e in root.iter(f"{SVG}text") if re.search(r" TFLOP/s$", "".join(e.itertext()))
    )
    assert all(b - a >= 15 for a, b in itertools.pairwise(heights))


def test_every_mark_has_a_number_that_the_legend_explains(ceilings: Ceilings) -> None:
    root = drawn(ceilings, *[GEMV] * 14)
    told = words(root)
    assert "and 2 more kernels" in told
    assert sum(1 for line in told if line == "12") == 2
