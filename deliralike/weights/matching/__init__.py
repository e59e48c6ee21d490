"""Which tensor of one network or file is which of another, by names, shapes, values and order."""
