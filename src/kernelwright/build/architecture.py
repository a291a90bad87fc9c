"""Which GPU the sources are compiled for, and whether the presented device could run what was asked for.

Why: a module that holds machine code for another generation only, and no PTX, builds, imports and then fails at the
first launch (``no kernel image is available``). The rule: of the images that the real build would embed, the one the
device would load decides the PTX target; where it would load none, that is said before anything is compiled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelwright.build.extension import Extension, split, targets

_NAMED = {
    "Kepler+Tesla": "3.7",
    "Kepler": "3.5+PTX",
    "Maxwell+Tegra": "5.3",
    "Maxwell": "5.0;5.2+PTX",
    "Pascal": "6.0;6.1+PTX",
    "Volta+Tegra": "7.2",
    "Volta": "7.0+PTX",
    "Turing": "7.5+PTX",
    "Ampere+Tegra": "8.7",
    "Ampere": "8.0;8.6+PTX",
    "Ada": "8.9+PTX",
    "Hopper": "9.0+PTX",
    "Blackwell+Tegra": "11.0",
    "Blackwell": "10.0;10.3;12.0;12.1+PTX",
}
"""torch.utils.cpp_extension's ``named_arches``; combined names first, as there."""


@dataclass(frozen=True)
class Image:
    """One image in a fat binary."""

    number: int
    """``90`` of ``sm_90a``."""
    suffix: str
    """``a`` or ``f`` (architecture or family specific), or empty."""
    ptx: bool

    def runs_on(self, major: int, minor: int) -> bool:
        """Whether a device of that compute capability loads it."""
        own = self.number == major * 10 + minor
        if self.suffix == "a":
            return own
        if self.ptx:
            return self.number <= major * 10 + minor
        return self.number // 10 == major and self.number % 10 <= minor

    def __str__(self) -> str:
        return f"{'compute' if self.ptx else 'sm'}_{self.number}{self.suffix}"


def images(extension: Extension) -> list[Image]:
    """The images that the real build would embed; empty where nothing was asked for (then: the device's own)."""
    asked = targets(split(extension.cuda_cflags))
    if any("arch" in flag for flag in extension.cuda_cflags):  # torch then adds nothing itself
        return [image for value in asked for image in _of_flag(value)]
    listed = extension.arch_list
    if not listed or listed == "native":
        return []
    listed = listed.replace(" ", ";")
    for name, numbers in _NAMED.items():
        listed = listed.replace(name, numbers)
    made = []
    for entry in filter(None, listed.split(";")):
        found = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX)?", entry)
        if not found:
            raise ValueError(f"Unknown CUDA arch ({entry}) or GPU not supported")
        number = int(found[1]) * 10 + int(found[2])
        made.append(Image(number, found[3], False))
        if found[4]:
            made.append(Image(number, found[3], True))
    return made


def _of_flag(value: str) -> list[Image]:
    names = re.findall(r"(sm|compute|lto)_(\d+)([af]?)", value)
    if "code=" in value:  # only what stands behind code= is embedded
        names = re.findall(r"(sm|compute|lto)_(\d+)([af]?)", value.split("code=", 1)[1])
        return [Image(int(number), suffix, kind == "compute") for kind, number, suffix in names]
    # -arch=sm_80 embeds machine code and PTX
    return [
        Image(int(number), suffix, ptx)
        for kind, number, suffix in names
        for ptx in ((True,) if kind == "compute" else (False, True))
    ]


def choose(extension: Extension, default: str, capability: tuple[int, int]) -> tuple[str, str]:
    """The PTX target (``sm_80``), and a sentence where the device would find no image; the target is empty then.

    ``default`` is used where neither flags nor TORCH_CUDA_ARCH_LIST choose. Raises ``ValueError`` as torch does.
    """
    asked = images(extension)
    if not asked:
        return default, ""
    major, minor = capability
    usable = [image for image in asked if image.runs_on(major, minor)]
    if not usable:
        held = ", ".join(dict.fromkeys(str(image) for image in asked))
        return "", (
            f"no kernel image is available for execution on the device: the module holds {held}, and a device of "
            f"compute capability {major}.{minor} runs none of them"
        )
    best = max(usable, key=lambda image: (not image.ptx, image.number, image.suffix))
    return f"sm_{best.number}{best.suffix}", ""
