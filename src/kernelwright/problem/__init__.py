"""Load a problem: the KernelBench layout. Running one happens only inside worker processes."""
