"""The tables of measured choices: what ships is usable where it claims, and this machine's own goes first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.device.specs import spec
from kernelwright.gallery import _tables
from kernelwright.gallery.kernels import linear, matvec, softmax

pytestmark = pytest.mark.tiny


@pytest.mark.parametrize("table", _tables.shipped(), ids=lambda table: table["device"])
def test_every_row_of_a_shipped_table_names_a_plan_of_its_shape(table: dict) -> None:
    facts = spec(table["device"])
    sms, hopper = facts.multiprocessors, facts.compute_capability == (9, 0)
    for row in table["kernels"]["matvec"]:
        itemsize, transposed, M, K = row["at"]
        aligned = (M if transposed else K) * itemsize % 16 == 0
        assert row["recipe"] in matvec.recipes(M, K, itemsize, aligned, transposed, sms, hopper), row
    for row in table["kernels"]["softmax"]:
        itemsize, gelu, M, N = row["at"]
        aligned = softmax.ROWS if N * itemsize % 16 == 0 else softmax.WHOLE
        assert row["recipe"] in softmax.recipes(M, N, itemsize, aligned, hopper, not gelu), row
    for row in table["kernels"]["linear"]:
        assert row["recipe"] in linear.recipes(*row["at"], sms, hopper), row


def test_a_table_that_nobody_measured_says_so_and_holds_no_times() -> None:
    told = {table["device"]: table["measured"] for table in _tables.shipped()}
    assert told == {"NVIDIA H200": True, "H100": False, "A100": False}
    for table in _tables.shipped():
        rows = [row for rows in table["kernels"].values() for row in rows]
        assert rows and all(("us" in row) == table["measured"] for row in rows) and table["how"]


@pytest.fixture(autouse=True)
def installed() -> None:
    _tables.install()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))

    def write(driver: str, at: list, recipe: str) -> None:
        path = _tables.own_file("NVIDIA H200", driver)
        path.parent.mkdir(parents=True, exist_ok=True)
        row = {"at": at, "recipe": recipe, "us": {recipe: 1.0}}
        table = {"schema": _tables.SCHEMA, "device": "NVIDIA H200", "driver": driver, "measured": True, "how": "",
                 "kernels": {"softmax": [row]}}  # fmt: skip
        path.write_text(json.dumps(table))
        _tables.reinstall()

    yield write
    monkeypatch.undo()
    _tables.reinstall()


def test_this_machines_table_goes_before_the_shipped_one_and_leaves_its_other_rows(own) -> None:
    shipped = softmax.TUNED["NVIDIA H200"]
    own(_tables.driver(), [4, False, 16384, 8192], "stream 1024 1")
    rows = softmax.TUNED["NVIDIA H200"]
    assert rows[0] == (4, False, 16384, 8192, "stream 1024 1") and len(rows) == len(shipped)
    assert softmax.choose(16384, 8192, 4, softmax.ROWS, True, device="NVIDIA H200").variant == softmax.STREAM


def test_a_table_of_another_driver_is_not_taken(own) -> None:
    shipped = softmax.TUNED["NVIDIA H200"]
    own("1.2.3", [4, False, 16384, 8192], "stream 1024 1")
    assert softmax.TUNED["NVIDIA H200"] == shipped
