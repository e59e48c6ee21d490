"""The directives ``gallery``: the families of the zoo for one task, with a drawing, a table, names
and an example each, and ``gallery-overview``: their drawings alone, as links.

Everything is made from the code when the pages are built: the architectures from their
registrations, the text from the docstrings of the families' modules.
"""

import importlib
import inspect
import math
from functools import cache
from itertools import groupby
from pathlib import Path

from docutils.nodes import make_id
from sphinx.util.docutils import SphinxDirective

from deliralike import zoo
from deliralike.backends.outline import BACKEND
from deliralike.zoo.drawing import draw


class Gallery(SphinxDirective):
    """One section for each module of ``deliralike.zoo.TASK``; the argument is TASK."""

    required_arguments = 1

    def run(self):
        self.env.note_reread()  # the code may have changed, which is not among the pages
        lines = []
        for module, names in families(self.arguments[0]).items():
            lines += _section(module, names, _folder(self.env))
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class Overview(SphinxDirective):
    """The drawing of each family of a task, which leads to its section; the argument is TASK."""

    required_arguments = 1

    def run(self):
        self.env.note_reread()
        [task] = self.arguments
        lines = ["```{eval-rst}", ".. container:: cards", ""]
        for names in families(task).values():
            lines += _card(task, names, _folder(self.env))
        return self.parse_text_to_nodes("\n".join([*lines, "```"]))


def _folder(env):
    folder = Path(env.srcdir) / "_generated" / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def _drawing(name, folder):
    """Draw an architecture once in a build, and return the path that pages know it by."""
    draw(name, folder / f"{name}.svg")
    return f"/_generated/gallery/{name}.svg"


def _card(task, names, folder):
    title = _title(names)
    return [
        f"   .. figure:: {_drawing(names[0], folder)}",
        f"      :target: {task}.html#{make_id(title)}",
        f"      :alt: The architecture of {names[0]}",
        "",
        f"      {title}: {_variants(names)}",
        "",
    ]


def _variants(names):
    """How many variants there are, or how many parameters the only one has."""
    if len(names) > 1:
        return f"{len(names)} variants"
    return f"{zoo.outline(names[0]).parameters / 1e6:.3g} M parameters"


def _title(names):
    return ", ".join(each.__name__ for each in _classes(names))


def _classes(names):
    return list(dict.fromkeys(_class_of(name) for name in names))


def families(task):
    """The names of the zoo by the module that registers them, in the order of the modules' names.

    Example:
        >>> families("classification")["deliralike.zoo.classification.lenet"]
        ['lenet']
    """
    prefix = f"deliralike.zoo.{task}."
    modules = {name: zoo.find(name).network.__module__ for name in zoo.list()}
    ours = sorted(
        (name for name in modules if modules[name].startswith(prefix)), key=modules.get
    )
    return {module: list(names) for module, names in groupby(ours, modules.get)}


def example(name):
    """A few lines that build an architecture and run it on a random sample; with four classes where
    it has classes."""
    architecture = zoo.find(name)
    built = architecture.on(BACKEND)()
    has_classes = built.head_paths and (
        "classification" in architecture.task or architecture.task == "segmentation"
    )
    setting = f"{built.outputs}=4" if has_classes else ""
    return "\n".join(
        [
            "from deliralike import backends, zoo",
            "",
            'torch = backends.get("torch")',
            f'network = zoo.build("{name}", backend=torch{setting and f", {setting}"}).eval()',
            f'sample = zoo.find("{name}").sample({setting})',
            "with torch.evaluating():",
            "    output = network(*torch.prepare(sample, network))",
        ]
    )


def smallest(names):
    """The name whose network has the fewest parameters."""
    return min(names, key=lambda name: zoo.outline(name).parameters)


def _section(module, names, folder):
    first = names[0]
    return [
        f"## {_title(names)}",
        "",
        *inspect.getdoc(importlib.import_module(module)).splitlines(),
        "",
        f"![The architecture of {first}]({_drawing(first, folder)})",
        "",
        *_table(names),
        "",
        f"Names and shapes in the state of `{first}`:",
        "",
        "```text",
        *_names(first),
        "```",
        "",
        "```python",
        example(smallest(names)),
        "```",
        "",
        "```{eval-rst}",
        *(
            f".. autoclass:: {each.__module__}.{each.__name__}"
            for each in _classes(names)
        ),
        "```",
        "",
    ]


def _class_of(name):
    """The class written once that a name stands for, also where a function creates it."""
    network = zoo.find(name).network
    return (
        network
        if inspect.isclass(network)
        else type(zoo.find(name).on(BACKEND)()).written_once
    )


def _table(names):
    head = ["name", "parameters", "multiply-adds", "input", "output", "axes", "source"]
    rows = [head, ["---"] * len(head), *map(_row, names)]
    return [f"| {' | '.join(row)} |" for row in rows]


def _row(name):
    architecture, sketch = zoo.find(name), zoo.outline(name)
    shapes = ", ".join(_sizes(shape[1:]) for shape in sketch.inputs)
    axes = ", ".join(map(str, architecture.dims))
    return [
        f"`{name}`",
        f"{sketch.parameters:,}",
        _giga(sketch.multiply_adds),
        shapes,
        _output(sketch.output),
        axes,
        architecture.source,
    ]


def _giga(count):
    """Three digits of a count in units of 10**9."""
    digits = max(0, 2 - math.floor(math.log10(max(count, 1) / 1e9)))
    return f"{count / 1e9:,.{digits}f} G"


def _output(output):
    if isinstance(output, dict):
        return "; ".join(f"{key}: {_output(value)}" for key, value in output.items())
    if all(isinstance(size, int) for size in output):
        return _sizes(output[1:])
    return "; ".join(map(_output, output))


def _sizes(shape):
    return " × ".join(map(str, shape)) or "scalar"


def _names(name, shown=5):
    slots = [
        f"{key} {tuple(slot.shape)}"
        for key, slot in zoo.find(name).on(BACKEND)().neutral_slots().items()
    ]
    if len(slots) <= 2 * shown:
        return slots
    return [*slots[:shown], f"… {len(slots) - 2 * shown} more …", *slots[-shown:]]


def setup(app):
    app.add_directive("gallery", Gallery)
    app.add_directive("gallery-overview", Overview)
    return {"parallel_read_safe": True}
