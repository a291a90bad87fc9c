"""Settings: reading, where they come from, and complaints."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright import settings
from kernelwright.errors import BadSetting, KernelwrightError, UnknownSetting

pytestmark = pytest.mark.tiny


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for setting in settings.SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("512M", 2**29), ("16G", 2**34), ("1.5GiB", 3 * 2**29), ("2 kb", 2048)]
)
def test_a_size_is_read_in_powers_of_1024(text: str, size: int) -> None:
    assert settings.size(text) == size


@pytest.mark.parametrize("text", ["", "lots", "-1", "nan", "inf", "0", "G"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        settings.size(text)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("KERNELWRIGHT_DEBUG", "5", "expected a whole number from 0 to 4"),
        ("KERNELWRIGHT_TIMEOUT", "nan", "expected seconds, more than zero"),
        ("KERNELWRIGHT_CONFIRM", "perhaps", "expected 1 or 0"),
        ("KERNELWRIGHT_DEVICE", "gpu", "expected one of auto, emulated, cuda"),
        ("KERNELWRIGHT_JOBS", "many", "expected whole number"),
    ],
)
def test_a_bad_value_names_variable_value_and_what_was_expected(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadSetting) as caught:
        settings.get(variable.removeprefix(settings.PREFIX))
    assert str(caught.value) == f"the environment sets {variable} to {value!r}: {says}"
    assert caught.value.exit_status == 2


def test_the_nearest_project_file_upwards_is_read_and_a_wrong_key_is_an_error(elsewhere: Path) -> None:
    (elsewhere / "pyproject.toml").write_text("[tool.kernelwright]\ntimout = 3\ntrials = 4\n", encoding="utf-8")
    assert settings.get("TRIALS") == 4
    with pytest.raises(UnknownSetting, match="timout") as caught:
        settings.check_names()
    assert caught.value.hint.startswith("did you mean timeout?")


def test_the_cache_is_the_settings_folder_else_the_platforms(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(elsewhere / "xdg"))
    assert settings.cache_folder() == elsewhere / "xdg" / "kernelwright"
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(elsewhere / "mine"))
    assert settings.cache_folder() == elsewhere / "mine"
    assert (elsewhere / "mine").is_dir()


def test_a_message_comes_from_its_class_and_braces_in_a_value_do_no_harm() -> None:
    error = UnknownSetting(where="{x}", name="{0}", near="{y}")
    assert str(error) == "{x} sets {0}, which Kernelwright does not know"
    assert str(KernelwrightError("a {brace} in text")) == "a {brace} in text"
