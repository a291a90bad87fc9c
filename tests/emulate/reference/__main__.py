"""Writes ``tests/emulate/instructions``: ``python tests/emulate/reference``."""

from __future__ import annotations

import importlib

from case import DRAFTS, FOLDER, write

for module in ("integer_cases", "float_cases", "convert_cases", "memory_cases", "warp_cases", "control_cases"):
    importlib.import_module(module).all_cases()
for stale in [*FOLDER.glob("*.ptx"), *FOLDER.glob("*.json")]:
    stale.unlink()
for draft in DRAFTS:
    write(draft)
print(f"{len(DRAFTS)} cases")
