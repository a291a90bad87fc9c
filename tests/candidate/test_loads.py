"""What a candidate will build is read off its text, and only where constants decide it."""

import pytest

from kernelwright.candidate.loads import loads

pytestmark = pytest.mark.tiny


def test_names_joins_formats_and_lists_are_followed() -> None:
    text = '''
from torch.utils.cpp_extension import load_inline
import textwrap
N = 4
HEAD = "#define N %d" % N
BODY = textwrap.dedent("""
    void f();
""")
SOURCE = HEAD + "\\n".join(["", "int a;", f"int b[{N}];"]) + "{x}".format(x=BODY.strip())
ext = load_inline("name", [BODY], cuda_sources=SOURCE, functions=["f"], extra_cuda_cflags=["-O3", "-DN=" + "4"])
'''
    (load,) = loads(text)
    assert (load.function, load.line, load.positional) == ("load_inline", 10, ("name", ["\nvoid f();\n"]))
    assert load.keywords == {
        "cuda_sources": "#define N 4\nint a;\nint b[4];void f();",
        "functions": ["f"],
        "extra_cuda_cflags": ["-O3", "-DN=4"],
    }


@pytest.mark.parametrize(
    "argument",
    ["open('x').read()", "SOURCE", "f'{compute()}'", "'a' * 3", "HIDDEN", "'%d' % 'x'", "*['a']"],
)
def test_what_constants_do_not_decide_is_left_out(argument: str) -> None:
    text = f"SOURCE = 'a'\nSOURCE = 'b'\nimport x as HIDDEN\nload_inline({argument}, cpp_sources='')\n"
    assert loads(text) == []


def test_a_call_with_unknown_keywords_is_left_out() -> None:
    assert loads("load_inline(name='a', cpp_sources='', **more)") == []


def test_text_that_is_no_python_has_no_loads() -> None:
    assert loads("def (") == []
