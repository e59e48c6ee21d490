"""The score of the proof on ports by hand: right ones, and ones with a mistake in their source."""
