"""compute-sanitizer's four tools over a candidate on a GPU, and the emulated device where the GPU does not say why.

Why: a GPU stops at a bad access without a word about where, and tolerates races. The rule: everything that is found
is a :class:`kernelwright.records.Finding` with its witness, so that ``explain`` names causes from it as from the
emulated device's own; a tool that could not run is "not checked", with the reason.
"""

from __future__ import annotations

from kernelwright.sanitize.question import Question, Sanitized, crashed, seen_by_the_device_only
from kernelwright.sanitize.stage import sanitize

__all__ = ["Question", "Sanitized", "crashed", "sanitize", "seen_by_the_device_only"]
