"""Operations that Chainer lacks or computes otherwise, on NumPy and CuPy arrays."""
