"""Networks under heat's names."""
