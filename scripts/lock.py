"""Writes requirements.lock: the exact version of every package in this environment that Kernelwright needs.

Why: a check's result must not change because a dependency moved overnight. The rule: only names and versions stand in
the file, no hosts and no hashes, so that any mirror serves it; local version labels (``+cpu``) are dropped, since which
build of torch fits is the machine's choice.

    python scripts/lock.py
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
HEADER = (
    "# Written by scripts/lock.py (make lock): exact versions of what pyproject.toml asks for, dev tools included.\n"
)


def main() -> None:
    """Follow the requirements of pyproject.toml through the installed packages' own metadata."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    # What an editable install without build isolation takes.
    wanted = [*project["build-system"]["requires"], "editables"]
    wanted += project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    versions: dict[str, str] = {}
    queue = [Requirement(text) for text in wanted]
    while queue:
        requirement = queue.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in versions or (requirement.marker and not _applies(requirement)):
            continue
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            # torch's CUDA libraries are not there in a CPU build.
            continue
        versions[name] = found.version.split("+")[0]
        queue += [Requirement(text) for text in found.requires or []]
    lines = [f"{name}=={version}\n" for name, version in sorted(versions.items())]
    (ROOT / "requirements.lock").write_text(HEADER + "".join(lines), encoding="utf-8")


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


if __name__ == "__main__":
    main()
