"""A candidate: running its file (inside its process only) and reading its text (anywhere)."""
