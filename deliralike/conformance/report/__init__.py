"""Reports of a proof: as text, Markdown, JSON, and a page of HTML with pictures.

All of them show what the proof's levels hold. These of a level's figures have a form of their own
in them, the others stand in the JSON only:

=========================
========================================================================================== name
                content =========================
==========================================================================================
``by_layer``              A list in the order of depth of ``{"path", "kind", "train", "eval",
"forced", "float32"}``:
                          relative differences of what each layer gave in either mode, and alone at
                          equal inputs (``forced``); ``float32`` is the rounding error to expect
                          there. None or absent: not run.
``curves``                ``{"reference", "candidate", "float32", "band"}``: losses step by step, in
float64 and in
                          float32; the band is ``[low, high]``, where float32 may be. The last two
                          may be absent.
``gradients``             A list of ``{"name", "difference", "norm"}``, the norm being the
reference's, if known. ``differences``           By name the largest of each thing that a level
tells apart, or such mappings by mode:
                          ``{"2": 1e-15}`` for two replicas, ``{"train": {"output": 1e-15, "loss":
                          0.0}}``.
``null``                  Names of the parameters whose gradient is zero but for rounding.
=========================
==========================================================================================
"""
