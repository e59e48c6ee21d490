"""A small regression with a loss and optimizers of its own."""
