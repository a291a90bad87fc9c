"""The journal holds whole facts only, whatever ended its writer."""

from __future__ import annotations

import os

import pytest

from kernelwright.program import journal

pytestmark = pytest.mark.tiny


def test_facts_come_back_in_order_and_a_line_cut_short_is_left_out() -> None:
    fd = journal.create()
    try:
        journal.write(fd, {"during": "kernel a"})
        journal.write(fd, {"findings": [{"text": "line\nbreak"}]})
        os.write(fd, b'{"launches": [1, 2')
        assert journal.read(fd) == [{"during": "kernel a"}, {"findings": [{"text": "line\nbreak"}]}]
    finally:
        os.close(fd)
