"""Names that users of PyTorch know, in terms of flax's modules."""
