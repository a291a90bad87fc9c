"""What the emulated device looks for, in the words that ``--checks`` takes.

The rule: addresses are always checked, because a bad one would reach our own process's memory; what is left out is said
in the verdict.
"""

from __future__ import annotations

LEFT_OUT = {
    "all": "",
    "memory": "races, and reads of shared memory that nobody wrote (--checks memory)",
}
"""Each word, and what it leaves unchecked."""
CHECKS = tuple(LEFT_OUT)


def watches_races(checks: str) -> bool:
    """Whether the emulated device keeps account of who accessed what, in shared and in global memory."""
    return not LEFT_OUT[checks]
