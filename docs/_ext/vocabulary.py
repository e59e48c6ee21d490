"""The directive ``vocabulary``: describes layers and functions by the names that they have in `nn`.

Signatures and docstrings come from the code.
"""

import inspect
import re

from docutils.statemachine import StringList
from sphinx.ext.napoleon import GoogleDocstring
from sphinx.util.docutils import SphinxDirective
from sphinx.util.inspect import stringify_signature

from deliralike.network import NetworkType
from deliralike.nn.functional import Functions
from deliralike.nn.layers import LAYERS


class Vocabulary(SphinxDirective):
    """One entry for each name in the content; names joined by ``/`` have the same arguments and
    share an entry."""

    has_content = True

    def run(self):
        lines = StringList()
        for names in " ".join(self.content).split():
            for line in _entry(names.split("/"), self.config):
                lines.append(line, f"the docstring of nn.{names}")
        return self.parse_text_to_nodes("\n".join(lines))


def _entry(names, config):
    kind = "class" if names[0] in LAYERS else "function"
    signatures = [f"nn.{name}{_signature(_described(name))}" for name in names]
    body = [
        line for name in names for line in ("", *_docstring(_described(name), config))
    ]
    head = [
        f".. py:{kind}:: {signatures[0]}",
        *(f"   {signature}" for signature in signatures[1:]),
    ]
    return [*head, *(f"   {line}" for line in body), ""]


def _described(name):
    return LAYERS[name] if name in LAYERS else getattr(Functions, name)


def _docstring(described, config):
    """The docstring as reStructuredText; where it refers to a function of the vocabulary, a link to
    that."""
    text = re.sub(
        r"`deliralike\.nn\.\w+\.\w+\.(\w+)`",
        r":py:func:`nn.\1`",
        inspect.getdoc(described) or "",
    )
    return GoogleDocstring(text, config).lines()


def _signature(described):
    function = described.__init__ if inspect.isclass(described) else described
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return stringify_signature(inspect.Signature(parameters), show_annotation=False)


def _class_signature(app, what, name, described, options, signature, returns):
    """A network is created by its metaclass, whose signature says nothing: show that of
    ``__init__``, if it has one."""
    if what == "class" and isinstance(described, NetworkType):
        return "" if described.__init__ is object.__init__ else _signature(
            described
        ), returns
    return None


def setup(app):
    app.add_directive("vocabulary", Vocabulary)
    app.connect("autodoc-process-signature", _class_signature)
    return {"parallel_read_safe": True}
