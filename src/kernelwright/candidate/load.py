"""Run a candidate's file as the module ``candidate``, under its own name and in its own folder.

Why: tracebacks, ``inspect`` and relative paths must work as they do when its author runs it. The rule: only ever called
inside a candidate process; what the file raises passes through.
"""

from __future__ import annotations

import linecache
import os
import sys
import types
from pathlib import Path

MODULE = "candidate"
"""Name that the candidate's module has in ``sys.modules`` of its process."""


class MissingModelNew(Exception):
    """The candidate's file ran, but defines no ``ModelNew`` that can be called."""


def load(file: str, text: str) -> types.ModuleType:
    """Run ``text``, which came from ``file`` (the path as the user gave it), and return its module.

    Raises ``MissingModelNew``, or whatever the candidate raises.
    """
    path = Path(file).resolve()
    os.chdir(path.parent)
    sys.path.insert(0, str(path.parent))
    sys.argv = [file]
    module = types.ModuleType(MODULE)
    module.__file__ = str(path)
    sys.modules[MODULE] = module
    # The path as given may be relative to a folder that we left: keep the lines for tracebacks and inspect.
    for name in {file, str(path)}:
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, file, "exec"), module.__dict__)
    if not callable(getattr(module, "ModelNew", None)):
        raise MissingModelNew(f"{file} defines no ModelNew, the module that is to replace the problem's Model")
    return module
