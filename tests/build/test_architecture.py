"""Which image a device would load, by TORCH_CUDA_ARCH_LIST and by flags."""

from __future__ import annotations

import pytest

from kernelwright.build.architecture import choose
from kernelwright.build.extension import Extension

pytestmark = pytest.mark.tiny


def chosen(arch_list: str = "", *flags: str, capability: tuple[int, int] = (9, 0)) -> str:
    """The target, or ``refused``."""
    target, complaint = choose(Extension("e", (), arch_list=arch_list, cuda_cflags=flags), "sm_80", capability)
    assert bool(target) != bool(complaint)
    return target or "refused"


@pytest.mark.parametrize(
    ("arch_list", "expected"),
    [
        ("", "sm_80"),
        ("8.0", "refused"),
        ("8.0+PTX", "sm_80"),
        ("8.0;9.0", "sm_90"),
        ("Hopper", "sm_90"),
        ("9.0a", "sm_90a"),
        ("10.0", "refused"),
    ],
)
def test_arch_list_decides(arch_list: str, expected: str) -> None:
    assert chosen(arch_list) == expected


def test_machine_code_of_an_older_minor_version_runs() -> None:
    assert chosen("8.0", capability=(8, 6)) == "sm_80"
    assert chosen("8.6", capability=(8, 0)) == "refused"


def test_flags_beat_the_list() -> None:
    assert chosen("9.0", "-gencode=arch=compute_80,code=sm_80") == "refused"
    assert chosen("", "-arch=sm_80") == "sm_80"  # -arch embeds PTX, too
    assert chosen("", "-gencode", "arch=compute_90a,code=sm_90a") == "sm_90a"


def test_an_unknown_entry_is_refused_as_torch_does() -> None:
    with pytest.raises(ValueError, match=r"Unknown CUDA arch \(banana\)"):
        chosen("banana")


def test_the_complaint_names_what_the_module_holds() -> None:
    _, complaint = choose(Extension("e", (), arch_list="8.0"), "sm_80", (9, 0))
    assert "the module holds sm_80" in complaint and "compute capability 9.0" in complaint
