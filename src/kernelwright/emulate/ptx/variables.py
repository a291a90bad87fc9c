"""Variable declarations: state space, alignment, type, dimensions and initial contents.

Source: PTX ISA 9.0, section 5.4, https://docs.nvidia.com/cuda/parallel-thread-execution/#variables
"""

from __future__ import annotations

import struct

from .ir import Sym, Variable
from .lexer import Tokens
from .literals import is_number, parse_number
from .types import TYPE_BYTES

SPACES = frozenset({".global", ".const", ".shared", ".local", ".param"})
"""Directives that open a variable declaration."""

_INTEGER_MASK = {1: 0xFF, 2: 0xFFFF, 4: 0xFFFFFFFF, 8: (1 << 64) - 1}


def parse_variables(tokens: Tokens, *, external: bool) -> list[Variable]:
    """Read from the state space to the ``;``, both included."""
    space = tokens.take()[1:]
    align, lanes, type_ = 0, 1, ""
    while tokens.peek().startswith("."):
        word = tokens.take()[1:]
        if word == "align":
            align = int(tokens.take())
        elif word in ("v2", "v4"):
            lanes = int(word[1])
        elif word == "attribute":
            _skip_parentheses(tokens)
        elif word in TYPE_BYTES:
            type_ = word
        elif word != "ptr":
            raise tokens.error(f"unknown type '.{word}' in a .{space} declaration", index=tokens.at - 1)
    if not type_:
        raise tokens.error(f"a .{space} declaration without a type")
    element = TYPE_BYTES[type_]
    found: list[Variable] = []
    while True:
        name = tokens.take()
        count = lanes
        unsized = False
        while tokens.accept("["):
            if tokens.accept("]"):
                unsized = True
                continue
            count *= parse_number(tokens.take()).bits
            tokens.expect("]")
        initial: bytes | None = None
        relocations: tuple[tuple[int, Sym], ...] = ()
        if tokens.accept("="):
            data, relocations = _initial(tokens, type_)
            if unsized:
                count, unsized = len(data) // element, False
            if len(data) > count * element:
                raise tokens.error(f"'{name}' has more initial values than elements")
            initial = data.ljust(count * element, b"\0")
        size = 0 if unsized else count * element
        found.append(Variable(name, space, type_, align or element * lanes, size, initial, relocations, external))
        if not tokens.accept(","):
            break
    tokens.expect(";")
    return found


def _initial(tokens: Tokens, type_: str) -> tuple[bytes, tuple[tuple[int, Sym], ...]]:
    """The bytes behind ``=``, addresses as zeros plus their relocations."""
    data = bytearray()
    relocations: list[tuple[int, Sym]] = []
    depth = 0
    while True:
        word = tokens.peek()
        if word == "{":
            tokens.take()
            depth += 1
        elif word == "}":
            tokens.take()
            depth -= 1
        elif word == ",":
            if depth == 0:
                break
            tokens.take()
        elif word == ";":
            break
        elif is_number(word) or word in ("-", "+"):
            data += _scalar(tokens, type_)
        else:
            relocations.append((len(data), _address(tokens)))
            data += bytes(TYPE_BYTES[type_])
    if depth:
        raise tokens.error("unbalanced braces in an initialiser")
    return bytes(data), tuple(relocations)


def _scalar(tokens: Tokens, type_: str) -> bytes:
    negative = tokens.peek() == "-"
    if tokens.peek() in ("-", "+"):
        tokens.take()
    value = parse_number(tokens.take(), negative=negative)
    size = TYPE_BYTES[type_]
    if type_ == "f32" and value.type != "f32":
        return struct.pack("<f", _double(value.bits) if value.type == "f64" else float(_signed(value.bits)))
    if type_ == "f64" and value.type == "s64":
        return struct.pack("<d", float(_signed(value.bits)))
    if size > 8:
        return value.bits.to_bytes(size, "little")
    return (value.bits & _INTEGER_MASK[size]).to_bytes(size, "little")


def _double(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def _address(tokens: Tokens) -> Sym:
    name = tokens.take()
    if name == "generic" and tokens.accept("("):
        address = _address(tokens)
        tokens.expect(")")
        if tokens.peek() not in ("+", "-"):
            return address
        name = address.name
    offset = 0
    if tokens.peek() in ("+", "-"):
        sign = -1 if tokens.take() == "-" else 1
        offset = sign * parse_number(tokens.take()).bits
    return Sym(name, offset)


def _skip_parentheses(tokens: Tokens) -> None:
    tokens.expect("(")
    depth = 1
    while depth:
        word = tokens.take()
        depth += (word == "(") - (word == ")")
