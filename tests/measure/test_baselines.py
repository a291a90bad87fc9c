"""Which baselines run, and how compiled ones are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelwright.cli.check import BASELINES as FLAGS
from kernelwright.measure.baselines import BASELINES, TABLE, Kept, Store, chosen, key, made

pytestmark = pytest.mark.tiny


def test_eager_always_runs_and_comes_first() -> None:
    assert [b.name for b in chosen(["max-autotune", "tf32"])] == ["eager", "tf32", "max-autotune"]
    assert [b.name for b in chosen([])] == ["eager"]
    with pytest.raises(KeyError):
        chosen(["fastest"])


def test_the_flag_takes_exactly_what_the_table_has() -> None:
    assert tuple(baseline.name for baseline in BASELINES) == FLAGS


def test_only_tf32_may_round_and_only_compiled_ones_are_kept() -> None:
    assert [b.name for b in BASELINES if b.tf32] == ["tf32"]
    assert [b.name for b in BASELINES if b.keep] == ["compile", "max-autotune"]
    model = object()
    assert made(TABLE["tf32"], model) is model


def test_a_kept_baseline_comes_back_for_the_same_key_only(tmp_path: Path) -> None:
    kept = Kept((2.0, 2.1), (1.0, 1.05))
    Store("problem", "H200", "580", folder=lambda: tmp_path).save(TABLE["compile"], kept)
    assert Store("problem", "H200", "580", folder=lambda: tmp_path).load(TABLE["compile"]) == kept
    assert Store("problem", "H200", "581", folder=lambda: tmp_path).load(TABLE["compile"]) is None
    assert Store("problem", "H200", "580", folder=lambda: tmp_path).load(TABLE["max-autotune"]) is None


def test_each_part_of_the_key_names_an_entry_of_its_own(tmp_path: Path) -> None:
    parts: dict[str, Any] = {
        "problem_text": "class Model: ...",
        "sets": {"N": "8"},
        "device": "NVIDIA H200",
        "driver": "580.1",
        "versions": {"torch": "2.11", "cuda": "13.0", "cudnn": "91002", "triton": "3.5"},
    }
    kept = Kept((2.0, 2.1), (1.0, 1.1))
    compiled = TABLE["compile"]
    Store(*key(**parts), folder=lambda: tmp_path).save(compiled, kept)
    assert Store(*key(**parts), folder=lambda: tmp_path).load(compiled) == kept
    others: list[dict[str, Any]] = [
        {"problem_text": "class Model: pass"},
        {"sets": {"N": "9"}},
        {"device": "NVIDIA H100"},
        {"driver": "581.0"},
        *({"versions": {**parts["versions"], name: "other"}} for name in parts["versions"]),
    ]
    for change in others:
        assert Store(*key(**{**parts, **change}), folder=lambda: tmp_path).load(compiled) is None
    assert Store(*key(**parts), folder=lambda: tmp_path).load(TABLE["max-autotune"]) is None


def test_a_damaged_entry_is_as_good_as_none(tmp_path: Path) -> None:
    store = Store("problem", folder=lambda: tmp_path)
    store.save(TABLE["compile"], Kept((2.0, 2.1), (1.0, 1.05)))
    (path,) = (tmp_path / "baselines").iterdir()
    for text in ("{", "[]", json.dumps({"eager_ms": [1.0], "baseline_ms": [1.0, 2.0]})):
        path.write_text(text)
        assert store.load(TABLE["compile"]) is None
