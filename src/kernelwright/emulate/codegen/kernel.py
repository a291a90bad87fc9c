"""One kernel as LLVM IR: ``void kernel(warp)`` runs a warp until it exits, waits or yields.

Why this shape: all of a warp's state that outlives a block of code lies in the warp, so a warp can stop anywhere and be
resumed by calling it again. Control flow: every block is entered with the warp's mask set; a block ends by jumping
straight to the next one while no other lanes stand at a lower number, else through the dispatcher, which runs the
lowest-numbered block that any lane waits for. Backward jumps count against a budget, so that lanes and warps rotate.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.emulate.ptx.ir import Function, Imm, Instruction, Label, Module
from kernelwright.emulate.ptx.operands import converges, suspends

from . import arithmetic, bits, calls, compare, convert, copies, exchange, layout, matrix, video  # noqa: F401 (they fill EMITTERS)
from .counting import Cells, Counting
from .lane import EMITTERS, RefusedInstruction, Site
from .text import Value, constant

AT_BARRIER, AT_TRAP = 3, 5
"""enum kw_access."""

WHOLE_REGISTERS = '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
"""LLVM would use half of each 512-bit register on most Intel CPUs, which doubles the instructions."""


@dataclass(frozen=True)
class Compiled:
    """A kernel's LLVM IR and what a launch must know of it."""

    text: str
    symbol: str
    sites: tuple[Site, ...]
    symbols: tuple[str, ...]
    """Module variables whose addresses the code reads, in the order of the symbol table."""
    register_bytes: int
    local_bytes: int
    static_shared: int
    granule: int
    """Bytes that accesses of shared memory are told apart by."""
    shared_arrays: tuple[tuple[str, int, int], ...]
    """Name, start in the window and bytes of each; 0 bytes: to the window's end."""
    block_instructions: tuple[int, ...]
    """For each code block the index of its first instruction."""
    block_numbers: tuple[int, ...] = ()
    """For each code block how many instructions it holds."""
    dead: frozenset[int] = frozenset()
    """Instructions that nobody needs: no code was made for them."""
    cells: Cells | None = None
    """What a counted kernel counts; None where it is not counted."""


class KernelCode(Counting):
    """The making of one kernel."""

    def __init__(self, module: Module, function: Function, *, counted: bool = False) -> None:
        super().__init__(module, function)
        if counted:
            self.start_counting()
        self._starts = {block.start: block.index for block in self.analysis.blocks}
        self._block = self.analysis.blocks[0]
        self._incoming: list[tuple[str, str]] = []
        self._jumped: set[int] = set()
        self._looped: set[int] = set()
        self._here = ""

    # ---- the whole

    def compile(self) -> Compiled:
        """The kernel's IR. Raises :class:`RefusedInstruction`."""
        t = self.text
        for block in self.analysis.blocks:
            self._block = block
            self._emit_block()
        body = t.lines
        t.lines = []
        self._frame()
        head = t.lines
        declarations = [f"declare {_signature(name, kind)}" for name, kind in t.declared.items()]
        blocks = [block.start for block in self.analysis.blocks]
        symbol = "kernel"
        lines = [
            *declarations,
            f"define void @{symbol}(ptr noalias %w) nounwind {WHOLE_REGISTERS} {{",
            *head,
            *body,
            "}",
        ]
        return Compiled(
            "\n".join(lines) + "\n",
            symbol,
            tuple(self.sites),
            tuple(self.symbols),
            self.register_bytes,
            self.local_bytes,
            self.static_shared,
            self.granule,
            self.shared_arrays,
            tuple(blocks),
            tuple(block.end - block.start for block in self.analysis.blocks),
            self.analysis.dead,
            self.cells,
        )

    def _frame(self) -> None:
        """Entry, dispatcher, and the blocks that jumps share."""
        t = self.text
        t.label("entry")
        if self.uses_scratch:
            t.emit("%scratch = alloca [4096 x i8], align 64")
        t.emit("br label %dispatch")
        t.label("dispatch")
        first = t.call("kw_dispatch", "i32", "ptr %w", "ptr")
        t.emit("br label %switch")
        t.label("switch")
        incoming = ", ".join(f"[ {value}, %{label} ]" for value, label in [(first, "dispatch"), *self._incoming])
        t.emit(f"%pc = phi i32 {incoming}")
        cases = " ".join(f"i32 {block.index}, label %B{block.index}" for block in self.analysis.blocks)
        t.emit(f"switch i32 %pc, label %leave [ {cases} ]")
        t.label("leave")
        t.emit("ret void")
        for target in sorted(self._looped):
            self._loop_gate(target)
        for target in sorted(self._jumped | self._looped):
            self._jump_gate(target)

    def _loop_gate(self, target: int) -> None:
        t = self.text
        t.label(f"L{target}")
        pointer = t.at("%w", layout.BUDGET)
        left = t.op("sub", t.load(pointer, "i32", align=4), constant("i32", 1))
        t.store(pointer, left, align=4)
        more = t.compare("icmp sgt", left, constant("i32", 0))
        t.emit(f"br i1 {more.text}, label %J{target}, label %Y{target}")
        t.label(f"Y{target}")
        t.call("kw_yield", "void", f"ptr %w, i32 {target}", "ptr, i32")
        t.emit("ret void")

    def _jump_gate(self, target: int) -> None:
        t = self.text
        t.label(f"J{target}")
        waits = t.load(t.at("%w", layout.NEXT_WAITS), "i32", align=4)
        first = t.compare("icmp slt", constant("i32", target), waits)
        t.emit(f"br i1 {first.text}, label %B{target}, label %D{target}")
        t.label(f"D{target}")
        t.call("kw_defer", "void", f"ptr %w, i32 {target}", "ptr, i32")
        t.emit("br label %dispatch")

    def _way_to(self, target: int) -> str:
        """The label to jump to in order to run block ``target`` next."""
        if target <= self._block.index:
            self._looped.add(target)
            return f"L{target}"
        if target not in self.analysis.reachable_diverged:
            return f"B{target}"
        self._jumped.add(target)
        return f"J{target}"

    # ---- blocks

    def _label(self, name: str) -> None:
        self.text.label(name)
        self._here = name

    def _fresh_label(self) -> str:
        return self.text.fresh("x").removeprefix("%")

    def _emit_block(self) -> None:
        block, t = self._block, self.text
        self.begin_block()
        self.guard = None
        self._label(f"B{block.index}")
        first = self.function.instructions[block.start]
        self.instruction, self.index = first, block.start
        if converges(first):
            self._wait_for_members(first)
        self._count()
        for index in range(block.start, block.end):
            if index in self.analysis.dead:
                continue
            instruction = self.function.instructions[index]
            self.instruction, self.index = instruction, index
            if index == block.end - 1 and self._ends_block(instruction):
                return
            self._emit(instruction)
        self._finish_block()
        t.emit(f"br label %{self._way_to(self._starts[block.end])}")

    def _count(self) -> None:
        t, block = self.text, self._block
        number = sum(index not in self.analysis.dead for index in range(block.start, block.end))
        if not number:
            return
        lanes = t.resize(t.intrinsic("ctpop", self.mask), "i64")
        self.count_block(block.index, lanes)
        pointer = t.at("%w", layout.COUNT)
        total = t.op("add", t.load(pointer, "i64", align=8), t.op("mul", lanes, constant("i64", number)))
        t.store(pointer, total, align=8)

    def _wait_for_members(self, instruction: Instruction) -> None:
        """Where lanes of the warp are missing, those named as members are waited for."""
        t = self.text
        mask = t.load(t.at("%w", layout.MASK), "i32", align=4)
        live = t.load(t.at("%w", layout.LIVE), "i32", align=4)
        go, wait = self._fresh_label(), self._fresh_label()
        whole = t.compare("icmp eq", mask, live)
        operand = exchange.members(instruction)
        if operand is not None and not isinstance(operand, Imm):
            self.read(operand, "b32")  # loaded before the branch, so that both ways may use it
        t.emit(f"br i1 {whole.text}, label %{go}, label %{wait}")
        self._label(wait)
        if instruction.op in ("shfl", "vote", "match", "redux", "bar", "elect") and operand is not None:
            exchange.pass_members(self)
        else:
            self.pass_lanes(1, constant("i32", -1))
        t.forget()
        any_place = int(instruction.op == "bar")
        ready = self.ask("kw_sync", self._block.index, self.site(exchange.AT_SYNC, 0), any_place)
        some = t.compare("icmp ne", ready, constant("i32", 0))
        t.emit(f"br i1 {some.text}, label %{go}, label %dispatch")
        self._label(go)

    def _emit(self, instruction: Instruction) -> None:
        if instruction.guard is not None:
            value = self.register(instruction.guard.register)
            self.guard = self.text.op("xor", value, constant("i1", 1)) if instruction.guard.negated else value
            self.count_guard()
        if instruction.op == "bar":  # bar.warp.sync: the waiting is done already
            self.run("kw_warp_met")
            self.guard = None
            return
        emitter = EMITTERS.get(instruction.op)
        if emitter is None:
            raise RefusedInstruction(instruction)
        try:
            emitter(self)
        except (KeyError, IndexError, StopIteration, ValueError) as error:
            raise RefusedInstruction(instruction, f"unexpected form ({error!r})") from error
        self.guard = None

    def _finish_block(self) -> None:
        index = self._block.index
        self.end_block(self.analysis.live_out[index], whole=index not in self.analysis.reachable_diverged)

    # ---- ends of blocks

    def _ends_block(self, instruction: Instruction) -> bool:
        """Emit the block's last instruction if it decides where to go; False for any other."""
        if instruction.op == "bra":
            self._branch(instruction)
        elif instruction.op == "brx":
            self._branch_by_index(instruction)
        elif instruction.op in ("ret", "exit"):
            self._exit()
        elif instruction.op == "trap":
            site = self.site(AT_TRAP, 0)
            self.run("kw_trap", self.mask, site)
            self._exit()
        elif suspends(instruction):
            self._barrier(instruction)
        else:
            return False
        return True

    def _exit(self) -> None:
        self._to_switch(self.ask("kw_exit", self.mask))

    def _to_switch(self, pc: Value) -> None:
        self._incoming.append((pc.text, self._here))
        self.text.emit("br label %switch")

    def _branch(self, instruction: Instruction) -> None:
        t = self.text
        label = instruction.operands[-1]
        if not isinstance(label, Label):
            raise RefusedInstruction(instruction)
        target = self.analysis.block_of_label[label.name]
        if instruction.guard is None:
            self._finish_block()
            t.emit(f"br label %{self._way_to(target)}")
            return
        other = self._starts[self._block.end]
        condition = self.register(instruction.guard.register)
        if instruction.guard.negated:
            target, other = other, target
        if not condition.wide:
            if self.counted:
                self.count_taken(t.select(condition, self.mask, constant("i32", 0)))
            self._finish_block()
            t.emit(f"br i1 {condition.text}, label %{self._way_to(target)}, label %{self._way_to(other)}")
            return
        taken = t.op("and", self.lanes_to_bits(condition), self.mask)
        self.count_taken(taken)
        mask = self.mask
        self._finish_block()
        some, split = self._fresh_label(), self._fresh_label()
        none = t.compare("icmp eq", taken, constant("i32", 0))
        t.emit(f"br i1 {none.text}, label %{self._way_to(other)}, label %{some}")
        self._label(some)
        every = t.compare("icmp eq", taken, mask)
        t.emit(f"br i1 {every.text}, label %{self._way_to(target)}, label %{split}")
        self._label(split)
        self.count_split()
        self._to_switch(self.ask("kw_diverge", taken, target, other))

    def _branch_by_index(self, instruction: Instruction) -> None:
        label = instruction.operands[-1]
        if not isinstance(label, Label):
            raise RefusedInstruction(instruction)
        t = self.text
        targets = [self.analysis.block_of_label[name] for name in self.function.branch_targets[label.name]]
        index = self.read(instruction.operands[0], "u32")
        self.pass_lanes(0, index)
        for row, target in enumerate(targets):
            pointer = t.at("%w", layout.DATA + layout.DATA_ROW + 4 * row)
            t.store(pointer, constant("i32", target), align=4)
        if len(targets) > 3 * layout.DATA_ROW // 4:
            raise RefusedInstruction(instruction, f"{len(targets)} targets")
        self.count_targets()
        self._finish_block()
        self._to_switch(self.ask("kw_branch_by_index", len(targets)))

    def _one(self, value: Value) -> Value:
        """A value that all running lanes must agree on, as the first of them has it."""
        t = self.text
        if not value.wide:
            return value
        lane = t.intrinsic("cttz", self.mask, extra=", i1 false")
        name = t.fresh()
        t.emit(f"{name} = extractelement {value.type} {value.text}, i32 {lane.text}")
        return Value(name, value.element)

    def _barrier(self, instruction: Instruction) -> None:
        t = self.text
        mods = instruction.mods[1:] if instruction.mods[:1] == ("cta",) else instruction.mods
        if mods[0] == "cluster":
            raise RefusedInstruction(instruction)
        operands = list(instruction.operands)
        votes: Value = constant("i32", 0)
        if mods[0] == "red":
            votes = self.lanes_to_bits(self.read(operands.pop(), "pred"))
            operands.pop(0)
        numbers = [self._one(self.read(operand, "u32")) for operand in operands]
        barrier = numbers[0] if numbers else constant("i32", 0)
        count = numbers[1] if len(numbers) > 1 else constant("i32", 0)
        after = self._starts[self._block.end]
        site = self.site(AT_BARRIER, 0)
        self._finish_block()
        if mods[0] == "arrive":
            self.run("kw_bar_arrive", barrier, count)
            t.emit(f"br label %{self._way_to(after)}")
            return
        aligned = int(instruction.op == "bar" or "aligned" in mods)
        self.run("kw_bar", barrier, count, after, site, aligned, votes)
        t.emit("br label %dispatch")


def _signature(name: str, kind: str) -> str:
    result, _, arguments = kind.partition(" (")
    return f"{result} @{name}({arguments}"
