"""The installed PyTorch as files: where it lies and which version it is, without importing it.

Why: compilers need both long before anybody runs torch code, and the import takes two seconds. The rule: nothing here
imports torch.
"""

from __future__ import annotations

import functools
import re
import sys
from importlib.util import find_spec
from pathlib import Path

from kernelwright.errors import MissingTool


@functools.cache
def folder() -> Path:
    """The package's folder. Raises :class:`MissingTool`."""
    spec = find_spec("torch")  # locates the package without importing it
    if spec is None or not spec.submodule_search_locations:
        raise MissingTool(tool="torch", searched=f"in {sys.prefix}", hint="pip install torch")
    return Path(next(iter(spec.submodule_search_locations)))


@functools.cache
def versions() -> str:
    """``2.13.0+cpu`` and the commit it was built from, as its ``version.py`` says; ``unknown`` for what it does not."""
    text = (folder() / "version.py").read_text(encoding="utf-8")
    return f"{_word('__version__', text)} {_word('git_version', text)}"


def version() -> str:
    """``2.13.0+cpu``."""
    return versions().split(" ")[0]


def _word(name: str, text: str) -> str:
    found = re.search(rf"^{name}\b[^=]*= '([^']+)'", text, re.M)
    return found[1] if found else "unknown"
