"""The score of the proof: classes with one mistake in their source, and right ones."""
