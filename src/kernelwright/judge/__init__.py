"""Right or wrong: the float64 oracle, comparison, precision grade, and whether the tolerance can tell."""
