"""Native layers in the place of those written once: none, since XLA fuses what those compute."""

NATIVE: dict[str, type] = {}
