"""PTX text to tokens: one compiled regular expression, and the line of every token on demand.

Why: a torch translation unit carries thousands of PTX lines, and parsing must stay far below the time of one kernel
compilation. The rule: a token is its exact spelling; the first character tells its kind, so no kind is stored.
"""

from __future__ import annotations

import re
from bisect import bisect_right

_TOKEN = re.compile(
    r"""
      [%$_A-Za-z][\w$]*(?:(?:\.|::)\w+)*     # names, opcodes with their modifiers, special registers
    | \.[A-Za-z_][\w:]*                      # directives and types
    | 0[fFdD][0-9A-Fa-f]+                    # floating literals by bits
    | 0[xX][0-9A-Fa-f]+U? | 0[bB][01]+U?     # integers by bits
    | \d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ | \d+U?
    | "(?:[^"\\]|\\.)*"
    | //[^\n]* | /\*.*?\*/                   # comments
    | \S                                     # punctuation, one character each
    """,
    re.VERBOSE | re.DOTALL,
)


class PtxSyntaxError(Exception):
    """PTX that cannot be read. Carries the 1-based line, that line's text, and what was expected or unknown."""

    def __init__(self, line: int, text: str, what: str) -> None:
        super().__init__(f"PTX line {line}: {what}\n  {text.strip()}")
        self.line = line
        self.text = text
        self.what = what


class Tokens:
    """The tokens of one PTX text, without comments, read from front to back.

    ``words`` ends with one empty string, so that looking at the next token never runs off the end.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[str] = []
        self.starts: list[int] = []
        words, starts = self.words, self.starts
        for match in _TOKEN.finditer(text):
            word = match.group()
            if word[0] == "/" and len(word) > 1:
                continue
            words.append(word)
            starts.append(match.start())
        words.append("")
        starts.append(len(text))
        self.at = 0
        newlines = [match.start() for match in re.finditer("\n", text)]
        self._newlines = newlines

    def line(self, index: int) -> int:
        """The 1-based line of token ``index``."""
        return bisect_right(self._newlines, self.starts[index] - 1) + 1

    def peek(self) -> str:
        """The next token, without taking it."""
        return self.words[self.at]

    def take(self) -> str:
        """The next token."""
        word = self.words[self.at]
        if not word:
            raise self.error("the text ends in the middle of a statement")
        self.at += 1
        return word

    def accept(self, word: str) -> bool:
        """Take the next token if it is ``word``."""
        if self.words[self.at] == word:
            self.at += 1
            return True
        return False

    def expect(self, word: str) -> None:
        """Take ``word``, or raise."""
        if self.words[self.at] != word:
            raise self.error(f"expected '{word}', found '{self.words[self.at] or 'end of text'}'")
        self.at += 1

    def error(self, what: str, *, index: int | None = None) -> PtxSyntaxError:
        """A ``PtxSyntaxError`` at token ``index`` (the next one by default)."""
        line = self.line(self.at if index is None else index)
        lines = self.text.splitlines()
        return PtxSyntaxError(line, lines[line - 1] if line <= len(lines) else "", what)
