"""Native parts are compiled once for one content, in one piece, and say what is wrong where they cannot be."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelwright.emulate import nativebuild
from kernelwright.errors import MachineError, MissingTool

pytestmark = pytest.mark.emu


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def source(tmp_path: Path, value: int) -> Path:
    path = tmp_path / "answer.c"
    path.write_text(f'#include "answer.h"\nint answer(void) {{ return {value} + ADDED; }}\n')
    (tmp_path / "answer.h").write_text("#define ADDED 0\n")
    return path


def answer(path: Path) -> int:
    return int(ctypes.CDLL(str(path)).answer())


def test_same_content_is_the_same_file(tmp_path: Path) -> None:
    first = nativebuild.build_shared("answer", [source(tmp_path, 3)], language="c")
    stamp = first.stat().st_mtime_ns
    assert nativebuild.build_shared("answer", [source(tmp_path, 3)], language="c") == first
    assert first.stat().st_mtime_ns == stamp
    assert answer(first) == 3


@pytest.mark.parametrize("what", ["source", "header", "flag", "salt"])
def test_anything_that_matters_makes_another_file(tmp_path: Path, what: str) -> None:
    first = nativebuild.build_shared("answer", [source(tmp_path, 3)], language="c")
    again = source(tmp_path, 4 if what == "source" else 3)
    if what == "header":
        (tmp_path / "answer.h").write_text("#define ADDED 1\n")
    second = nativebuild.build_shared(
        "answer", [again], language="c", flags=["-O1"] if what == "flag" else [], salt="x" if what == "salt" else ""
    )
    assert second != first
    assert answer(second) == (4 if what in ("source", "header") else 3)


def test_many_at_once_get_one_file(tmp_path: Path, own_cache: Path) -> None:
    path = source(tmp_path, 5)
    code = (
        "import sys; from pathlib import Path; from kernelwright.emulate import nativebuild as n;"
        f"print(n.build_shared('answer', [Path({str(path)!r})], language='c'))"
    )
    with ThreadPoolExecutor(4) as pool:
        run = lambda _: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout  # noqa: E731
        answers = set(pool.map(run, range(4)))
    assert len(answers) == 1
    assert answer(Path(answers.pop().strip())) == 5
    assert not list((own_cache / "native").glob(".making-*"))


def test_failed_compile_says_the_first_errors_and_leaves_nothing(tmp_path: Path, own_cache: Path) -> None:
    path = source(tmp_path, 3)
    path.write_text("int answer(void) { return missing; }\n")
    with pytest.raises(MachineError, match="missing") as caught:
        nativebuild.build_shared("answer", [path], language="c")
    assert str(path) in caught.value.hint
    assert not list((own_cache / "native").glob("*/*.so"))


def test_missing_compiler_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nativebuild.compiler.cache_clear()
    monkeypatch.setenv("CC", "no-such-compiler")
    try:
        with pytest.raises(MissingTool, match="no-such-compiler") as caught:
            nativebuild.build_shared("answer", [source(tmp_path, 3)], language="c")
        assert "CC" in caught.value.hint
    finally:
        nativebuild.compiler.cache_clear()


def test_a_broken_path_does_not_keep_our_parts_from_being_compiled(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nativebuild.compiler.cache_clear()
    monkeypatch.setenv("PATH", "/nonexistent")
    try:
        assert answer(nativebuild.build_shared("answer", [source(tmp_path, 7)], language="c")) == 7
    finally:
        nativebuild.compiler.cache_clear()


def test_archive_holds_every_object(tmp_path: Path) -> None:
    other = tmp_path / "other.c"
    other.write_text("int other(void) { return 1; }\n")
    archive = nativebuild.build_archive("both", [source(tmp_path, 3), other], language="c")
    members = subprocess.run(["ar", "t", str(archive)], capture_output=True, text=True, check=True).stdout.split()
    assert members == ["answer.o", "other.o"]
