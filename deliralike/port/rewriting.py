"""The rewriting of one definition: a class, a function, or an assignment of a module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from inspect import isclass
from typing import Any

import libcst as cst
import numpy as np
from libcst import matchers as m

from deliralike.port.calls import (
    NN,
    NO_COMMA,
    OF_SELF,
    Call,
    NeedsHand,
    arguments,
    call_of_nn,
    code,
    joined,
    plain,
    tuple_of,
    written,
)
from deliralike.port.definitions import EQUAL
from deliralike.port.dropping import arguments_of_drop
from deliralike.port.observing import FORWARD
from deliralike.port.patterns import pattern
from deliralike.port.resolving import MISSING
from deliralike.port.statements import StatementRewriter
from deliralike.port.values import NETWORKS, UNKNOWN, Value

_FIRST_PARAMETER = pattern("next(self.parameters(...))")
_ASKS_FOR_ATTRIBUTE = m.OneOf(
    pattern("hasattr(OWNER, NAME)"), pattern("getattr(OWNER, NAME)")
)
_CALLED_IN_FUNCTION = (
    "a network that is called while it is created: in a method of a network, "
    "self.backend.numpy(net(self.backend.prepare(x, net)))"
)
_APPLY = pattern("FUNCTION.apply")
_TRAINING = "self.training"
_ASKS_FOR_KIND = pattern("isinstance(VALUE, KINDS)")


class Rewriter(StatementRewriter):
    """Puts the names of `nn` in the place of a framework's; this part deals with calls."""

    def visit_Call(self, node: cst.Call) -> bool:
        is_layer = self.original.layer_of(self.source.meaning(node.func)) is not None
        if is_layer or self._applies(node):
            self.passed_by.add(node.func)
        return self.choice(node) is MISSING

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        value = self.choice(original)
        if value is not MISSING:
            return self.chosen(value, original)
        updated = self._without_placement(original, updated)
        try:
            return self._call(original, updated)
        except NeedsHand as reason:
            self.program.needs_hand(self.where(original), str(reason))
            return cst.parse_expression(reason.instead) if reason.instead else updated

    def _call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        func: Any = original.func
        name = self.name_of(func)
        if m.matches(original, _ASKS_FOR_KIND) or name == "jit.isinstance":
            return self._kind_asked_for(original, updated)
        if name is not None:
            return self._function(name, original, updated)
        if m.matches(original, _FIRST_PARAMETER):
            return self.parsed(self.parameter())
        if m.matches(original, _ASKS_FOR_ATTRIBUTE):
            return self._attribute_asked_for(original, updated)
        if self._applies(original):
            return self._applied(original, updated)
        return self._other_call(original, updated)

    def _other_call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """A call of what is not the framework's, or of a method of a value."""
        func: Any = original.func
        function = self.source.meaning(func)
        if function is partial:
            return self._with_settings(original, updated)
        layer = self.original.layer_of(function)
        if layer is not None:
            given = arguments_of_drop(function, *arguments(updated.args))
            return self.parsed(self.mask_layers.call(function.__name__, layer, given))
        if m.matches(func, m.Name("eval")):
            raise NeedsHand("eval: write out what its text gives here")
        updated = self._with_sizes(original, updated)
        if not self.in_construction and self.original.makes_constants(function):
            return self._constant_of(original, updated)
        if m.matches(func, OF_SELF):
            self._refuse_method_of_both(original)
        if self.in_construction and self.value_of("called", func).kind in NETWORKS:
            return self._while_created(original, updated)
        if not isinstance(updated.func, cst.Attribute):
            return updated
        return self._member(original, updated, self.value_of("values", func))

    def _while_created(
        self, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression:
        """A network that is called while another is created, to find out a size.

        Arrays are NumPy's there.
        """
        args = []
        for old, new in zip(original.args, updated.args, strict=True):
            if self._argument(old).is_array:
                if not self.functions[-1].has_self:
                    raise NeedsHand(_CALLED_IN_FUNCTION)
                x, network = code(new.value), code(updated.func)
                prepared = self.parsed(f"self.backend.prepare({x}, {network})")
                new = new.with_changes(value=prepared)
            args.append(new)
        updated = updated.with_changes(args=args)
        if not self.observed.value("results", self.source.end(original)).is_array:
            return updated
        return self.parsed(f"self.backend.numpy({code(updated)})")

    # What is known of a call
    # ---------------------------------------------------------------------------------------------

    def _call_of(
        self, name: str, original: cst.Call, updated: cst.Call, **of: Any
    ) -> Call:
        args, kwargs = arguments(updated.args)
        missing = []
        for one in original.args:
            if self.observed.was("given", self.source.end(one.value), "none"):
                missing.append(code(one.value))
        end = self.source.end(original)
        axes = self.original.observation.axes
        returned = self.observed.objects["returned"][end]
        return Call(
            name,
            args,
            kwargs,
            **of,
            values=[self._argument(one) for one in original.args],
            missing=missing,
            result=self.observed.value("results", end),
            returned=[(one, axes.get(id(one), 0)) for one in returned],
            by_instance=self._by_instance,
            like=self.like,
            layer=self._noise_layer,
        )

    def _argument(self, arg: cst.Arg) -> Value:
        """What an argument was in the run."""
        return self.value_of("given", arg.value)

    def _without_placement(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Leave out ``**options`` of device and type, and these as they are handed on."""
        arguments = []
        for old, new in zip(original.args, updated.args, strict=True):
            is_placement = self._argument(old).kind == "placement"
            is_handed_on = _keyword(old) == code(old.value) in self.framework.dropped
            if not is_handed_on and not (old.star == "**" and is_placement):
                arguments.append(new)
        return _with_args(updated, arguments)

    # Functions
    # ---------------------------------------------------------------------------------------------

    def _function(
        self, name: str, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression:
        """A function or class of the framework."""
        framework = self.framework
        if name in framework.without_effect:
            return cst.Name("False")
        if name in framework.layer_sources and name not in framework.functions:
            return updated
        if framework.bases.get(name) == "Network" and not original.args:
            return updated.with_changes(func=cst.Name("Network"))  # to hold others
        call = self._call_of(name, original, updated)
        meaning = self.source.meaning(original.func)
        framework.refuse_old(call, meaning)
        if name in framework.drawing:
            return self._drawing(call, original, updated)
        if name in framework.attending:
            return self._attending(call)
        if name not in framework.in_both:
            if isclass(meaning) and framework.has(framework.classes.get(name, name)):
                return self._renamed(name, updated)
            if framework.is_network_class(meaning):
                raise NeedsHand(f"there is no {name} in nn")
            if self.in_construction:
                return self.parsed(framework.in_numpy(call))
        if name in framework.functions:
            return self.parsed(written(framework.functions[name], call))
        if name.endswith("_") and "." not in name:  # which writes over its input
            name = name.removesuffix("_")
        return self._renamed(name, updated)

    def _with_settings(
        self, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression:
        """``partial(F.max_pooling_2d, ksize=2)``: a function of one array."""
        name = self.name_of(original.args[0].value) or ""
        kwargs = arguments(updated.args)[1]
        is_known = isinstance(self.framework.functions.get(name), str)
        if not is_known or len(updated.args) != len(kwargs) + 1:
            return updated
        return self.parsed(self.of_one_array(name, kwargs))

    def _renamed(self, name: str, call: cst.Call) -> cst.Call:
        """The same call of what `nn` has; arrays are given by position."""
        name = self.framework.classes.get(name, name)
        if not self.framework.has(name):
            raise NeedsHand(f"there is no {name} in nn")
        args, keywords = [], self.framework.keywords
        for one in call.args:
            keyword = _keyword(one)
            if keyword in self.framework.dropped:
                continue
            if keyword in ("input", "tensors"):
                one = cst.Arg(one.value, comma=one.comma)
            elif keyword in keywords:
                one = one.with_changes(keyword=cst.Name(keywords[keyword]))
            args.append(one)
        func = cst.parse_expression(f"{NN}.{name}")
        return _with_args(call, args).with_changes(func=func)

    def _drawing(
        self, call: Call, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression:
        """A function that draws a mask, which an installed package may give a rate of zero."""
        is_zero = any(one.kind == "zero" for one in call.values)
        if self.source.is_installed and is_zero:
            why = f"{call.name}, which drops nothing here"
            self.program.specialise(self.where(original), why)
            return updated.args[0].value
        layer, given = self.framework.drawing[call.name], self.framework.masking(call)
        if given["training"] == "True" and self._is_in_training(original):
            given["training"] = _TRAINING
        return self.parsed(self.mask_layers.call(call.name, layer, given))

    def _is_in_training(self, node: Any) -> bool:
        """Whether it stands below ``if self.training:``."""
        while not isinstance(node, (cst.FunctionDef, cst.Module)):
            below, node = node, self.source.parents[node]
            is_branch = isinstance(node, cst.If) and node.body is below
            if is_branch and code(node.test) == _TRAINING:
                return True
        return False

    def _noise_layer(self, layer: str) -> str:
        if not self.functions or not self.functions[-1].has_self:
            raise NeedsHand(
                f"noise outside of a class: layers draw it, self.noise = nn.{layer}() in an "
                "__init__; hand on what it gives"
            )
        return self.mask_layers.of_noise(layer)

    def _attending(self, call: Call) -> cst.BaseExpression:
        """Attention, whose dropout is a layer."""
        given = call.bound(self.framework.attending[call.name])
        layer = self.mask_layers.of_attention(given.pop("dropout_p"))
        if layer is not None:
            given["dropout"] = layer
        x = [given.pop(name) for name in ("query", "key", "value")]
        return self.parsed(call_of_nn(call.name, *x, **given))

    def _applies(self, call: cst.Call) -> bool:
        """Whether it is ``Function.apply(x)`` of a function with a gradient of its own."""
        if not m.matches(call.func, _APPLY):
            return False
        cls = self.source.meaning(call.func.value)  # type: ignore[attr-defined]
        return self.framework.has_custom_gradient(cls)

    def _applied(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Its gradient is that of what it computes."""
        cls: Any = self.source.meaning(original.func.value)  # type: ignore[attr-defined]
        name = self.program.need_computed(cls)
        why = f"{cls.__name__}.backward: the gradient is derived from forward"
        self.program.specialise(self.where(original), why)
        return updated.with_changes(func=cst.Name(name))

    def _constant_of(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """An array of NumPy that a function gives, as one of the backend."""
        value = self.value_of("results", original)
        if value == UNKNOWN:
            return updated
        text, like = code(updated), self.like()
        if value.is_array:
            return self.parsed(call_of_nn("constant", text, like=like))
        each = call_of_nn("constant", "one", like=like)
        return self.parsed(f"tuple({each} for one in {text})")

    # Questions
    # ---------------------------------------------------------------------------------------------

    def _kind_asked_for(
        self, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression:
        """``isinstance(x, torch.Tensor)``: arrays have other classes elsewhere."""
        x = code(updated.args[0].value)
        kinds, others = _elements(original.args[1].value), []
        for kind, new in zip(kinds, _elements(updated.args[1].value), strict=True):
            if self.name_of(kind) != self.framework.array_class:
                others.append(code(new))
        if len(others) == len(kinds):
            return updated.with_changes(func=cst.Name("isinstance"))
        is_array = f'hasattr({x}, "shape")'
        if others:
            is_array = f"(isinstance({x}, {tuple_of(others)}) or {is_array})"
        return self.parsed(is_array)

    def _attribute_asked_for(
        self, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression:
        """``hasattr(torch, "name")`` is known; ``getattr(torch, name)`` is one of `nn`."""
        module: Any = self.source.meaning(original.args[0].value)
        name = original.args[1].value
        is_framework = self.framework.owns(getattr(module, "__name__", ""))
        if is_framework and code(original.func) == "getattr":
            return self.parsed(f"getattr({NN}, {code(updated.args[1].value)})")
        if not is_framework or not isinstance(name, cst.SimpleString):
            return updated
        return cst.Name(str(hasattr(module, code(name)[1:-1])))

    # Methods
    # ---------------------------------------------------------------------------------------------

    def _member(
        self, original: cst.Call, updated: cst.Call, value: Value
    ) -> cst.BaseExpression:
        """A method of an array, a shape or a network."""
        func: Any = updated.func
        name, x = func.attr.value, code(func.value)
        call = self._call_of(name, original, updated, x=x, value=value)
        if value.is_array and self.in_construction:
            return self._numpy_method(call, original, updated)
        if value.is_array:
            return self._method(call)
        if value.kind == "numpy" and not self.in_construction:
            module = code(original.func.value)  # type: ignore[attr-defined]
            text = self.framework.by_numpy(replace(call, x=""), module)
            return updated if text is None else self.parsed(text)
        if value.kind == "shape" and name == "numel":
            return self.parsed(f"math.prod({x})")
        if value.kind in NETWORKS:
            return self._method_of_network(call, updated)
        return updated

    def _method_of_network(self, call: Call, updated: cst.Call) -> cst.BaseExpression:
        if call.name == "add_module" and call.value.kind == "container":
            return updated
        if call.name == "parameters":
            return self._parameters(updated)
        if call.name in self.framework.setters:
            return self.parsed(written(self.framework.setters[call.name], call))
        return updated

    def _refuse_method_of_both(self, call: cst.Call) -> None:
        """Refuse a method for arrays of NumPy, here, and of the backend, in forward."""
        func: Any = call.func
        phases = self.observed.phases(f"{self.class_name}.{func.attr.value}")
        is_given_arrays = any(self._argument(one).kind == "array" for one in call.args)
        if self.in_construction and FORWARD in phases and is_given_arrays:
            raise NeedsHand(
                f"{func.attr.value} is called with arrays while the network is created, where they "
                "are NumPy's, and in forward: make it a function outside the class"
            )

    def _parameters(self, updated: cst.Call) -> cst.Call:
        method = self.functions[-1].path.rpartition(".")[2]
        if self.start_code.only_counts(method):
            return updated
        raise NeedsHand(
            "parameters have names here: network.set_trainable('layer.*', False) freezes them"
        )

    def _method(self, call: Call) -> cst.BaseExpression:
        methods, functions = self.framework.methods, self.framework.functions
        if call.name in methods:
            return self.parsed(written(methods[call.name], call))
        if call.name in functions:
            return self.parsed(written(functions[call.name], call.as_function()))
        name = call.name.removesuffix("_")
        if self.framework.has(name):
            return self.parsed(plain(replace(call, name=name)))
        raise NeedsHand(f"there is no {call.name} of arrays in nn")

    def _numpy_method(
        self, call: Call, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression:
        """A method of an array while a network is created."""
        if call.name.endswith("_") and self.source.is_statement(original):
            return updated  # see `leave_Expr`
        entry = self.framework.numpy_methods.get(call.name)
        if entry is not None:
            return self.parsed(written(entry, call))
        if call.name.endswith("_"):  # of a start value
            return updated
        if not hasattr(np.ndarray, call.name):
            return self.parsed(self.framework.in_numpy(call))
        given = joined(call.args, self.framework.in_axes(call.kwargs))
        return self.parsed(f"{call.x}.{call.name}({given})")

    # Sizes that are found out in the run
    # ---------------------------------------------------------------------------------------------

    def _with_sizes(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Add the arguments that tell an instance of its sizes."""
        cls = self.source.meaning(original.func)
        if not isclass(cls):
            return updated
        networks = self.observed.objects["returned"][self.source.end(original)]
        args = list(updated.args)
        for name, found in self.program.sizes.given(cls, networks).items():
            value = cst.parse_expression(self._by_instance(name, found))
            args.append(cst.Arg(value, keyword=cst.Name(name), equal=EQUAL))
        return updated.with_changes(args=args)

    def _by_instance(self, what: str, values: Sequence[tuple[Any, Any]]) -> str:
        """The source of a size: a number, or an argument where instances of a class differ.

        Args:
            what: What the size is called.
            values: Layers, each with its size.
        """
        sizes = {size for _, size in values}
        if len(sizes) == 1:
            return str(sizes.pop())
        is_clear = len({id(layer) for layer, _ in values}) == len(values)
        is_in_init = self.functions[-1].path == f"{self.class_name}.__init__"
        if sizes and is_clear and is_in_init:
            return self.program.sizes.add(self.cls, what, values)
        found = ", ".join(sorted(map(str, sizes))) or "never"
        raise NeedsHand(f"{what} is found out when it runs ({found}): write it out")


def _elements(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The elements of a tuple; the one that another expression is."""
    if isinstance(node, cst.Tuple):
        return [one.value for one in node.elements]
    return [node]


def _keyword(arg: cst.Arg) -> str:
    return arg.keyword.value if arg.keyword else ""


def _with_args(call: cst.Call, args: list[cst.Arg]) -> cst.Call:
    """A call with fewer arguments, without a comma behind the last."""
    if len(args) == len(call.args):
        return call.with_changes(args=args)
    last = [one.with_changes(comma=NO_COMMA) for one in args[-1:]]
    return call.with_changes(args=[*args[:-1], *last])
