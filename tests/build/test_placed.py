"""Texts apart from their lines: what is kept, and how assembly moves."""

from __future__ import annotations

import pytest

from kernelwright.build import placed

pytestmark = pytest.mark.tiny

TEXT = (
    '# 9 "candidate.py"\nvoid k() ;\n#if 0\n# 10\n{ body; }\n#endif\n'
    '# 14 "candidate.py"\nint f() { \n# 15\nreturn 1; }\n'
)


def test_markers_and_switched_off_bodies_leave_the_text() -> None:
    stripped, places = placed.separate(TEXT)
    assert stripped == "void k() ;\nint f() { \nreturn 1; }"
    assert places == [("candidate.py", 9), ("candidate.py", 14), ("candidate.py", 15)]


def test_another_body_is_the_same_text() -> None:
    other = (
        TEXT.replace("{ body; }", "{ more;\n# 11\nlines; }")
        .replace("# 14", "# 15")
        .replace("# 15\nreturn", "# 16\nreturn")
    )
    assert placed.separate(other)[0] == placed.separate(TEXT)[0]


def test_line_tables_move_with_their_source() -> None:
    assembly = '\t.file 1 "candidate.py"\n\t.file 2 "vector.h"\n\t.loc 1 14 3\n\tret\n\t.loc 2 14 1\n\t.loc 1 15 9\n'
    old = [("candidate.py", 14), ("candidate.py", 15)]
    new = [("candidate.py", 20), ("candidate.py", 22)]
    assert placed.moved(assembly, old, new) == (
        '\t.file 1 "candidate.py"\n\t.file 2 "vector.h"\n\t.loc 1 20 3\n\tret\n\t.loc 2 14 1\n\t.loc 1 22 9\n'
    )


def test_a_text_that_uses_line_numbers_is_not_moved() -> None:
    assert placed.names_lines("int a = __LINE__;")
    assert not placed.names_lines("int lines = 3;")


def test_markers_are_told_anew() -> None:
    old, new = [("candidate.py", 9), ("candidate.py", 14)], [("candidate.py", 9), ("candidate.py", 15)]
    assert '# 15 "candidate.py"\nint f' in placed.retold(TEXT, old, new)
