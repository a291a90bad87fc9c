"""Kernelwright: GPU kernels that are right, fast, and explained.

The package is the core; ``kernelwright.cli`` and ``kernelwright.report`` are faces and are never imported from here.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
