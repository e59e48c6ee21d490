"""Which run a run is: texts of all that its future depends on, compared where it goes on.

`fingerprints` collects the values of a run, `values` makes texts of them, `code_digest` texts of
functions. A checkpoint holds the texts, so that a run is refused that would go on otherwise than
it began; `processes` compares them among processes that begin together.
"""
