"""torch.compile sees the gallery's functions as whole operators, with their results' shapes, without a GPU."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright import gallery


def test_torch_compile_keeps_each_function_one_operator_and_knows_its_shape() -> None:
    graphs: list[Any] = []

    def backend(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(module)
        return lambda *given: tuple(
            torch.zeros(node.meta["example_value"].shape) for node in module.graph.output_node().args[0]
        )

    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            gallery.linear_gelu_softmax(x, w, b),
            gallery.linear(x, w, b, activation="relu", residual=x @ w.t()),
            gallery.matvec(x, x[0]),
            gallery.softmax(x, scale=0.5, activation="gelu"),
        )

    found = torch.compile(function, fullgraph=True, backend=backend)(
        torch.randn(4, 6), torch.randn(8, 6), torch.randn(8)
    )
    assert [tuple(y.shape) for y in found] == [(4, 8), (4, 8), (4,), (4, 6)]
    called = [str(node.target) for node in graphs[0].graph.nodes if "kernelwright" in str(node.target)]
    assert called == [f"kernelwright.{name}.default" for name in ("linear_gelu_softmax", "linear", "matvec", "softmax")]


def test_export_without_dynamo_finds_the_operators_too() -> None:
    class Layer(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return gallery.linear_gelu_softmax(x, w, b) + gallery.linear(x, w) + gallery.matvec(x, x[0]).unsqueeze(1)

    given = torch.randn(4, 6), torch.randn(8, 6), torch.randn(8)
    nodes = torch.export.export(Layer(), given, strict=False).graph.nodes
    called = [str(node.target) for node in nodes if "kernelwright" in str(node.target)]
    assert called == [f"kernelwright.{name}.default" for name in ("linear_gelu_softmax", "linear", "matvec")]
