"""The cache stays under its limit, the oldest use goes first, and nothing in use goes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright import eviction, settings
from kernelwright.build import cache

NOW = 2_000_000_000.0
HOUR = 3600.0
MIB = 2**20
Make = Callable[[str, float, int], Path]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes an entry of some MiB, last used so many hours ago."""
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))

    def make(name: str, hours: float, size: int) -> Path:
        entry = tmp_path / name
        entry.parent.mkdir(parents=True, exist_ok=True)
        file = entry if entry.suffix else entry / "product.so"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(os.urandom(size * MIB))
        os.utime(entry, (NOW - hours * HOUR, NOW - hours * HOUR))
        return entry

    return make


@pytest.mark.tiny
def test_what_was_not_used_for_longest_goes_until_four_fifths_of_the_limit_are_held(made: Make) -> None:
    oldest, older = made("build/prefix/a", 50, 4), made("kernels/0f/b.o", 40, 4)
    newer, newest = made("native/c", 30, 4), made("build/object/d", 20, 4)
    done = eviction.evict(limit=12 * MIB, now=NOW)
    assert (oldest.exists(), older.exists(), newer.exists(), newest.exists()) == (False, False, True, True)
    assert done.entries == 2
    assert 8 * MIB <= done.freed < 8.1 * MIB
    assert 16 * MIB <= done.held < 16.1 * MIB


@pytest.mark.tiny
def test_a_cache_below_its_limit_keeps_everything_but_what_a_killed_build_left(made: Make) -> None:
    kept, scratch = made("build/object/a", 900, 1), made("build/object/.making-x", 900, 1)
    under_way = made("build/object/.making-y", 0.5, 1)
    eviction.evict(limit=100 * MIB, now=NOW)
    assert (kept.exists(), scratch.exists(), under_way.exists()) == (True, False, True)


@pytest.mark.tiny
def test_what_was_used_within_the_hour_stays_even_above_the_limit(made: Make) -> None:
    entry = made("build/object/a", 0.9, 3)
    assert eviction.evict(limit=MIB, now=NOW).entries == 0
    assert entry.exists()
    assert eviction.evict(limit=MIB, now=NOW + HOUR).entries == 1
    assert not entry.exists()


@pytest.mark.tiny
def test_locks_and_measured_ceilings_are_no_entries(made: Make) -> None:
    lock, ceilings = made("build/object/.a.lock", 900, 2), made("ceilings/h200.json", 900, 2)
    assert eviction.evict(limit=MIB, now=NOW) == eviction.Evicted(held=0, freed=0, entries=0)
    assert lock.exists()
    assert ceilings.exists()


@pytest.mark.tiny
def test_taking_an_entry_counts_as_its_use(made: Make) -> None:
    entry = made("build/object/a", 900, 1)
    assert cache.lookup("object", "a") == entry
    assert eviction.evict(limit=1, now=entry.stat().st_mtime + HOUR - 1).entries == 0
    os.utime(entry, (NOW, NOW))
    assert cache.obtain("object", "a", lambda folder: None) == (entry, True)
    assert entry.stat().st_mtime != NOW
    assert cache.lookup("object", "b") is None


@pytest.mark.tiny
def test_the_limit_is_a_setting_and_the_look_is_taken_once_in_ten_minutes(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_CACHE_LIMIT", "1M")
    first = made("build/object/a", 400_000, 2)
    eviction.evict_sometimes()
    assert not first.exists()
    second = made("build/object/b", 400_000, 2)
    eviction.evict_sometimes()
    assert second.exists()
    stamp = settings.cache_folder() / ".evicted"
    os.utime(stamp, (NOW - 900_000 * HOUR, NOW - 900_000 * HOUR))
    eviction.evict_sometimes()
    assert not second.exists()
