"""Names that users of PyTorch and of libraries around it know, in terms of this one."""
