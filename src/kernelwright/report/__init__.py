"""Renders results for people: a verdict on one screen, data sheets, the doctor's findings.

Why: the same verdict is read on a terminal of 80 columns, in a CI log and in black and white. The rule: colour never
carries meaning alone, what could not be checked says "not checked", and the core never imports this package.
"""

from kernelwright.report.program import render_program
from kernelwright.report.summary import render_summary
from kernelwright.report.verdict import render

__all__ = ["render", "render_program", "render_summary"]
