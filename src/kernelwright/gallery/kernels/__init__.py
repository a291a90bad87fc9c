"""The kernels we ship, one plain candidate file each: ``ModelNew``, ``load_inline``, CUDA. Importing one compiles
nothing."""
