"""What ``export`` writes must stand alone: one file, no import of ours, one ModelNew, nothing lost on the way."""

from __future__ import annotations

import ast
import re
import sys

import pytest

from kernelwright import gallery
from kernelwright.errors import EXIT_USAGE
from kernelwright.gallery import _export

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize("name", gallery.names())
def test_an_exported_kernel_imports_only_python_and_torch(name: str) -> None:
    tree = ast.parse(gallery.export(name))
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {module.split(".")[0] for module in modules} <= {*sys.stdlib_module_names, "torch"}


@pytest.mark.parametrize("name", gallery.names())
def test_an_exported_kernel_defines_each_name_once_and_every_name_it_uses(name: str) -> None:
    tree = ast.parse(gallery.export(name))
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert len(defined) == len(set(defined)) and "ModelNew" in defined
    assigned = {
        leaf.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        for leaf in ast.walk(target)
        if isinstance(leaf, ast.Name)
    }
    wanted = {"extension", "hopper_flags", "choose", "CUDA_SOURCE", "CPP_SOURCE"}
    assert wanted <= set(defined) | assigned


def test_the_fused_kernel_holds_both_parts_whole_and_renames_what_they_share() -> None:
    text = gallery.export("linear_gelu_softmax")
    for part in ("linear", "softmax"):
        cuda = re.search(r'CUDA_SOURCE = r"""(.*?)"""', (_export.FOLDER / f"{part}.py").read_text(), re.S)
        assert cuda is not None and cuda[1] in text
    assert "SOFTMAX_CUDA_SOURCE" in text and "softmax_extension().softmax(" in text and "SoftmaxPlan" in text
    assert "linear_kernel" not in text and "softmax_kernel" not in text


def test_names_are_replaced_where_they_stand_free_and_nowhere_else() -> None:
    text = "Plan = 1\nx.Plan = Plan  # Plan\ns = 'Plan'\nk.run(Plan)\n"
    assert (
        _export._renamed(text, {"Plan": "P"}, {("k", "run"): "run"})
        == "P = 1\nx.Plan = P  # Plan\ns = 'Plan'\nrun(P)\n"
    )


def test_an_unknown_kernel_is_told_with_those_there_are() -> None:
    with pytest.raises(gallery.UnknownKernel) as told:
        gallery.export("gemv")
    assert str(told.value) == "the gallery has no kernel 'gemv'" and told.value.exit_status == EXIT_USAGE
    assert told.value.hint == "it has: linear, linear_gelu_softmax, matvec, softmax"


def test_every_kernel_says_its_method_its_limits_and_where_its_figures_are() -> None:
    for name in gallery.names():
        text = gallery.describe(name)
        assert "docs/gallery.md" in text and len(text) > 300


def test_explain_answers_with_the_plan_of_the_asked_device() -> None:
    told = gallery.explain("linear_gelu_softmax", 1024, 8192, 8192, device="rtx4090").splitlines()
    assert told == [
        "split x, then portable: mma.sync, 128 x 128 tiles, K in 1 part",
        "  the rule: nothing near was measured on NVIDIA GeForce RTX 4090",
        "block: 512 threads a block, 1 block a row, 16-byte loads and stores",
        "  the rule: nothing near was measured on NVIDIA GeForce RTX 4090",
    ]
    assert gallery.explain("matvec", 2048, 1 << 20, device="rtx4090").startswith("direct: ")
    assert "ring" in gallery.explain("matvec", 2048, 1 << 20)
    assert "hopper: wgmma" in gallery.explain("linear", 1024, 8192, 8192)


def test_a_baked_table_stands_in_the_file() -> None:
    rows = {"linear": ((1024, 512, 512, "torch"),), "softmax": ((4, False, 64, 4096, "block 512"),)}
    text = _export.exported("linear_gelu_softmax", lambda kernel: {"NVIDIA X": rows[kernel]})
    held = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and "TUNED" in node.target.id:
            assert node.value is not None
            held[node.target.id] = ast.literal_eval(node.value)
    assert held == {"TUNED": {"NVIDIA X": rows["linear"]}, "SOFTMAX_TUNED": {"NVIDIA X": rows["softmax"]}}


def test_explain_refuses_a_shape_that_is_not_the_kernels() -> None:
    with pytest.raises(Exception, match="linear takes the shape M N K in float32, got 3 4 in float16"):
        gallery.explain("linear", 3, 4, dtype="float16")


def test_every_function_reaches_its_kernel() -> None:
    functions = gallery._torch_side()
    assert functions.__name__ == "kernelwright.gallery._operators"
    assert all(callable(getattr(functions, name)) for name in gallery.names())
