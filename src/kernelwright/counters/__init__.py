"""What a kernel did, counted: the records, the metrics' names and meaning, occupancy, and the mix of a kernel's code.

The rule: nothing here counts. The emulated device and Nsight Compute do, each into the same record under the same
names, so that one table shows either.
"""
