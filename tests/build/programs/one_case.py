"""Builds one candidate file for the emulated device and prints its build records and their causes as JSON."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any


def main(file: Path, environment: dict[str, str]) -> None:
    """Imports ``file`` with ``environment`` set once the device stands."""
    from kernelwright import build
    from kernelwright.build.diagnostics import causes_of
    from kernelwright.device.specs import spec
    from kernelwright.emulate import device as emulated
    from kernelwright.records import to_json

    text = file.read_text()
    device = emulated.install(spec("h200"), memory_limit_bytes=None)
    records: list[Any] = []
    build.install(build.BuildContext(str(file), text, device, "sm_80", records.append, lambda request: None))
    os.environ.update(environment)
    loaded = importlib.util.spec_from_file_location("candidate", file)
    assert loaded is not None and loaded.loader is not None
    with contextlib.suppress(build.BuildFailed):
        loaded.loader.exec_module(importlib.util.module_from_spec(loaded))
    causes = [cause for record in records if not record.ok for cause in causes_of(record, text)]
    print(json.dumps({"records": to_json(records), "causes": to_json(causes)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
