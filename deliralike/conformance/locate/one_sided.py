"""Tensors that one side alone has in a block of both: a cause that is seen.

Whether such tensors are held in another form is not known while values agree. Where a block of the
same name and class differs, or what stands in its place, they are what differs.
"""

from __future__ import annotations

from collections.abc import Mapping

from deliralike.conformance.by_name import below, block_kinds, owner, start
from deliralike.conformance.findings import Explanation
from deliralike.conformance.kinds import Shape
from deliralike.conformance.locate.place import Place
from deliralike.conformance.observe.matched import Matched
from deliralike.conformance.running import Running


def of_tensors(running: Running, place: Place) -> tuple[str, Explanation] | None:
    """The block, at the place or in what it does between its layers, and what it has otherwise."""
    if not isinstance(running.correspondence, Matched):
        return None
    match = running.correspondence.match
    mine, theirs = (block_kinds(side.network) for side in (running.reference, running.candidate))
    for path in dict.fromkeys(map(owner, match.together)):
        is_inside = place.glue is not None and path.startswith(start(place.path))
        if path in mine and mine[path] == theirs.get(path) and (path == place.path or is_inside):
            own, other = (_own(path, side.shapes) for side in (match.reference, match.candidate))
            words = [f"no {name}" for name in own if name not in other]
            words += [f"a {name} that the reference has not" for name in other if name not in own]
            if words:
                return path, Explanation.seen(", ".join(words))
    return None


def _own(path: str, shapes: Mapping[str, Shape]) -> list[str]:
    """The names of a block's own tensors."""
    return [name for name in below(path, shapes) if "." not in name]
