"""Classes of one framework become networks written once.

The module is called: ``deliralike.port(MyNet, inputs, classes=4)``. Its files, from the top down:

- `porting` runs the class, has it rewritten, and proves the result; `on_the_way` does so for
  ``zoo.build`` and ``train``.
- `creation` creates the original anew, also one that existed; `observing` records what is called in
  it and, as `values`, of what kind values are; `resolving` follows the names of a source to what
  they mean; `original` answers what the networks and functions of the original are.
- `program` knows which definitions the port needs, `late_sizes` the sizes that instances of a
  class have found out in the run, `remarks` what is to be known of their lines,
  `output` their order and imports, `finishing` how they get at the functions of the backend.
- `rewriting` is the walk through one definition. Its parts are one class after the other:
  `context`, `leaving_out`, `definitions`, `names`, `statements`, and calls. They ask
  `choices` (what tables and factories gave), `start_code` (what only sets start values), `buffers`
  (those that are written into), `mask_layers` and `dropping` (layers in the place of functions
  that draw).
- `framework` declares what is asked of a source framework. `torch_modules` and `chainer_objects`
  answer, with the tables of calls in `pytorch` and `chainer`, whose entries take a `calls.Call`.
  `patterns` gives matchers for pieces of source.
  `chainer_links` has Chainer's links and functions that `nn` lacks; a port takes their source.
"""

import sys
import types
from typing import Any

from deliralike.port.porting import Port, port

__all__ = ["Port", "port"]


class _Callable(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Port:
        """See `deliralike.port.porting.port`."""
        return port(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
