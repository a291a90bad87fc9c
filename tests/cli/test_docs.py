"""Pages that are generated are fresh, and no command, setting or cause is undocumented."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright import settings
from kernelwright.cli.main import cli
from kernelwright.explain import CAUSES

pytestmark = pytest.mark.tiny

ROOT = Path(__file__).parents[2]


def test_generated_files_are_what_the_generator_writes() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_and_every_option_stands_on_the_page() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name, command in cli.commands.items():
        assert f"## kernelwright {name}\n" in page
        for parameter in command.params:
            assert (parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.opts[0].upper()) in page


def test_every_cause_and_every_setting_stands_on_its_page() -> None:
    causes = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8")
    assert all(f"| `{id}` | {meaning} |\n" in causes for id, meaning in CAUSES.items())
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert all(setting.variable in page for setting in settings.SETTINGS)


def test_no_other_module_reads_one_of_our_variables() -> None:
    own = ROOT / "src" / "kernelwright"
    readers = [
        path.relative_to(own).as_posix()
        for path in own.rglob("*.py")
        if path.name != "settings.py" and 'environ.get("KERNELWRIGHT_' in path.read_text(encoding="utf-8")
    ]
    assert readers == []
