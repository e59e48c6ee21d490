"""Reports of a proof: as text, JSON, and a page of HTML.

All of them show what the proof's levels hold. A level's figures stand in the JSON, and
``by_layer`` in the page of HTML, too:

- ``by_layer``: a list in the order of depth of ``{"path", "kind", "train", "eval", "forced"}``:
  relative differences of what each layer gave in either mode, and alone at equal inputs
  (``forced``). None or absent: not run.
- ``gradients``: a list of ``{"name", "difference", "norm"}``, the norm being the reference's, if
  known.
- ``differences``: by name the largest of each thing that a level tells apart: ``{"train, output":
  1e-15, "train, loss": 0.0}``.
- ``null``: names of the parameters whose gradient is zero but for rounding.
"""
