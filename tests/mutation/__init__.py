"""How much the tests would notice: the package is changed in one place at a time, and they are
run."""
