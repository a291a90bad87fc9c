"""From compilers' statements to causes: a table of wordings, read in order.

Why: the same few mistakes make every compiler say the same few sentences, in files that nobody wrote. The rule: a cause
is named only on a message that means it; the first error counts most, since later ones follow from it; what no row
matches is ``build.syntax`` at its own line, in the compiler's words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernelwright.build.places import Places
from kernelwright.build.vocabulary import HEADER_OF, REMOVED
from kernelwright.records import BuildRecord, Cause, Confidence, Diagnostic, Stage


@dataclass(frozen=True)
class Reading:
    """What one message means."""

    id: str
    sentence: str
    fix: str = ""
    line: int = 0
    """0: the message's own line, else the call's."""
    confidence: Confidence = Confidence.CERTAIN


Reader = Callable[[re.Match[str], Diagnostic, Places], Reading | None]


def causes(record: BuildRecord, candidate_text: str) -> Iterator[Cause]:
    """The causes that the record's diagnostics show, best first, each id and line once."""
    places = Places(record, candidate_text)
    seen: set[tuple[str, int]] = set()
    readings = [(d, reading) for d in record.diagnostics if d.severity == "error" for reading in _read(d, places)]
    # A syntax error is what is left when nothing else explains it.
    for diagnostic, reading in sorted(readings, key=lambda pair: pair[1].id == "build.syntax"):
        line = reading.line or (diagnostic.line if places.is_candidate(diagnostic.file) else 0) or record.call_line
        if (reading.id, line) in seen or len(seen) >= 3:
            continue
        if reading.id == "build.syntax" and seen:
            break
        seen.add((reading.id, line))
        yield Cause(
            id=reading.id,
            stage=Stage.BUILD,
            sentence=reading.sentence,
            file=places.file if line else "",
            line=line,
            text=places.text(line),
            evidence=tuple(_evidence(diagnostic)),
            fix=reading.fix,
            confidence=reading.confidence,
        )


def _evidence(diagnostic: Diagnostic) -> Iterator[str]:
    where = f"{diagnostic.file}:{diagnostic.line}: " if diagnostic.line else ""
    yield f"{diagnostic.tool}: {where}{diagnostic.message}"


def _read(diagnostic: Diagnostic, places: Places) -> Iterator[Reading]:
    if places.bad_name:
        yield Reading(
            "build.bad-module-name",
            f"The extension's name {places.name!r} becomes part of the C function PyInit_{places.name} "
            "and is no identifier.",
            f"Name it {re.sub(r'[^0-9A-Za-z_]', '_', places.name)!r}: letters, digits and underscores, no digit first.",
            places.name_line(),
        )
        return
    for pattern, reader in _TABLE:
        match = pattern.search(diagnostic.message)
        if match and (reading := reader(match, diagnostic, places)) is not None:
            yield reading
            return
    yield Reading("build.syntax", f"{diagnostic.message[:1].upper()}{diagnostic.message[1:].rstrip('.')}.")


def _toolchain(match: re.Match[str], d: Diagnostic, places: Places) -> Reading:
    fix = {
        "ninja": "Install ninja in the environment that runs this (pip install ninja), and activate that environment.",
        "cuda_home": "Unset CUDA_HOME, or set it to a toolkit that has bin/nvcc.",
    }
    key = "ninja" if "inja" in d.message else "cuda_home" if "CUDA_HOME" in d.message else ""
    return Reading(
        "build.toolchain",
        f"A tool of the build is missing, and the source is not at fault: {d.message.rstrip('.')}.",
        fix.get(key, "Install the CUDA toolkit, or its wheels: pip install 'kernelwright[nvcc]'."),
        places.record.call_line,
    )


def _architecture(match: re.Match[str], d: Diagnostic, places: Places) -> Reading:
    return Reading(
        "build.wrong-architecture",
        d.message[:1].upper() + d.message[1:].rstrip(".") + ".",
        "Ask for the device's own architecture (TORCH_CUDA_ARCH_LIST unset, or '9.0' for an H200), or add +PTX.",
        places.architecture_line(),
    )


def _needs_architecture(match: re.Match[str], d: Diagnostic, places: Places) -> Reading:
    return Reading(
        "build.wrong-architecture",
        f"The code needs a target that was not asked for: {d.message.rstrip('.')}.",
        "Name it in TORCH_CUDA_ARCH_LIST or extra_cuda_cflags (such as sm_90a), or avoid the instruction.",
    )


def _not_declared(match: re.Match[str], d: Diagnostic, places: Places) -> Reading | None:
    name = match["name"].split("(")[0].split("<")[0]
    short = name.rsplit("::", 1)[-1]
    if short in _DEVICE_WORDS and d.tool == "g++":
        return _wrong_language(match, d, places)
    if short in REMOVED:
        return Reading(
            "build.removed-api",
            f"{name} no longer exists: {REMOVED[short]}.",
            REMOVED[short][:1].upper() + REMOVED[short][1:] + ".",
        )
    if name in places.functions and not places.is_candidate(d.file):
        defined = places.definition(name)
        hint = f": {defined};" if defined else "."
        return Reading(
            "build.missing-declaration",
            f"functions=[…] makes load_inline bind {name} in main.cpp, and cpp_sources has no declaration of it there.",
            f"Declare it in cpp_sources{hint}",
            places.argument_line("cpp_sources"),
        )
    if short in HEADER_OF:
        return Reading(
            "build.missing-header", f"{name} is used without its header.", f"Add #include <{HEADER_OF[short]}>."
        )
    return None


def _missing_header(match: re.Match[str], d: Diagnostic, places: Places) -> Reading:
    name = match["name"]
    gone = REMOVED.get(name, "")
    fix = gone[:1].upper() + gone[1:] + "." if gone else "Correct its name, or give its folder in extra_include_paths."
    return Reading(
        "build.missing-header",
        f"The header {name} does not exist here" + (f": {gone}." if gone else "."),
        fix,
        places.include_line(name),
    )


def _undefined(match: re.Match[str], d: Diagnostic, places: Places) -> Reading:
    name = match["name"] or match["symbol"]
    pointer = re.search(r"TensorBase::(\w*data_ptr)<(.+)>\(\)", name)
    if pointer:
        kind = pointer[2].strip()
        standin = {"__half": "at::Half", "__nv_bfloat16": "at::BFloat16", "half": "at::Half"}.get(
            kind, "the tensor's own type"
        )
        return Reading(
            "build.undefined-symbol",
            f"libtorch has {pointer[1]}<T>() for its own element types only; {pointer[1]}<{kind}>() is not there.",
            f"Use {pointer[1]}<{standin}>() and reinterpret_cast the pointer.",
            places.line_with(rf"{pointer[1]}\s*<\s*{re.escape(kind)}\s*>") or d.line,
        )
    function = re.sub(r"\(.*", "", name).split(" ")[-1]
    short = function.rsplit("::", 1)[-1]
    declared = places.declaration_line(short)
    defined = places.definition(short)
    if defined:
        sentence = (
            f"{name} is declared and used, and never defined: the definition is {defined}, another function to C++."
        )
        fix = "Make the parameter types of declaration and definition the same."
    else:
        sentence = f"{name} is declared and used, and defined nowhere."
        fix = f"Define {short}, or link what defines it."
    return Reading("build.undefined-symbol", sentence, fix, declared or (d.line if places.is_candidate(d.file) else 0))


def _duplicate(match: re.Match[str], d: Diagnostic, places: Places) -> Reading:
    what = match["name"] if "name" in match.re.groupindex else ""
    if "PyInit_" in d.message or "pybind11_init_" in d.message or "pybind11_module_def" in d.message:
        return Reading(
            "build.duplicate-definition",
            "Two PYBIND11_MODULE blocks: cpp_sources has one, and functions=[…] makes load_inline add another.",
            "Leave out functions=[…], or the block.",
            places.line_with(r"\bPYBIND11_MODULE\b"),
        )
    shared = places.text(d.line) if places.is_candidate(d.file) else ""
    if re.search(r"extern\s+__shared__|__shared__.*\[\s*\]", shared):
        return Reading(
            "build.duplicate-definition",
            f"extern __shared__ {what or 'array'} is one object for the whole file, "
            "and two template instantiations give it two types.",
            "Declare extern __shared__ __align__(16) unsigned char raw[] and cast: T* buf = reinterpret_cast<T*>(raw).",
        )
    return Reading(
        "build.duplicate-definition", f"{what or 'A name'} is defined twice: {d.message}.", "Keep one definition."
    )


def _wrong_language(match: re.Match[str], d: Diagnostic, places: Places) -> Reading:
    if d.tool == "g++":
        return Reading(
            "build.wrong-language",
            f"Device code stands in cpp_sources, which the host compiler reads: {d.message.rstrip('.')}.",
            "Move kernels and <<<…>>> launches to cuda_sources; cpp_sources keeps the declarations.",
        )
    return Reading(
        "build.wrong-language",
        f"Host and device code are mixed up: {d.message.rstrip('.')}.",
        "Mark the function __device__ (or __host__ __device__), or use a device function instead.",
    )


def _operators(match: re.Match[str], d: Diagnostic, places: Places) -> Reading | None:
    if not re.search(r"__half2?|__nv_bfloat162?", d.message):
        return None
    return Reading(
        "build.disabled-operators",
        "Operators and conversions of __half and __nv_bfloat16 are off in every extension, by torch's own flags "
        "(-D__CUDA_NO_HALF_OPERATORS__ and its family).",
        "Use __hadd, __hmul, __half2float, __float2half, …; or extra_cuda_cflags=['-U__CUDA_NO_HALF_OPERATORS__', "
        "'-U__CUDA_NO_HALF_CONVERSIONS__'].",
    )


def _removed(match: re.Match[str], d: Diagnostic, places: Places) -> Reading:
    return Reading(
        "build.removed-api",
        f"Tensor::type() no longer gives what AT_DISPATCH_* wants: {d.message.rstrip('.')}.",
        "Write x.scalar_type().",
    )


def _nested_launch(match: re.Match[str], d: Diagnostic, places: Places) -> Reading:
    return Reading(
        "build.wrong-flag",
        "A kernel launches a kernel here (dynamic parallelism), which needs -rdc=true and a device link.",
        "Launch the inner kernel from the host: the emulated device has none, with those flags either.",
    )


def _flag(match: re.Match[str], d: Diagnostic, places: Places) -> Reading:
    return Reading(
        "build.wrong-flag",
        f"A compiler flag is wrong or missing: {d.message.rstrip('.')}.",
        "Correct extra_cflags or extra_cuda_cflags; leave -std out, torch gives the one its headers need.",
        places.flag_line(d.message),
    )


_DEVICE_WORDS = frozenset(
    [
        "__global__",
        "__device__",
        "__shared__",
        "__constant__",
        "__syncthreads",
        "blockIdx",
        "threadIdx",
        "blockDim",
        "gridDim",
        "atomicAdd",
        "__shfl_down_sync",
    ]
)

_ROWS: tuple[tuple[str, Reader], ...] = (
    (r"Ninja is required", _toolchain),
    (
        r"nvcc['\"]?: not found|nvcc was not found|CUDA_HOME|No such file or directory: .*(nvcc|g\+\+|gcc|ninja|c\+\+)",
        _toolchain,
    ),
    (r"cannot execute|command not found|failed to preprocess host compiler", _toolchain),
    (r"Unsupported \.version .*; current version", _toolchain),
    (r"no kernel image is available|Unsupported gpu architecture|Unknown CUDA arch", _architecture),
    (
        r"requires \.target|not supported on \.target|Arguments mismatch for instruction '(wgmma|cp\.async\.bulk)",
        _needs_architecture,
    ),
    (r"'__(?:global|device|shared|constant)__' (?:does not name a type|was not declared)", _wrong_language),
    (r"expected (?:primary-expression|unqualified-id) before '<' token", _wrong_language),
    (r"calling a (?:constexpr )?__(?:host|device|global)__ function", _wrong_language),
    (r"identifier .* is undefined in device code", _wrong_language),
    (r"kernel launch from __device__ or __global__ functions", _nested_launch),
    (
        r"'(?P<name>[^']+)' (?:was not declared in this scope|has not been declared|is not a member of"
        r"|does not name a type)",
        _not_declared,
    ),
    (r"(?:identifier|namespace .* has no member) \"(?P<name>[^\"]+)\"(?: is undefined)?", _not_declared),
    (r"has no member(?: named)? ['\"](?P<name>\w+)['\"]", _not_declared),
    (r"(?P<name>[^\s:'\"]+\.(?:h|hpp|cuh|hh)): No such file or directory", _missing_header),
    (r"(?:could|can)not open source file \"(?P<name>[^\"]+)\"", _missing_header),
    (r"undefined symbol: (?P<symbol>\S+)(?: \((?P<name>.+)\))?", _undefined),
    (r"undefined reference to [`'](?P<symbol>(?P<name>[^']+))'", _undefined),
    (r"redefinition of '?(?P<name>[^']+)'?", _duplicate),
    (r"multiple definition of [`'](?P<name>[^']+)'", _duplicate),
    (r"(?:function|variable|class|struct)? ?\"(?P<name>[^\"]+)\".* has already been defined", _duplicate),
    (r"declaration is incompatible with (?:previous )?\"(?P<name>[^\"]+)\"", _duplicate),
    (r"conflicting declaration '(?P<name>[^']+)'", _duplicate),
    (r"DeprecatedTypeProperties", _removed),
    (
        r"no operator|no suitable (?:user-defined )?(?:conversion|constructor)"
        r"|more than one (?:conversion|operator|instance)|ambiguous",
        _operators,
    ),
    (
        r"Unknown option|unrecognized (?:command-line )?option|unrecognized argument|is not defined for option"
        r"|C\+\+\d\d or later|You need C\+\+",
        _flag,
    ),
    (r"expt-relaxed-constexpr|extended-lambda", _flag),
)
_TABLE = tuple((re.compile(pattern), reader) for pattern, reader in _ROWS)
