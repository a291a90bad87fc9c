"""The KernelBench layout, read without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.errors import MissingFile, ProblemError, UsageError
from kernelwright.problem.layout import outline

pytestmark = pytest.mark.tiny


def written(folder: Path, text: str) -> Path:
    path = folder / "problem.py"
    path.write_text(text)
    return path


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"problem .*nowhere\.py does not exist"):
        outline(tmp_path / "nowhere.py", {})


@pytest.mark.parametrize(("text", "name"), [("x = 1\n", "Model"), ("class Model: pass\n", "get_inputs")])
def test_what_a_problem_lacks_is_a_usage_error(tmp_path: Path, text: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"defines no {name}") as caught:
        outline(written(tmp_path, text), {})
    assert caught.value.exit_status == 2


def test_names_that_a_star_import_may_bring_are_left_to_the_run(tmp_path: Path) -> None:
    path = written(tmp_path, "from elsewhere import *\nN = 4\n")
    assert outline(path, {"N": "5"}).constants == {"N": "5"}


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="line 2"):
        outline(written(tmp_path, "x = 1\ndef f(:\n"), {})


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_bytes(b"\xff\xfe\x00x = 1")
    with pytest.raises(UsageError, match="no UTF-8 text"):
        outline(path, {})
