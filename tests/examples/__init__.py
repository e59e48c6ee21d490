"""Scripts as users of other packages have them, for the digits: docs/howto/moving.md lists what
changes in each."""
