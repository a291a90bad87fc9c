"""Basic blocks and their order: the shape of a function.

Why: the emulator runs the diverged lanes of a warp lowest block number first, so the numbering decides where lanes
meet again. The rule: blocks are numbered so that (1) every edge goes up except the back edges of loops, and (2) the
blocks of a loop are numbered without gaps, so that lanes that left a loop wait for those still in it. This is
Bourdoncle's weak topological order (Efficient chaotic iteration strategies with widenings, 1993); on structured code
it is a reverse postorder, on irreducible code it still is an order that terminates. One exception: blocks that hold
nothing but ``ret`` or ``exit`` come right after the entry, so that lanes which return early are gone at once instead
of keeping the others from counting as converged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .ptx.ir import Function, Instruction, Label
from .ptx.operands import converges, ends_block


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions ``start`` to ``end`` (exclusive) of the function, entered only at the top."""

    index: int
    """This block's number in the order, which is also its place in ``Analysis.blocks``. The entry is 0."""
    start: int
    end: int
    successors: tuple[int, ...]
    """Block numbers, the branch target first, the fall-through last. Empty when the block only returns or exits."""
    predecessors: tuple[int, ...]


def branch_labels(function: Function, instruction: Instruction) -> tuple[str, ...]:
    """The labels a ``bra`` or ``brx.idx`` may jump to, in the order of the list."""
    label = instruction.operands[-1]
    if not isinstance(label, Label):
        raise ValueError(f"PTX line {instruction.ptx_line}: a branch needs a label")
    return function.branch_targets[label.name] if instruction.op == "brx" else (label.name,)


def build_blocks(function: Function, *, split_at_converging: bool = False) -> tuple[Block, ...]:
    """The reachable blocks of ``function`` in order.

    With ``split_at_converging``, a block also starts at every instruction at which lanes of a warp wait for others.
    """
    instructions = function.instructions
    count = len(instructions)
    starts = {0, *(index for index in function.labels.values() if index < count)}
    for index, instruction in enumerate(instructions):
        if ends_block(instruction) and index + 1 < count:
            starts.add(index + 1)
        if split_at_converging and converges(instruction):
            starts.add(index)
    ordered = sorted(starts)
    ends = dict(zip(ordered, [*ordered[1:], count], strict=True))
    edges: dict[int, tuple[int, ...]] = {0: ()}
    if count:
        edges = {start: _targets(function, ends[start]) for start in ordered}
    order = _returns_first(function, _weak_topological_order(edges))
    number = {start: index for index, start in enumerate(order)}
    successors = [tuple(dict.fromkeys(number[target] for target in edges[start])) for start in order]
    predecessors: list[list[int]] = [[] for _ in order]
    for index, targets in enumerate(successors):
        for target in targets:
            predecessors[target].append(index)
    return tuple(
        Block(index, start, ends.get(start, 0), successors[index], tuple(predecessors[index]))
        for index, start in enumerate(order)
    )


def _targets(function: Function, end: int) -> tuple[int, ...]:
    """The instruction indices that may follow the block which ends before ``end``; the end of the text is an exit."""
    instructions = function.instructions
    count = len(instructions)
    last = instructions[end - 1]
    found: list[int] = []
    if last.op in ("bra", "brx"):
        found += [function.labels[name] for name in branch_labels(function, last)]
    if last.op not in ("bra", "brx", "ret", "exit", "trap") or last.guard is not None:
        found.append(end)
    return tuple(target for target in found if target < count)


def _returns_first(function: Function, order: list[int]) -> list[int]:
    def only_returns(start: int) -> bool:
        instruction = function.instructions[start]
        return instruction.op in ("ret", "exit") and instruction.guard is None

    early = [start for start in order[1:] if only_returns(start)]
    return order[:1] + early + [start for start in order[1:] if start not in set(early)]


def _weak_topological_order(edges: dict[int, tuple[int, ...]]) -> list[int]:
    """The nodes reachable from node 0, loops contiguous. Independent branches keep the order of the text."""
    reachable = frozenset().union(*_components(frozenset(edges), edges, (0,)))
    order: list[int] = []

    def place(nodes: frozenset[int], roots: Iterable[int]) -> None:
        for part in _components(nodes, edges, roots):
            if len(part) == 1:
                order.extend(part)
                continue
            entries = {t for node in reachable - part for t in edges[node] if t in part}
            header = min(entries | (part & {0}))
            order.append(header)
            place(part - {header}, part - {header})

    place(reachable, (0,))
    return order


def _components(nodes: frozenset[int], edges: dict[int, tuple[int, ...]], roots: Iterable[int]) -> list[frozenset[int]]:
    """Strongly connected components among ``nodes`` reachable from ``roots``, in topological order (Tarjan)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[frozenset[int]] = []
    for root in sorted(roots, reverse=True):
        if root in number or root not in nodes:
            continue
        path = [(root, iter(_descending(root, nodes, edges)))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while path:
            node, targets = path[-1]
            for target in targets:
                if target not in number:
                    number[target] = low[target] = len(number)
                    stack.append(target)
                    on_stack.add(target)
                    path.append((target, iter(_descending(target, nodes, edges))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], number[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    part = set()
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        part.add(member)
                        if member == node:
                            break
                    found.append(frozenset(part))
    return found[::-1]


def _descending(node: int, nodes: frozenset[int], edges: dict[int, tuple[int, ...]]) -> list[int]:
    """Successors, last in the text first, so that the finished order follows the text where edges leave it free."""
    return sorted((target for target in edges[node] if target in nodes), reverse=True)
