"""The roofline as an SVG picture: kernels under the roofs of memory and arithmetic, both axes logarithmic.

Why: one look tells whether a kernel waits for memory or for arithmetic, and how far it is from either. Written by hand:
a picture of ten shapes needs no plotting library in every installation. The rule: every number in the picture stands in
the record, too; each kernel is a numbered mark with its name and figures below, the problem's limit a cross; a roof
says whether it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from kernelwright.measure.limits import compulsory_bytes, in_words
from kernelwright.measure.records import Limit
from kernelwright.profile.records import Point, Profile

WIDTH, PLOT_HEIGHT = 960, 470
LEFT, RIGHT, TOP = 84, 200, 78
ROW = 22
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5c00", "#444444")
"""Okabe and Ito's, told apart by colour-blind readers, too."""
INK, FAINT, ROOF = "#222222", "#dddddd", "#555555"
MOST_POINTS = 12
SUBTITLE_COLUMNS = 112
LABEL_GAP = 15
"""Least distance between two labels of roofs."""


@dataclass(frozen=True)
class _Axes:
    """Both scales: decades to pixels."""

    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        return LEFT + (math.log10(value) - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return TOP + PLOT_HEIGHT - (math.log10(value) - self.y0) / (self.y1 - self.y0) * PLOT_HEIGHT


def picture(profile: Profile) -> str:
    """The whole SVG document."""
    points = list(profile.points[:MOST_POINTS])
    memory = _memory_gb_s(profile)
    roofs = _roofs(profile)
    limit = _limit(profile)
    axes = _axes(points, memory, roofs, limit)
    rows = len(points) + 2 + (len(profile.points) > MOST_POINTS) + (profile.limit is not None)
    height = TOP + PLOT_HEIGHT + 70 + rows * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="DejaVu Sans, Verdana, Helvetica, sans-serif" font-size="13" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *_title(profile),
        *_grid(axes),
        *_roof_lines(axes, memory, roofs),
        *_cross(axes, limit),
        *_marks(axes, points, memory, roofs),
        *_legend(profile, points),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


# ---- what is drawn -------------------------------------------------------------------------------------------------
def _memory_gb_s(profile: Profile) -> float:
    """The slope of the memory's roof, that of reading; 0 where it is not known."""
    found = profile.ceilings.ceilings.get("read") if profile.ceilings else None
    return found.best if found else 0.0


def _roofs(profile: Profile) -> dict[str, float]:
    """Arithmetic ceilings in TFLOP/s: of the units that the kernels use, and always fp32 and fp16 on tensor cores."""
    if profile.ceilings is None:
        return {}
    used = {point.unit for point in profile.points} | {"fp32", "fp16"}
    known = profile.ceilings.ceilings
    return {
        name: known[name].best for name in ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8") if name in used & set(known)
    }


def _bound(point: Point, memory: float, roofs: dict[str, float]) -> float | None:
    """The most TFLOP/s that a kernel of this intensity can reach; None where no roof is known."""
    flat = roofs.get(point.unit)
    slope = memory * point.intensity * 1e-3
    return min(value for value in (flat, slope) if value) if flat or slope else None


def _height(point: Point, memory: float, roofs: dict[str, float]) -> float | None:
    """TFLOP/s at which the mark stands: what was reached, or without a time the roof above it."""
    if not point.flop or not point.bytes:
        return None
    if point.seconds:
        return point.flop / point.seconds * 1e-12
    return _bound(point, memory, roofs)


def _limit(profile: Profile) -> tuple[float, float] | None:
    """Intensity and TFLOP/s of the problem itself at its limit; None without flop or where no limit is known."""
    if profile.limit is None or profile.ceilings is None:
        return None
    flop, bytes = sum(profile.limit.work.flops.values()), compulsory_bytes(profile.limit.work, profile.ceilings)
    return (flop / bytes, flop / profile.limit.limit_ms * 1e-9) if flop and bytes else None


def _axes(points: list[Point], memory: float, roofs: dict[str, float], limit: tuple[float, float] | None) -> _Axes:
    xs = [point.intensity for point in points if point.flop and point.bytes]
    slope = memory * 1e-3
    # The ridges: where a kernel stops waiting for memory.
    xs += [flat / slope for flat in roofs.values() if slope]
    heights = [h for point in points if (h := _height(point, memory, roofs))]
    if limit is not None:
        xs.append(limit[0])
        heights.append(limit[1])
    x0 = math.floor(math.log10(min([*xs, 0.1]) * 0.6))
    x1 = math.ceil(math.log10(max([*xs, 100.0]) * 1.6))
    ys = [*heights, *roofs.values()]
    y1 = math.ceil(math.log10(max([*ys, 1.0]) * 1.3))
    y0 = min(y1 - 5, math.floor(math.log10(min([*ys, 1.0]) * 0.6)))
    return _Axes(x0, x1, max(y0, y1 - 8), y1)


def _title(profile: Profile) -> Iterator[str]:
    device = profile.device
    where = f"the emulated device as {device.name}" if device.kind == "emulated" else device.name
    yield f'<text x="{LEFT}" y="30" font-size="18" font-weight="bold">Roofline of {escape(profile.candidate)}</text>'
    sets = "".join(f", {name}={value}" for name, value in profile.sets.items())
    counted = "counted by ncu" if profile.counted_by == "ncu" else "counted on the emulated device"
    words = f"against {profile.problem}{sets}; {where}; {counted}"
    yield f'<text x="{LEFT}" y="52" fill="{ROOF}">{escape(_cut(words, SUBTITLE_COLUMNS))}</text>'


def _grid(axes: _Axes) -> Iterator[str]:
    bottom, right = TOP + PLOT_HEIGHT, WIDTH - RIGHT
    for decade in range(int(axes.x0), int(axes.x1) + 1):
        x = axes.x(10.0**decade)
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{FAINT}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{_decade(decade)}</text>'
    for decade in range(int(axes.y0), int(axes.y1) + 1):
        y = axes.y(10.0**decade)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{FAINT}"/>'
        yield f'<text x="{LEFT - 10}" y="{y + 4.5:.1f}" text-anchor="end">{_decade(decade)}</text>'
    yield f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{PLOT_HEIGHT}" fill="none" stroke="{INK}"/>'
    middle = (LEFT + right) / 2
    yield (
        f'<text x="{middle:.0f}" y="{bottom + 44}" text-anchor="middle">arithmetic intensity [flop for each byte of '
        f"device memory]</text>"
    )
    centre = TOP + PLOT_HEIGHT / 2
    yield (
        f'<text x="24" y="{centre:.0f}" text-anchor="middle" transform="rotate(-90 24 {centre:.0f})">'
        f"performance [TFLOP/s]</text>"
    )


def _decade(exponent: int) -> str:
    return f"{10.0**exponent:,.0f}" if exponent >= 0 else f"{10.0**exponent:.{-exponent}f}"


def _roof_lines(axes: _Axes, memory: float, roofs: dict[str, float]) -> Iterator[str]:
    right_edge, low = 10.0**axes.x1, 10.0**axes.y0
    slope = memory * 1e-3
    if slope:
        start = max(10.0**axes.x0, low / slope)
        end = min(right_edge, max(roofs.values(), default=10.0**axes.y1) / slope)
        x1, y1, x2, y2 = axes.x(start), axes.y(start * slope), axes.x(end), axes.y(end * slope)
        yield _line(x1, y1, x2, y2, "")
        at = 10 ** (math.log10(start) + 0.02 * (math.log10(end) - math.log10(start)))
        angle = -math.degrees(math.atan2(y1 - y2, x2 - x1))
        x, y = axes.x(at), axes.y(at * slope) - 9
        words = f"memory, reading: {memory:,.0f} GB/s"
        yield f'<text x="{x:.1f}" y="{y:.1f}" transform="rotate({angle:.1f} {x:.1f} {y:.1f})">{words}</text>'
    labels: list[tuple[float, str]] = []
    for name, tflop_s in sorted(roofs.items(), key=lambda item: -item[1]):
        start = tflop_s / slope if slope else 10.0**axes.x0
        yield _line(axes.x(max(start, 10.0**axes.x0)), axes.y(tflop_s), axes.x(right_edge), axes.y(tflop_s), "")
        cores = "" if name in ("fp32", "fp64") else " tensor"
        labels.append((axes.y(tflop_s), f"{name}{cores} {tflop_s:,.4g} TFLOP/s"))
    below = -math.inf
    for y, words in sorted(labels):
        below = max(y + 4.5, below + LABEL_GAP)
        yield f'<text x="{WIDTH - RIGHT + 8}" y="{below:.1f}">{words}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, more: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{ROOF}" stroke-width="2"{more}/>'


def _cross(axes: _Axes, limit: tuple[float, float] | None) -> Iterator[str]:
    """Where the problem would stand at its limit."""
    if limit is not None:
        yield _plus(axes.x(limit[0]), axes.y(max(limit[1], 10.0**axes.y0)), 11)


def _plus(x: float, y: float, arm: float) -> str:
    return (
        f'<path d="M {x - arm:.1f} {y:.1f} H {x + arm:.1f} M {x:.1f} {y - arm:.1f} V {y + arm:.1f}" stroke="{INK}" '
        f'stroke-width="2.5" fill="none"/>'
    )


def _marks(axes: _Axes, points: list[Point], memory: float, roofs: dict[str, float]) -> Iterator[str]:
    taken: list[tuple[float, float]] = []
    for number, point in enumerate(points, 1):
        height = _height(point, memory, roofs)
        if height is None:
            continue
        colour = COLOURS[(number - 1) % len(COLOURS)]
        x, y = axes.x(point.intensity), axes.y(max(height, 10.0**axes.y0))
        bound = _bound(point, memory, roofs)
        if bound is not None and point.seconds:
            yield _line(x, y, x, axes.y(bound), ' stroke-dasharray="2 3" stroke-opacity="0.6"')
        filled = colour if point.seconds else "#ffffff"
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="{filled}" stroke="{colour}" stroke-width="2.5"/>'
        # Numbers of marks that lie on one another stand beside one another.
        crowd = sum(abs(x - a) < 14 and abs(y - b) < 14 for a, b in taken)
        taken.append((x, y))
        yield (
            f'<text x="{x + 11 + 14 * crowd:.1f}" y="{y + 15:.1f}" font-weight="bold" fill="{colour}">{number}</text>'
        )


def _legend(profile: Profile, points: list[Point]) -> Iterator[str]:
    y = TOP + PLOT_HEIGHT + 78
    memory, roofs = _memory_gb_s(profile), _roofs(profile)
    for number, point in enumerate(points, 1):
        colour = COLOURS[(number - 1) % len(COLOURS)]
        filled = colour if point.seconds else "#ffffff"
        yield f'<circle cx="{LEFT + 6}" cy="{y - 4.5:.1f}" r="6" fill="{filled}" stroke="{colour}" stroke-width="2.5"/>'
        yield f'<text x="{LEFT + 22}" y="{y}" font-weight="bold" fill="{colour}">{number}</text>'
        yield f'<text x="{LEFT + 48}" y="{y}">{escape(_words(point, _bound(point, memory, roofs)))}</text>'
        y += ROW
    if len(profile.points) > MOST_POINTS:
        yield f'<text x="{LEFT + 48}" y="{y}">and {len(profile.points) - MOST_POINTS} more kernels</text>'
        y += ROW
    if profile.limit is not None:
        if _limit(profile) is not None:
            yield _plus(LEFT + 6, y - 4.5, 7)
        yield f'<text x="{LEFT + 22}" y="{y}">{escape(_limit_words(profile.limit, _limit(profile)))}</text>'
        y += ROW
    yield f'<text x="{LEFT}" y="{y + 4}" fill="{ROOF}" font-size="12">{escape(_footnote(profile))}</text>'


def _words(point: Point, bound: float | None) -> str:
    """``gemv_kernel: 2.21 TFLOP/s at 0.5 flop/B, 94 % of the roof above it; 1.94 ms``."""
    name = short(point.kernel)
    if not point.flop:
        moved = f"{point.bytes / point.seconds * 1e-9:,.0f} GB/s" if point.seconds else f"{point.bytes / 1e6:,.4g} MB"
        return f"{name}: {moved}, no floating-point work, so no place above"
    at = f"at {point.intensity:.3g} flop/B"
    if point.seconds is None:
        most = f"at most {_tflops(bound)} " if bound is not None else ""
        return f"{name}: {most}{at} (not timed)"
    reached = point.flop / point.seconds * 1e-12
    share = f", {_percent(100 * reached / bound)} of the roof above it" if bound else ""
    return f"{name}: {_tflops(reached)} {at}{share}; {_time(point.seconds)}"


def _limit_words(limit: Limit, place: tuple[float, float] | None) -> str:
    """``the problem at its limit, 1.827 ms by memory traffic: 2.35 TFLOP/s at 0.5 flop/B; …``."""
    at = f": {_tflops(place[1])} at {place[0]:.3g} flop/B" if place is not None else ""
    share = limit.fraction.get("forward")
    taken = f"; the forward pass takes {_time(1e-3 * limit.limit_ms / share)}" if share else ""
    return f"the problem at its limit, {_time(1e-3 * limit.limit_ms)} by {in_words(limit.kind)}{at}{taken}"


def short(kernel: str, *, columns: int = 44) -> str:
    """A kernel's name without its return type and parameters, cut to ``columns``."""
    name = kernel.removeprefix("void ").split("(", 1)[0].split("<", 1)[0].strip() or kernel
    return _cut(name.rsplit("::", 1)[-1] if len(name) > columns else name, columns)


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else text[: columns - 1] + "…"


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 1 else f"{value:.2g} %"


def _tflops(value: float | None) -> str:
    if value is None:
        return "an unknown rate"
    return f"{value:,.3g} TFLOP/s" if value >= 0.1 else f"{1000 * value:,.3g} GFLOP/s"


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.4g} ms" if seconds >= 1e-4 else f"{1e6 * seconds:.3g} us"


def _footnote(profile: Profile) -> str:
    source = profile.ceilings.source if profile.ceilings else "not known"
    told = f"ceilings: {source}"
    if profile.ceilings and profile.ceilings.source == "measured":
        told += " on this device (kernelwright specs --measure)"
    if any(point.seconds is None for point in profile.points):
        return told + "; hollow marks: not timed, bytes are the least that the kernel must move"
    return told + "; times and bytes of one launch with cold caches (ncu)"
