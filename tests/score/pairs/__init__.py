"""Networks with ports by hand, one folder each."""
