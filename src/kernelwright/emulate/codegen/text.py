"""LLVM IR as text: values, types, and the few ways to make one from another.

Why not llvmlite.ir: it types pointers differently from version to version and takes as long as LLVM itself. The rule:
an operation on scalars stays scalar (a value that is the same in all lanes costs one lane), and becomes 32 wide as
soon as one operand is.
"""

from __future__ import annotations

from dataclasses import dataclass

from .layout import LANES

FLOATS = {"half": 16, "float": 32, "double": 64}
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128, **FLOATS}
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


@dataclass(frozen=True, slots=True)
class Value:
    """An LLVM value: a name or a constant, its element type, and whether it has 32 lanes."""

    text: str
    element: str
    wide: bool = False
    constant: bool = False

    @property
    def type(self) -> str:
        """The LLVM type."""
        return f"<{LANES} x {self.element}>" if self.wide else self.element

    @property
    def bits(self) -> int:
        """Bits of one lane."""
        return BITS[self.element]


def constant(element: str, bits: int) -> Value:
    """The scalar whose bit pattern is ``bits``."""
    width = BITS[element]
    bits &= (1 << width) - 1
    if element in FLOATS:
        return Value(f"bitcast (i{width} {bits} to {element})", element, constant=True)
    if element == "i1":
        return Value("true" if bits else "false", element, constant=True)
    return Value(str(bits), element, constant=True)


class Text:
    """A function's body in the making."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self._next = 0
        self._splats: dict[Value, Value] = {}

    # ---- plumbing

    def fresh(self, prefix: str = "v") -> str:
        """A name nobody has."""
        self._next += 1
        return f"%{prefix}{self._next}"

    def emit(self, line: str) -> None:
        """Add a line."""
        self.lines.append("  " + line)

    def label(self, name: str) -> None:
        """Start a basic block; what was computed before need not dominate it."""
        self.lines.append(f"{name}:")

    def forget(self) -> None:
        """Forget values remembered for reuse."""
        self._splats.clear()

    def _made(self, right: str, element: str, wide: bool) -> Value:
        name = self.fresh()
        self.emit(f"{name} = {right}")
        return Value(name, element, wide)

    def declare(self, name: str, signature: str) -> None:
        """Declare an external function: ``signature`` as in ``i32 (ptr, i32)``."""
        self.declared[name] = signature

    # ---- lanes

    def splat(self, value: Value) -> Value:
        """``value`` in all lanes."""
        if value.wide:
            return value
        known = self._splats.get(value)
        if known is not None:
            return known
        if value.constant:
            text = "<" + ", ".join([f"{value.element} {value.text}"] * LANES) + ">"
            result = Value(text, value.element, True, True)
        else:
            vector = f"<{LANES} x {value.element}>"
            first = self._made(
                f"insertelement {vector} undef, {value.element} {value.text}, i32 0", value.element, True
            )
            zeros = f"<{LANES} x i32> zeroinitializer"
            result = self._made(f"shufflevector {vector} {first.text}, {vector} undef, {zeros}", value.element, True)
        self._splats[value] = result
        return result

    def even(self, *values: Value) -> tuple[Value, ...]:
        """All scalar, or all wide."""
        return tuple(map(self.splat, values)) if any(value.wide for value in values) else values

    # ---- operations

    def op(self, name: str, a: Value, b: Value) -> Value:
        """A two-operand instruction: ``add``, ``fmul``, ``shl`` …"""
        a, b = self.even(a, b)
        return self._made(f"{name} {a.type} {a.text}, {b.text}", a.element, a.wide)

    def compare(self, name: str, a: Value, b: Value) -> Value:
        """``icmp ult``, ``fcmp oeq`` …; an i1."""
        a, b = self.even(a, b)
        return self._made(f"{name} {a.type} {a.text}, {b.text}", "i1", a.wide)

    def negate_float(self, a: Value) -> Value:
        """The sign flipped, NaN included."""
        return self._made(f"fneg {a.type} {a.text}", a.element, a.wide)

    def cast(self, name: str, a: Value, element: str) -> Value:
        """``trunc``, ``zext``, ``sitofp`` …"""
        target = f"<{LANES} x {element}>" if a.wide else element
        return self._made(f"{name} {a.type} {a.text} to {target}", element, a.wide)

    def as_type(self, a: Value, element: str) -> Value:
        """The same bits as another type of the same width."""
        if a.element == element:
            return a
        if a.constant and not a.wide and a.text.isdigit():
            return constant(element, int(a.text))
        return self.cast("bitcast", a, element)

    def resize(self, a: Value, element: str, *, signed: bool = False) -> Value:
        """An integer made narrower or wider."""
        if a.bits == BITS[element]:
            return a
        if a.bits > BITS[element]:
            return self.cast("trunc", a, element)
        return self.cast("sext" if signed else "zext", a, element)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """``condition ? a : b``, lane by lane."""
        if condition.wide or a.wide or b.wide:
            a, b = self.splat(a), self.splat(b)
            condition = self.splat(condition)
        return self._made(
            f"select {condition.type} {condition.text}, {a.type} {a.text}, {b.type} {b.text}", a.element, a.wide
        )

    def intrinsic(self, name: str, *arguments: Value, result: str | None = None, extra: str = "") -> Value:
        """``llvm.<name>`` overloaded on the first argument's type (and the result's, where it differs)."""
        arguments = self.even(*arguments)
        first = arguments[0]
        element = result or first.element
        shape = f"v{LANES}" if first.wide else ""

        def suffix(of: str) -> str:
            return f".{shape}{_SUFFIX.get(of, of)}"

        full = f"llvm.{name}" + (suffix(element) if element != first.element else "") + suffix(first.element)
        target = f"<{LANES} x {element}>" if first.wide else element
        types = ", ".join(value.type for value in arguments) + (", i1" if extra else "")
        self.declare(full, f"{target} ({types})")
        given = ", ".join(f"{value.type} {value.text}" for value in arguments) + extra
        return self._made(f"call {target} @{full}({given})", element, first.wide)

    # ---- memory

    def at(self, base: str, offset: int) -> str:
        """``base`` plus a constant number of bytes."""
        name = self.fresh("p")
        self.emit(f"{name} = getelementptr i8, ptr {base}, i64 {offset}")
        return name

    def load(self, pointer: str, element: str, *, wide: bool = False, align: int = 0) -> Value:
        """A load of one element or of 32 packed ones."""
        target = f"<{LANES} x {element}>" if wide else element
        suffix = f", align {align}" if align else ""
        return self._made(f"load {target}, ptr {pointer}{suffix}", element, wide)

    def store(self, pointer: str, value: Value, *, align: int = 0) -> None:
        """A store of a value as it is."""
        suffix = f", align {align}" if align else ""
        self.emit(f"store {value.type} {value.text}, ptr {pointer}{suffix}")

    def call(self, name: str, result: str, arguments: str, types: str) -> str:
        """Call a runtime function on scalars; the result's name, or "" for void."""
        self.declare(name, f"{result} ({types})")
        if result == "void":
            self.emit(f"call void @{name}({arguments})")
            return ""
        made = self.fresh("c")
        self.emit(f"{made} = call {result} @{name}({arguments})")
        return made
