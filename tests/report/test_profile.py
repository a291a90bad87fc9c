"""A profile on the screen and as JSON, from the recording of an H200."""

from __future__ import annotations

import dataclasses
import importlib.resources
import io
import json
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from kernelwright.measure.limits import limit
from kernelwright.measure.records import Ceiling, Ceilings, Work
from kernelwright.profile.metrics import BY_COLUMN, FMA_PIPE, SAMPLES, TENSOR_PIPE
from kernelwright.profile.pages import kernels
from kernelwright.profile.reasons import reasons
from kernelwright.profile.records import Profile
from kernelwright.profile.roofline import points
from kernelwright.profile.trace import forward_us, shares, table
from kernelwright.records import DeviceFact, from_json, to_json
from kernelwright.report.profile import render_profile

pytestmark = pytest.mark.tiny

RECORDED = Path(__file__).parents[1] / "profile" / "recorded"
PASSES = [[("copy_strided(float const*, float*, int)", 9.0), ("void other<int>(int)", 91.0)]]


@pytest.fixture(scope="module")
def made() -> Profile:
    raw, sass, source, text = (
        (RECORDED / name).read_text(encoding="utf-8") for name in ("raw.csv", "sass.csv", "source.csv", "kernels.cu")
    )
    counted = kernels(raw, sass, source, candidate_file="kernels.cu", candidate_text=text)[1:2]
    ceilings = Ceilings("NVIDIA H200", "580", 60 << 20, {"read": Ceiling("read", "GB/s", 4600.0, None, "test")})
    traced = table(PASSES)
    found = shares(traced, {one.kernel: 1.0 for one in counted})
    return Profile(
        problem="problem.py",
        candidate="kernels.cu",
        device=DeviceFact("cuda", "NVIDIA H200", "9.0"),
        counted_by="ncu",
        kernels=counted,
        trace=traced,
        forward_us=forward_us(PASSES),
        reasons=reasons(counted, ceilings, found),
        points=points(counted, found),
        ceilings=ceilings,
        notes=("the rest",),
    )


def test_the_screen_has_the_reason_its_line_and_the_figures(made: Profile) -> None:
    stream = io.StringIO()
    render_profile(made, Console(file=stream, width=200, highlight=False, emoji=False, markup=False))
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert lines[:2] == [
        "PROFILE  kernels.cu",
        "         against problem.py on NVIDIA H200, counters by ncu; 0.00 s",
    ]
    assert "  1. 82 % of the stall samples are warps at kernels.cu:11 that wait for global or local memory;" in lines[3]
    assert lines[4] == "     11 | if (i < n) out[i] = in[j];"
    text = "\n".join(lines)
    assert "forward      0.1 ms of kernels in one forward pass (PyTorch's profiler, warm caches)" in text
    assert "              91.0 %  91 us  other" in text
    assert "copy_strided: 9.86 us with cold caches; 4.003 MiB read and 0 B written at 426 GB/s, 9.3 % of the" in text
    assert "counters     copy_strided<<<(4096,1,1), (256,1,1)>>>, counted: SASS, by ncu" in text
    assert "samples       85.0 %  kernels.cu:11  97 % of them wait for global or local memory" in text
    assert "not checked  the rest" in text


def test_long_names_are_whole_over_their_counters_and_cut_in_sentences(made: Profile) -> None:
    name = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_execute_kernel__5x_cublas"
    (own,) = made.kernels
    long = dataclasses.replace(own, kernel=name, metrics={**own.metrics, FMA_PIPE: 79.0, TENSOR_PIPE: 3.0})
    reason = dataclasses.replace(made.reasons[0], kernel=name)
    stream = io.StringIO()
    both = dataclasses.replace(made, kernels=(own, long), reasons=(reason,), sets={"N": "8"})
    render_profile(both, Console(file=stream, width=200, highlight=False, emoji=False, markup=False))
    text = stream.getvalue()
    assert "  1. sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tiles…: 82 % of the stall samples" in text
    assert text.count(name) == 1
    assert f"counters     {name}<<<" in text
    assert "pipes busy: FMA 79 %;" in text
    assert "against problem.py, N=8 on NVIDIA H200" in text


def test_a_kernel_without_lines_has_its_stalls_as_a_whole(made: Profile) -> None:
    (own,) = made.kernels
    metrics = {SAMPLES: 1000.0, BY_COLUMN["stall_selected"].metric: 456.0, BY_COLUMN["stall_math"].metric: 6.0}
    metrics[BY_COLUMN["stall_barrier"].metric] = 34.0
    bare = dataclasses.replace(own, lines=(), metrics=metrics)
    stream = io.StringIO()
    render_profile(
        dataclasses.replace(made, kernels=(bare,)),
        Console(file=stream, width=200, highlight=False, emoji=False, markup=False),
    )
    text = stream.getvalue()
    assert "samples       45.6 %  issue\n               3.4 %  wait at a barrier\n" in text
    assert "arithmetic pipe" not in text


def test_the_limit_stands_beside_what_the_pass_reaches(made: Profile) -> None:
    work = Work(8_388_608, 0)
    ceilings = Ceilings(
        "NVIDIA H200", "580", 60 << 20,
        {name: Ceiling(name, "GB/s", 4600.0, None, "test") for name in ("read", "write")},
    )  # fmt: skip
    stream = io.StringIO()
    limited = dataclasses.replace(made, work=work, limit=limit(work, ceilings, {"forward": 0.01}))
    render_profile(limited, Console(file=stream, width=200, highlight=False, emoji=False, markup=False))
    assert (
        "limit        1.82 us by memory traffic (measured ceilings), for 8 MiB in and 0 B out; these kernels reach "
        "18.2 % of that speed" in stream.getvalue()
    )


def test_the_json_follows_its_schema_and_comes_back(made: Profile) -> None:
    text = importlib.resources.files("kernelwright").joinpath("schema/profile-1.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    value = json.loads(json.dumps(to_json(made), allow_nan=False))
    jsonschema.Draft202012Validator(schema).validate(value)
    assert from_json(Profile, value) == made
