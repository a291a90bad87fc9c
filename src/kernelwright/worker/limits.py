"""What a worker process may take of the machine, and how its end is tied to ours.

Why: a candidate that allocates 100 GB must end in a verdict, not in the machine's out-of-memory killer, and nothing
that it started may outlive the check. The rule: limits are set in the child between fork and foreign code, and are
relative to what the child already had, so that they bound the candidate alone. No torch here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Be killed when the parent ends, however it ends (prctl(2), PR_SET_PDEATHSIG)."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ended, so that they can be found and ended."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def first_for_the_oom_killer() -> None:
    """Should memory run out all the same, lose this process before anything else of the user's."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def limit_data(extra_bytes: int) -> None:
    """Let private writable memory grow by ``extra_bytes`` from here; past that, allocations fail (RLIMIT_DATA)."""
    limit = status_bytes(os.getpid()).get("VmData", 0) + extra_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def raise_data(extra_bytes: int) -> None:
    """Let private memory grow by ``extra_bytes`` more: mapped inputs are not the candidate's own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft != resource.RLIM_INFINITY:
        limit = soft + extra_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def no_core_file() -> None:
    """A crash is told in words; a core file of gigabytes would be left behind."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def status_bytes(pid: int) -> dict[str, int]:
    """The memory lines of /proc/<pid>/status in bytes; empty where the process is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            found[name] = int(value[:-3]) * 1024
    return found


def descendants(pid: int) -> list[int]:
    """Processes below ``pid``, parents first."""
    found: list[int] = []
    pending = [pid]
    while pending:
        parent = pending.pop(0)
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                children = [int(word) for word in (task / "children").read_text().split()]
                found += children
                pending += children
        except OSError:
            continue
    return found


def private_bytes(pid: int) -> int:
    """Memory that belongs to ``pid`` and its descendants alone: resident and swapped anonymous pages."""
    total = 0
    for process in (pid, *descendants(pid)):
        status = status_bytes(process)
        total += status.get("RssAnon", 0) + status.get("VmSwap", 0)
    return total


def available_bytes() -> int:
    """Memory that can be had now: MemAvailable, or less where a control group allows less."""
    amount = 1 << 62
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                amount = int(line.split()[1]) * 1024
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):
            amount = min(amount, max(0, int(Path(limit).read_text()) - int(Path(used).read_text())))
    return amount


def default_memory_bytes() -> int:
    """What a candidate may take where nobody said: three quarters of what is available."""
    return available_bytes() * 3 // 4
