"""Every kind of torch operator on the emulated ``cuda:0`` gives what the CPU gives, on the device."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

PROGRAMS = Path(__file__).parent / "programs"

pytestmark = [pytest.mark.emu, pytest.mark.timeout(600)]


def _program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("device_ops", PROGRAMS / "device_ops.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NAMES = tuple(_program().cases())


def test_the_list_is_broad() -> None:
    assert len(NAMES) >= 200


@pytest.mark.parametrize("name", NAMES)
def test_operator_equals_the_cpu(name: str, output: Callable[..., str]) -> None:
    assert json.loads(output("device_ops.py", "--emulated"))[name] == ""
