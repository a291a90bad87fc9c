"""How an access that the emulated device stopped at is put into words.

Why: the thread, the address and the memory it missed are one sentence, whichever rule says it. The rule: only numbers
that the finding holds, each with its unit.
"""

from __future__ import annotations

from kernelwright.records import NO_THREAD, Allocation, Finding, SourceLine

_VERBS = {"load": "reads", "store": "writes", "atomic": "updates atomically"}

# The names of torch's ScalarType, which the device knows, as Python writes them; and bytes an element.
_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Byte": "uint8", "Char": "int8",
    "Short": "int16", "Int": "int32", "Long": "int64", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip
_ELEMENT_BYTES = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip


def who(finding: Finding) -> str:
    """``thread (0,0,0) of block (1024,0,0) in relu_kernel``."""
    if finding.thread == NO_THREAD:
        return f"a thread of {kernel(finding.kernel)}"
    thread, block = (f"({','.join(str(n) for n in place)})" for place in (finding.thread, finding.block))
    return f"thread {thread} of block {block} in {kernel(finding.kernel)}"


def kernel(demangled: str) -> str:
    """A kernel's name without its parameters, which only lengthen a sentence: ``reduce<float>``."""
    return demangled.removeprefix("void ").split("(", 1)[0].strip() or demangled


def does(finding: Finding) -> str:
    """``writes 4 bytes``; the access itself where it is none of reading and writing."""
    verb = _VERBS.get(finding.access)
    if verb is None:
        return finding.access or "fails"
    return f"{verb} {finding.bytes} byte{'' if finding.bytes == 1 else 's'}"


def memory(allocation: Allocation) -> str:
    """``y (torch.empty), float32 [512, 512], 1048576 bytes``."""
    parts = [allocation.name or f"an allocation in {allocation.kind} memory"]
    if allocation.dtype or allocation.shape:
        shape = f" [{', '.join(str(n) for n in allocation.shape)}]" if allocation.shape else ""
        parts.append(f"{dtype(allocation)}{shape}".strip())
    parts.append(f"{allocation.bytes} bytes")
    return ", ".join(parts)


def dtype(allocation: Allocation) -> str:
    """The allocation's dtype as Python writes it: ``float32``; empty where unknown."""
    return _DTYPES.get(allocation.dtype, allocation.dtype.removeprefix("torch."))


def distance(finding: Finding) -> str:
    """``4 bytes past its end``, ``16 bytes before its start``; empty where the access lies inside its allocation."""
    if finding.offset is None or finding.allocation is None:
        return ""
    if finding.offset < 0:
        return f"{-finding.offset} bytes before its start"
    past = finding.offset - finding.allocation.bytes
    if past >= 0:
        return f"{past} bytes past its end"
    over = finding.offset + finding.bytes - finding.allocation.bytes
    return f"the last {over} of them past its end" if over > 0 else ""


def where(finding: Finding) -> str:
    """``at byte offset 1048576 of y …: 0 bytes past its end``, or the bare address where no allocation is near."""
    if finding.allocation is None or finding.offset is None:
        return f"at address {finding.address:#x}, which no allocation is near"
    miss = distance(finding)
    return f"at byte offset {finding.offset} of {memory(finding.allocation)}" + (f": {miss}" if miss else "")


def element(finding: Finding) -> str:
    """Which element that would be, beside how many there are; empty where dtype or shape is not known."""
    allocation = finding.allocation
    if allocation is None or finding.offset is None or not allocation.shape:
        return ""
    width = _ELEMENT_BYTES.get(dtype(allocation), 0)
    if not width:
        return ""
    count = 1
    for size in allocation.shape:
        count *= size
    return f"that is element {finding.offset // width} of a tensor whose last element is {count - 1}"


def facts(finding: Finding) -> list[str]:
    """What else the finding holds, a line each."""
    lines = [element(finding)]
    if any(finding.grid):
        grid, block = (f"({','.join(str(n) for n in sizes)})" for sizes in (finding.grid, finding.block_size))
        times = f"{finding.count} thread{'' if finding.count == 1 else 's'} did so"
        lines.append(f"the launch has grid {grid} and block {block}; at least {times}")
    if finding.allocation is not None and finding.allocation.site is not None:
        lines.append(f"allocated at {place(finding.allocation.site)}")
    if len(finding.frames) > 1:
        lines.append("inlined: " + ", called from ".join(place(frame) for frame in finding.frames))
    if finding.message:
        lines.append(finding.message)
    lines.append(seen(finding))
    return lines


def seen(finding: Finding) -> str:
    """``seen by compute-sanitizer memcheck on the GPU``; empty for the emulated device of the check itself."""
    return f"seen {finding.witness}" if finding.witness else ""


def place(line: SourceLine) -> str:
    """``candidate.py:22 in block_sum``."""
    return f"{line.file}:{line.line}" + (f" in {line.function}" if line.function else "")
