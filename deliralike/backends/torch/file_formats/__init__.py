"""PyTorch's file formats, read without running what is in a file."""
