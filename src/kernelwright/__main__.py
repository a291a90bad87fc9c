"""``python -m kernelwright``: the same as the ``kernelwright`` command."""

import sys

from kernelwright.cli import main

if __name__ == "__main__":
    sys.exit(main())
