"""Where a source string's lines stand in the candidate: literals, escapes, joins, templates."""

from __future__ import annotations

import ast
import textwrap

import pytest

from kernelwright.build.lines import LineMap

pytestmark = pytest.mark.tiny


def located(text: str, expression: str) -> list[int]:
    """The places of the lines of ``expression``, evaluated with the names that ``text`` assigns."""
    text = textwrap.dedent(text).lstrip("\n")
    names: dict[str, object] = {}
    exec(text, names)
    return LineMap(text, "some/candidate.py").locate(str(eval(expression, names)))


def test_lines_of_a_raw_literal_stand_where_they_are_written() -> None:
    assert located('x = 1\nsrc = r"""\nint a;\nint b;\n"""\n', "src") == [2, 3, 4, 5]


def test_escaped_line_breaks_keep_their_physical_line() -> None:
    assert located('src = "int a;\\nint b;\\n"\n', "src") == [1, 1, 1]


def test_a_continued_line_starts_where_its_first_part_stands() -> None:
    assert located('src = """int a \\\n= 1;\nint b;"""\n', "src") == [1, 3]


def test_adjacent_literals_are_one_source() -> None:
    assert located('src = (\n  "int a;\\n"\n  "int b;\\n"\n)\n', "src") == [2, 3, 3]


def test_joined_lines_are_found_one_by_one() -> None:
    assert located('src = "\\n".join([\n  "int first;",\n  "int second;",\n])\n', "src") == [2, 3]


def test_a_concatenation_is_mapped_piece_by_piece() -> None:
    text = 'a = """int first;\nint second;\n"""\nb = """int third;\nint fourth;\n"""\n'
    assert located(text, "a + b") == [1, 2, 4, 5, 6]


def test_a_replaced_line_is_mapped_by_its_neighbours() -> None:
    text = 'src = """\nint first;\nint tile = TILE;\nint last;\n"""\n'
    assert located(text, 'src.replace("TILE", "16")') == [1, 2, 3, 4, 5]


def test_a_format_string_keeps_its_lines() -> None:
    text = 'n = 4\nsrc = f"""\nvoid f() {{\n  int a[{n}];\n}}\n"""\n'
    assert located(text, "src") == [2, 3, 4, 5, 6]


def test_format_strings_beside_other_strings_and_around_others_are_read_as_written() -> None:
    text = (
        'n = 4\nsrc = (\n  "int a;\\n"\n  f"struct B {{}};\\n"\n  rf"""int {f"c{n}"};\nint d;\n""")\nlast = "int e;"\n'
    )
    # A line that holds another value than it is written with, between two literals, stands nowhere.
    assert located(text, "src") == [3, 4, 0, 6, 7]
    assert located(text, "last") == [8]


def test_a_line_that_stands_nowhere_is_left_in_the_generated_file() -> None:
    assert located('src = "int a;"\n', '"int other_thing;"') == [0]


def test_markers_appear_only_where_lines_do_not_follow_one_another() -> None:
    text = 'src = """\nint first;\nint second;\n"""\n'
    source = ast.literal_eval(text.split("=", 1)[1].strip())
    assert LineMap(text, "x/candidate.py").marked(source, fallback="cuda.cu", start=4) == (
        '#line 1 "candidate.py"\n\nint first;\nint second;\n'
    )


def test_no_marker_breaks_a_continued_macro() -> None:
    text = 'src = r"""\n#define F(x) \\\n  g(x)\n"""\n'
    source = ast.literal_eval(text.split("=", 1)[1].strip())
    marked = LineMap(text, "candidate.py").marked(source, fallback="cuda.cu")
    assert "\\\n  g(x)" in marked
