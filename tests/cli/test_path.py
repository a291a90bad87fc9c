"""Tools installed beside the command are found, and a PATH that leads nowhere stays as it is."""

import os
import sys
from pathlib import Path

import pytest

from kernelwright.cli.main import own_tools_on_path

pytestmark = pytest.mark.tiny
OWN = str(Path(sys.executable).parent)


def test_the_own_folder_comes_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    own_tools_on_path()
    own_tools_on_path()
    assert os.environ["PATH"] == f"{tmp_path}{os.pathsep}{OWN}"


def test_a_path_that_leads_nowhere_is_left_for_the_build_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    own_tools_on_path()
    assert os.environ["PATH"] == "/nonexistent"
