"""The store: one maker for each entry, whatever number of processes ask; failures leave nothing."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from kernelwright.build import cache

pytestmark = pytest.mark.tiny


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    return tmp_path


def _append(folder: Path, log: str) -> None:
    with open(log, "a") as file:  # noqa: PTH123  (appends are atomic this short)
        file.write(f"{os.getpid()}\n")
    (folder / "content").write_text("made")


def _ask(log: str) -> None:
    entry, _ = cache.obtain("kind", "name", lambda folder: _append(folder, log))
    assert (entry / "content").read_text() == "made"


def test_many_processes_make_an_entry_once(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(_ask, [log] * 16)
    assert len(Path(log).read_text().splitlines()) == 1


def test_a_failed_make_leaves_no_entry() -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cache.obtain("kind", "bad", fail)
    assert cache.lookup("kind", "bad") is None
    assert not list((cache.root() / "kind").glob(".making-*"))


def test_a_second_ask_says_that_it_was_there() -> None:
    assert cache.obtain("kind", "twice", lambda folder: None)[1] is False
    assert cache.obtain("kind", "twice", lambda folder: None)[1] is True


def test_an_entry_whose_other_is_gone_is_made_anew_and_both_count_as_used(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        made, _ = cache.obtain("prefix", "one", lambda inner: None)
        (folder / "other").write_text(made.name)

    def other(entry: Path) -> tuple[str, str]:
        return "prefix", (entry / "other").read_text()

    def ask() -> bool:
        return cache.obtain("kind", "leaning", make, leans_on=other)[1]

    assert (ask(), ask()) == (False, True)
    os.utime(cache.root() / "prefix" / "one", (0, 0))
    assert ask() is True
    assert (cache.root() / "prefix" / "one").stat().st_mtime > 0
    (cache.root() / "prefix" / "one").rmdir()
    assert (ask(), ask()) == (False, True)
    assert (cache.root() / "prefix" / "one").is_dir()


def test_digests_see_the_borders_of_their_parts() -> None:
    assert cache.digest("ab", "c") != cache.digest("a", "bc")
    assert len(cache.placeholder(3)) == len(cache.digest("x"))
