"""An autoencoder whose decoder has the transposed weights of its encoder."""
