"""Writes ``tests/emulate/instructions``: ``python tests/emulate/reference``; with ``--check`` only compares.

Why: a case file is never edited by hand, so that its expected bits always have a derivation one can read.
"""

from __future__ import annotations

import importlib
import sys

from case import DRAFTS, FOLDER, texts

MODULES = (
    "integer_cases", "float_cases", "approximate_cases", "convert_cases", "memory_cases", "warp_cases", "control_cases",
    "async_cases",
    "video_cases",
    "matrix_cases",
)  # fmt: skip
for module in MODULES:
    importlib.import_module(module).all_cases()

wanted = {name: text for draft in DRAFTS for name, text in texts(draft).items()}
present = {path.name: path for pattern in ("*.ptx", "*.json") for path in FOLDER.glob(pattern)}
changed = sorted(n for n, text in wanted.items() if n not in present or present[n].read_text() != text)
stale = sorted(present.keys() - wanted.keys())
if "--check" not in sys.argv[1:]:
    FOLDER.mkdir(exist_ok=True)
    for name in changed:
        (FOLDER / name).write_text(wanted[name])
    for name in stale:
        present[name].unlink()
print(f"{len(DRAFTS)} cases, {len(changed)} files changed, {len(stale)} stale")
sys.exit("--check" in sys.argv[1:] and bool(changed or stale))
