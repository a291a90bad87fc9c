"""How a module is linked: with the process's own C++ library, whatever the compiler would take by itself."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.build import link, toolchain
from kernelwright.build.extension import Extension
from kernelwright.emulate import nativebuild
from kernelwright.errors import MachineError

CODE = """#include <sstream>
#include <string>
std::string told(unsigned long n) { std::ostringstream out; out << n; return out.str(); }
"""
NUMBERS_INTO_STREAMS = "_ZNSo9_M_insertImEERSoT_"
"""``std::ostream::_M_insert<unsigned long>``, of the C++ library."""


@pytest.fixture
def static_compiler(tmp_path: Path) -> Path:
    """A g++ whose shared objects get a C++ library of their own, as on one machine with an H200."""
    real, wrapper = shutil.which("g++"), tmp_path / "g++"
    if real is None:
        pytest.skip("no g++")
    wrapper.write_text(
        f'#!/bin/sh\ncase " $* " in *" -shared "*) set -- "$@" -static-libstdc++;; esac\nexec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    return wrapper


def defined(module: Path) -> set[str]:
    answer = subprocess.run(["nm", "-D", "--defined-only", str(module)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in answer.stdout.splitlines()}


def test_the_compiler_by_itself_gives_a_module_a_library_of_its_own(static_compiler: Path, tmp_path: Path) -> None:
    (tmp_path / "told.cpp").write_text(CODE)
    command = [str(static_compiler), "-shared", "-fPIC", str(tmp_path / "told.cpp"), "-o", str(tmp_path / "told.so")]
    subprocess.run(command, check=True)
    assert NUMBERS_INTO_STREAMS in defined(tmp_path / "told.so")


def test_an_extension_takes_the_processs_library(static_compiler: Path, tmp_path: Path) -> None:
    try:
        chain = replace(toolchain.find(), host=static_compiler)
    except MachineError as error:
        pytest.skip(f"{error}; {error.hint}")
    (tmp_path / "told.cpp").write_text(CODE)
    command = [str(static_compiler), "-fPIC", "-c", str(tmp_path / "told.cpp"), "-o", str(tmp_path / "told.o")]
    subprocess.run(command, check=True)
    link.shared(Extension("told", ()), chain, [tmp_path / "told.o"], tmp_path / "told.so", libraries=())
    assert any("told" in symbol for symbol in defined(tmp_path / "told.so"))
    assert NUMBERS_INTO_STREAMS not in defined(tmp_path / "told.so")


def test_a_native_part_takes_the_processs_library(
    static_compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nativebuild, "compiler", lambda language: (str(static_compiler), "g++"))
    (tmp_path / "told.cpp").write_text(CODE)
    made = nativebuild.build_shared("told", [tmp_path / "told.cpp"])
    assert any("told" in symbol for symbol in defined(made))
    assert NUMBERS_INTO_STREAMS not in defined(made)
