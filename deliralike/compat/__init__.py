"""Names that users of other libraries know, in terms of this one.

`heat` has heat's, and `optim_wrapper_dict` MMEngine's mapping of optimizers. The names of PyTorch,
of synchronized batch normalization and of delira's wrappers are in each backend.
"""
