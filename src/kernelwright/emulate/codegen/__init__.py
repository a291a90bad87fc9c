"""Turns one kernel's PTX form into LLVM IR that runs a warp, and that into machine code."""
