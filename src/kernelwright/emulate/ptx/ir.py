"""The typed form of a PTX module: what the parser makes and everything else in ``emulate`` reads.

Why: analysis, code generation and the interpreter must agree on one reading of the text. The rule: operands keep the
order in which the PTX manual prints them (destination first), modifiers keep their order and spelling, and every
instruction remembers its PTX line and its source position, so that any refusal or finding can name both.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Position:
    """A ``.loc``: file, line, and the chain of calls it was inlined through (outermost last)."""

    file: str
    line: int
    function: str = ""
    """Mangled name of the inlined function this line belongs to; empty for the kernel's own lines."""
    inlined_at: Position | None = None


@dataclass(frozen=True, slots=True)
class Reg:
    """A virtual register, by its unique name within the function (scoped names are already made unique)."""

    name: str
    type: str
    """PTX type without the dot: ``b32``, ``f64``, ``pred`` …"""


@dataclass(frozen=True, slots=True)
class Imm:
    """A literal. ``bits`` is its two's complement or IEEE pattern; ``type`` says how it was written."""

    bits: int
    type: str
    """``s64`` for integers, ``f32`` for ``0f…``, ``f64`` for ``0d…`` and decimal reals."""


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as ``%tid.x`` or ``%laneid``; or ``WARP_SZ``."""

    name: str


@dataclass(frozen=True, slots=True)
class Sym:
    """The address of a variable or function, plus a byte offset (``name+8``)."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Mem:
    """``[base + offset]``, or ``[tensor_map, {x, y}]``."""

    base: Reg | Imm | Sym
    offset: int = 0
    coordinates: Vec | None = None
    """The coordinates of a tensor access; None for every plain address."""


@dataclass(frozen=True, slots=True)
class Vec:
    """``{a, b, c, d}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target or the name of a ``.branchtargets`` list."""

    name: str


@dataclass(frozen=True, slots=True)
class Pair:
    """``d|p``: a second destination, as ``shfl`` and ``setp`` have. ``second`` is None for the sink ``_``."""

    first: Operand
    second: Operand | None


@dataclass(frozen=True, slots=True)
class Not:
    """``!p``: a negated predicate operand."""

    operand: Reg


@dataclass(frozen=True, slots=True)
class Part:
    """``a.b0``, ``a.h1``, ``a.b7632``: bytes or halves of a register, as the video instructions select them."""

    register: Reg
    selector: str


@dataclass(frozen=True, slots=True)
class Args:
    """A parenthesised list of a ``call``: returns or arguments."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a destination that is thrown away."""


Operand = Reg | Imm | Special | Sym | Mem | Vec | Label | Pair | Not | Part | Args | Sink


@dataclass(frozen=True, slots=True)
class Guard:
    """``@p`` or ``@!p`` before an instruction."""

    register: Reg
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, e.g. ``@%p1 ld.global.nc.v4.f32 {…}, [%rd1+16];``."""

    op: str
    """Mnemonic: ``ld``."""
    mods: tuple[str, ...]
    """Everything behind it, in order: ``("global", "nc", "v4", "f32")``."""
    operands: tuple[Operand, ...]
    guard: Guard | None
    ptx_line: int
    """1-based line in the PTX text."""
    position: Position | None

    @property
    def opcode(self) -> str:
        """The full opcode as written: ``ld.global.nc.v4.f32``."""
        return ".".join((self.op, *self.mods))


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in some state space: module scope, a function's local depot, or its shared arrays."""

    name: str
    space: str
    """``global`` | ``const`` | ``shared`` | ``local`` | ``param``."""
    type: str
    align: int
    size: int
    """Total bytes; 0 for ``extern .shared x[]``."""
    initial: bytes | None = None
    """Initial contents, where given and free of addresses."""
    relocations: tuple[tuple[int, Sym], ...] = ()
    """(byte offset, symbol) pairs: initialisers that hold an address."""
    external: bool = False


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel's or function's parameter."""

    name: str
    type: str
    align: int
    size: int
    """Bytes."""
    offset: int
    """Byte offset in the parameter block, as the driver lays it out."""


@dataclass(frozen=True)
class Function:
    """An ``.entry`` or ``.func`` with a body, its instructions in order."""

    name: str
    entry: bool
    params: tuple[Param, ...]
    returns: tuple[Param, ...]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    """Label to the index of the instruction it stands before (may equal len(instructions))."""
    registers: dict[str, Reg]
    locals: tuple[Variable, ...]
    """``.local`` (per thread), ``.shared`` (per block) and ``.param`` (call scratch) variables declared in the body."""
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    max_threads: tuple[int, int, int] | None = None
    """``.maxntid``."""
    required_threads: tuple[int, int, int] | None = None
    """``.reqntid``."""
    ptx_line: int = 0


@dataclass(frozen=True)
class Module:
    """A whole PTX file."""

    version: str
    target: str
    functions: dict[str, Function]
    declarations: dict[str, Function]
    """``.extern .func`` prototypes and forward declarations, without a body (``vprintf``, ``__assertfail``)."""
    variables: dict[str, Variable]
    text: str
    """The PTX text itself."""
    aliases: dict[str, str] = field(default_factory=dict)
