"""Every setting, in one table: type, default and help. A flag beats the environment, which beats ``pyproject.toml``.

Why: a variable that is misspelt must not be ignored in silence, and one page (docs/settings.md, generated from this
table) must list them all. The rule: no other module reads a ``KERNELWRIGHT_…`` variable, and a name that is not in
the table is an error. No third-party package is imported here; worker processes read settings too.
"""

from __future__ import annotations

import difflib
import functools
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.errors import BadSetting, UnknownSetting

PREFIX = "KERNELWRIGHT_"

DEBUG_COMMANDS = 1
"""Tracebacks, and every command that is run."""
DEBUG_TIMINGS = 2
"""And how long each step took."""
DEBUG_PASSES = 3
"""And what each pass over a kernel did."""
DEBUG_SOURCE = 4
"""And the source, PTX and LLVM of each kernel."""


@dataclass(frozen=True)
class Setting:
    """One setting, as docs/settings.md prints it."""

    name: str
    """Without the prefix: ``CACHE`` is ``KERNELWRIGHT_CACHE`` and ``cache`` under ``[tool.kernelwright]``."""
    read: Callable[[str], Any]
    """Turns text into the value; raises ``ValueError`` with the reason."""
    kind: str
    """What a value looks like."""
    default: Any
    help: str
    flag: str = ""
    """The command-line option that beats it; empty where there is none."""

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.name

    @property
    def key(self) -> str:
        """The key under ``[tool.kernelwright]``."""
        return self.name.lower().replace("_", "-")


def _whole(low: int, high: int | None = None) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if value < low or (high is not None and value > high):
            raise ValueError(f"expected a whole number from {low}" + (f" to {high}" if high is not None else " up"))
        return value

    return read


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError("expected seconds, more than zero")
    return value


def _switch(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError("expected 1 or 0")
    return words[text.lower()]


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def size(text: str) -> int:
    """Bytes from ``4096``, ``512M``, ``16G`` or ``16GiB`` (powers of 1024). Raises ``ValueError``."""
    bare = text.strip().upper().removesuffix("IB").removesuffix("B")
    unit = bare[-1:] if bare[-1:] in _UNITS else ""
    value = float(bare.removesuffix(unit)) if bare.removesuffix(unit) else -1.0
    if not 0 < value < float("inf"):
        raise ValueError("expected a size such as 512M or 16G")
    return int(value * _UNITS[unit])


def _path(text: str) -> Path:
    if not text:
        raise ValueError("expected a path")
    return Path(text).expanduser()


def _choice(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return text

    return read


def _platform_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "kernelwright"


DEVICES = ("auto", "emulated", "cuda")
INPUTS = ("auto", "drawn", "handed")

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "CACHE",
        _path,
        "folder",
        None,
        "Where builds, native parts and compiled kernels are kept. "
        "Unset: `$XDG_CACHE_HOME/kernelwright`, or `~/.cache/kernelwright`.",
    ),
    Setting(
        "CACHE_LIMIT",
        size,
        "size",
        8 * 2**30,
        "The most that the cache may hold on disk; what was not used for longest goes first, and nothing that was used "
        "within an hour.",
    ),
    Setting(
        "HISTORY",
        _path,
        "file",
        None,
        "The SQLite file that keeps every verdict; `/dev/null` keeps none. "
        "Unset: `history.sqlite` in `$XDG_DATA_HOME/kernelwright`, or in `~/.local/share/kernelwright`.",
    ),
    Setting(
        "DEBUG",
        _whole(0, 4),
        "0 to 4",
        0,
        "How much to tell on stderr: 1 commands and tracebacks, 2 timings, 3 passes, 4 source, PTX and LLVM.",
    ),
    Setting(
        "NVCC",
        _path,
        "file",
        None,
        "The nvcc to build with. Unset: `$CUDA_HOME/bin/nvcc`, `PATH`, Python wheels, `/usr/local/cuda`.",
    ),
    Setting(
        "DEVICE",
        _choice(*DEVICES),
        " | ".join(DEVICES),
        "auto",
        "What a candidate runs on. `auto` takes a GPU where there is one.",
        "--device",
    ),
    Setting("AS", str, "GPU", "h200", "The data sheet that the emulated device presents.", "--as"),
    Setting(
        "TIMEOUT",
        _seconds,
        "seconds",
        300.0,
        "Longest the candidate may take in all, and the reference in all.",
        "--timeout",
    ),
    Setting(
        "MEMORY",
        size,
        "size",
        None,
        "Most memory that the candidate may take, such as `16G`. Unset: three quarters of what is free.",
        "--memory",
    ),
    Setting("TRIALS", _whole(1), "whole number", 3, "Fresh inputs that a candidate is compared on.", "--trials"),
    Setting(
        "JOBS",
        _whole(1),
        "whole number",
        None,
        "Compilers and emulated multiprocessors at once. Unset: the cores this process may use.",
    ),
    Setting(
        "CONFIRM",
        _switch,
        "0 | 1",
        True,
        "Compile the sources against the real torch headers, too, beside the fast headers.",
        "--no-confirm",
    ),
    Setting(
        "REPLAY",
        _switch,
        "0 | 1",
        True,
        "Run on the emulated device, too, what fails on a GPU in a way that nothing there explains.",
        "--no-replay",
    ),
    Setting(
        "INPUTS",
        _choice(*INPUTS),
        " | ".join(INPUTS),
        "auto",
        "`drawn`: each process draws a trial's inputs itself, from the same seed; `handed`: made once on the CPU and "
        "handed over; `auto`: drawn on a GPU's own generator where get_inputs() allows it.",
        "--inputs",
    ),
    Setting("HW", _switch, "0 | 1", False, "Tests replay the emulator's instruction files on a GPU."),
)

TABLE: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}


def get(name: str, *, flag: Any = None) -> Any:
    """Setting ``name``: ``flag`` if it is not None, else from the environment, ``pyproject.toml``, or the default.

    Raises ``BadSetting`` for a value that cannot be read, ``KeyError`` for a name that no setting has.
    """
    setting = TABLE[name]
    if flag is not None:
        return flag
    text = os.environ.get(setting.variable)
    if text is not None:
        return _read(setting, text, setting.variable, "the environment")
    path, table = _pyproject(Path.cwd())
    if setting.key in table:
        value = table[setting.key]
        return _read(setting, str(value).lower() if isinstance(value, bool) else str(value), setting.key, str(path))
    return setting.default


def check_names() -> None:
    """Raise ``UnknownSetting`` for a ``KERNELWRIGHT_`` variable or a ``[tool.kernelwright]`` key that is not known."""
    for variable in sorted(os.environ):
        if variable.startswith(PREFIX) and variable.removeprefix(PREFIX) not in TABLE:
            raise _unknown(variable, [s.variable for s in SETTINGS], "the environment")
    path, table = _pyproject(Path.cwd())
    for key in table:
        if key not in {s.key for s in SETTINGS}:
            raise _unknown(key, [s.key for s in SETTINGS], f"[tool.kernelwright] in {path}")


def cache_folder() -> Path:
    """The folder for everything that can be made again; created with its parents."""
    chosen: Path | None = get("CACHE")
    folder = (chosen or _platform_cache()).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def history_file() -> Path:
    """The file that keeps verdicts; it need not exist. Not in the cache: nothing in it can be made again."""
    chosen: Path | None = get("HISTORY")
    base = os.environ.get("XDG_DATA_HOME", "")
    data = Path(base) if base.startswith("/") else Path.home() / ".local" / "share"
    return (chosen or data / "kernelwright" / "history.sqlite").absolute()


def debug() -> int:
    """The rung of the debug ladder, 0 to 4."""
    return int(get("DEBUG"))


def jobs() -> int:
    """How many compilers or emulated multiprocessors to run at once."""
    chosen: int | None = get("JOBS")
    return chosen or len(os.sched_getaffinity(0))


def _read(setting: Setting, text: str, name: str, where: str) -> Any:
    try:
        return setting.read(text)
    except ValueError as error:
        why = str(error)
        if "could not convert" in why or "invalid literal" in why:
            why = f"expected {setting.kind}"
        raise BadSetting(where=where, name=name, value=text, why=why) from None


def _unknown(name: str, known: list[str], where: str) -> UnknownSetting:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return UnknownSetting(where=where, name=name, near=near[0])


@functools.lru_cache(maxsize=8)
def _pyproject(folder: Path) -> tuple[Path | None, Mapping[str, Any]]:
    """The nearest ``pyproject.toml`` upwards of ``folder`` and its ``[tool.kernelwright]`` table."""
    for parent in (folder, *folder.parents):
        path = parent / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("kernelwright", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadSetting(where=str(path), name="its TOML", value=path.name, why=str(error)) from None
        return path, table
    return None, {}
