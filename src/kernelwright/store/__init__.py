"""What was found before: every verdict with its sources and raw samples."""
