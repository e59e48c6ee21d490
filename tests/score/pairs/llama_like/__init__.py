"""A small language model with rotary positions, grouped queries and gated perceptrons."""
