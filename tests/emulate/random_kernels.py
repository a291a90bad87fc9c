"""Random structured kernels: branches, loops with lane-dependent bounds, breaks, early returns, guarded instructions.

Why: reconvergence, liveness and uniformity go wrong on shapes nobody thinks of. The rule: every kernel ends, touches
only its own output element, and depends on the lane, so that running each lane alone gives the expected result.
"""

from __future__ import annotations

import random

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry t(.param .u64 out, .param .u32 lane0)
{
.reg .b32 a, x, y, t, u, l, %c<6>, %lim<6>;
.reg .pred p;
.reg .b64 w;
mov.u32 a, %tid.x;
ld.param.u32 l, [lane0];
add.u32 a, a, l;
ld.param.u64 w, [out];
cvta.to.global.u64 w, w;
mov.u32 u, %ctaid.x;
mov.u32 x, 1;
mov.u32 y, 2;
"""
TAIL = """
END:
mad.wide.u32 w, a, 8, w;
st.global.v2.u32 [w], {x, y};
ret;
}
"""


class _Writer:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._labels = 0
        self.lines: list[str] = []

    def body(self, depth: int) -> None:
        for _ in range(self._random.randrange(1, 4)):
            self._statement(depth)

    def _statement(self, depth: int) -> None:
        choice = self._random.random()
        if depth > 3 or choice < 0.4:
            self._arithmetic()
        elif choice < 0.6:
            self._if_else(depth)
        elif choice < 0.7:
            self._if(depth)
        elif choice < 0.85:
            self._loop(depth)
        elif choice < 0.92:
            self._condition()
            self.lines.append("@p bra END;")
        else:
            self._condition()
            self.lines.append("@p add.u32 y, y, 5;")

    def _arithmetic(self) -> None:
        pick = self._random.choice
        if self._random.random() < 0.6:
            self.lines.append(f"mad.lo.u32 x, x, {self._random.randrange(1, 9)}, {pick(['a', 'y', '3'])};")
        else:
            self.lines.append(f"add.u32 y, y, {pick(['x', '1', 'a', 'u'])};")

    def _condition(self) -> None:
        pick = self._random.choice
        self.lines.append(f"and.b32 t, {pick(['a', 'x', 'y', 'u'])}, {pick([1, 2, 4, 3])};")
        self.lines.append(f"setp.{pick(['eq', 'ne'])}.u32 p, t, 0;")

    def _label(self) -> str:
        self._labels += 1
        return f"L{self._labels}"

    def _if_else(self, depth: int) -> None:
        other, join = self._label(), self._label()
        self._condition()
        self.lines.append(f"@p bra {other};")
        self.body(depth + 1)
        self.lines += [f"bra {join};", f"{other}:"]
        self.body(depth + 1)
        self.lines.append(f"{join}:")

    def _if(self, depth: int) -> None:
        join = self._label()
        self._condition()
        self.lines.append(f"@p bra {join};")
        self.body(depth + 1)
        self.lines.append(f"{join}:")

    def _loop(self, depth: int) -> None:
        head, out = self._label(), self._label()
        self.lines += [
            f"mov.u32 %c{depth}, 0;",
            f"and.b32 %lim{depth}, {self._random.choice(['a', 'x', 'u'])}, 3;",
            f"{head}:",
            f"setp.gt.u32 p, %c{depth}, %lim{depth};",
            f"@p bra {out};",
        ]
        self.body(depth + 1)
        if self._random.random() < 0.4:
            self._condition()
            self.lines.append(f"@p bra {out};")
        self.lines += [f"add.u32 %c{depth}, %c{depth}, 1;", f"bra {head};", f"{out}:"]


def random_kernel(seed: int) -> str:
    """The PTX of kernel ``t(out, lane0)``: thread i writes two words for lane ``lane0 + i`` to ``out[lane0 + i]``."""
    writer = _Writer(seed)
    writer.body(0)
    writer.body(0)
    return HEAD + "\n".join(writer.lines) + TAIL
