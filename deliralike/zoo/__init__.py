"""The zoo: architectures written once, found by name."""
