"""From which kernel parameter, or which shared array, an address is derived.

Why: an index that leaves one tensor and lands in another is inside *some* allocation; only knowing the tensor meant
shows the fault, and lets the message name it. The rule: a claim is made only where every definition agrees; a register
that could hold anything else claims nothing. NVVM marks pointer parameters by ``cvta.to.global``.
"""

from __future__ import annotations

from collections.abc import Mapping

from .analysis import Analysis
from .ptx.ir import Function, Instruction, Mem, Operand, Reg, Sym, Vec

Root = tuple[str, str | int]
"""``("parameter", byte offset)``, ``("shared", name)``, ``("local", name)``, ``("variable", name)`` (a variable of the
module in global memory), ``("argument", offset)`` (a parameter not yet known to be a pointer), :data:`PLAIN` for an
integer and :data:`UNKNOWN` for what may be anything."""

PLAIN: Root = ("plain", 0)
UNKNOWN: Root = ("unknown", 0)
_ADDS = frozenset({"add", "sub", "or", "xor", "and"})
_COPIES = frozenset({"mov", "cvt"})


def roots(analysis: Analysis, spaces: Mapping[str, str]) -> dict[str, Root]:
    """Register name to what its address is derived from; registers that are never written are absent.

    ``spaces``: the state space of each of the module's variables.
    """
    function = analysis.function
    known: dict[str, Root] = {}
    changed = True
    while changed:
        changed = False
        for block in analysis.blocks:
            for index in range(block.start, block.end):
                instruction = function.instructions[index]
                defs = analysis.effects[index].defs
                if not defs:
                    continue
                root = _root(function, instruction, known, spaces)
                if root is None:
                    continue
                for register in defs:
                    old = known.get(register.name)
                    new = root if old is None or old == root else UNKNOWN
                    if new != old:
                        known[register.name] = new
                        changed = True
    return known


def of_address(memory: Mem, known: dict[str, Root], spaces: Mapping[str, str]) -> Root:
    """What ``[base+offset]`` is derived from."""
    if isinstance(memory.base, Reg):
        return known.get(memory.base.name, UNKNOWN)
    if isinstance(memory.base, Sym):
        outer = spaces.get(memory.base.name, "shared")
        return ("variable" if outer == "global" else "shared", memory.base.name)
    return UNKNOWN


def _of(function: Function, operand: Operand, known: dict[str, Root], spaces: Mapping[str, str]) -> Root | None:
    """None: not known yet, because the definitions have not been visited."""
    if isinstance(operand, Reg):
        return known.get(operand.name)
    if isinstance(operand, Sym):
        own = next((v.space for v in function.locals if v.name == operand.name), "")
        if own in ("shared", "local"):
            return (own, operand.name)
        # The module's own shared arrays overlap where they are dynamic: all that is said is, not in global memory.
        meant = {"global": "variable", "shared": "local"}.get(spaces.get(operand.name, ""), "")
        return (meant, operand.name) if meant else UNKNOWN
    if isinstance(operand, Vec):
        return UNKNOWN
    return PLAIN


def _is_claim(root: Root) -> bool:
    return root[0] in ("parameter", "shared", "local", "variable")


def _sum(found: list[Root | None]) -> Root | None:
    """An address plus integers stays what it was."""
    if any(root is None for root in found):
        # A loop's pointer plus a step: the step is known before the pointer's second definition is.
        return None
    claims = {root for root in found if root is not None and _is_claim(root)}
    if UNKNOWN in found or len(claims) > 1:
        return UNKNOWN
    return claims.pop() if claims else PLAIN


def _root(
    function: Function, instruction: Instruction, known: dict[str, Root], spaces: Mapping[str, str]
) -> Root | None:
    operands = instruction.operands
    op, mods = instruction.op, instruction.mods
    if op == "ld":
        memory = operands[1]
        direct = memory.base if isinstance(memory, Mem) and isinstance(memory.base, Sym) else None
        if mods[0] == "param" and mods[-1] in ("u64", "b64") and direct is not None and isinstance(memory, Mem):
            param = next((p for p in function.params if p.name == direct.name), None)
            if param is not None and function.entry:
                return ("argument", param.offset + direct.offset + memory.offset)
        return PLAIN if mods[-1] not in ("u64", "b64", "s64", "u32", "b32") else UNKNOWN
    sources = [_of(function, operand, known, spaces) for operand in operands[1:]]
    if op == "cvta":
        root = sources[0]
        if root is not None and root[0] == "argument" and "to" in mods and "global" in mods:
            return ("parameter", root[1])
        return root
    if op in _COPIES:
        return sources[0]
    if op in _ADDS:
        return _sum(sources[:2])
    if op == "mad":
        return _sum([PLAIN if sources[0] is not None else None, sources[2]])
    if op == "selp":
        if sources[0] is None or sources[1] is None:
            return sources[0] or sources[1]
        return sources[0] if sources[0] == sources[1] else UNKNOWN
    if op in ("atom", "call", "shfl", "ldu"):
        return UNKNOWN
    if any(root is not None and _is_claim(root) for root in sources):
        return UNKNOWN
    return PLAIN
