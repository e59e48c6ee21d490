"""What one does with a model of the zoo once it is built: take its features, give it another head."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from deliralike import network as networks
from deliralike.errors import CapabilityError, StateError, UnknownName, suggestion
from deliralike.zoo.encoders import run_stages_of
from deliralike.zoo.model import Model


def features(
    network: Any, *inputs: Any, stages: str | Sequence[str] | None = None
) -> dict[str, Any]:
    """What stages of a model put out, by name: with gradients, so in losses as well.

    Where the model can stop early, what comes after the last wanted stage is not computed. Its mode
    is as it is: put a fixed network into evaluation mode first, so that its statistics stay.

    Args:
        network: A `Model` of the zoo or of your own, on any backend.
        inputs: What the model takes, as native arrays.
        stages: The stages' names, in the order wanted, or one name; all of them when not given.
            `stages` tells them.

    Raises:
        UnknownName: The model has no such stage; the message names the nearest.
        CapabilityError: The network names no stages.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("resnet18", backend="torch").eval()
        >>> x = net.backend.array(zoo.find("resnet18").sample()[0])
        >>> {name: tuple(array.shape) for name, array in features(net, x, stages=["layer2", "layer1"]).items()}
        {'layer2': (1, 128, 28, 28), 'layer1': (1, 64, 56, 56)}
    """
    if not callable(getattr(network, "forward_stages", None)):
        raise CapabilityError(
            f"{type(network).__name__} names no stages: derive it from deliralike.zoo.Model and "
            "write forward_stages"
        )
    if stages is None:
        return dict(network.forward_stages(*inputs))
    wanted = (stages,) if isinstance(stages, str) else tuple(stages)
    found = run_stages_of(network, inputs, wanted)
    for name in wanted:
        if name not in found:
            raise UnknownName(
                f"{type(network).__name__} has no stage {name!r}. {suggestion(name, found)}"
            )
    return {name: found[name] for name in wanted}


def reset_head(network: Any, num_classes: int, *, seed: int = 0) -> Any:
    """A new network with the same weights, but a head of its own for another number of classes.

    It is made from the arguments that the old one was made with, on the same backend and device and
    in the same type; training mode and frozen parameters are as before, apart from the head, which
    can be trained. The old network stays as it is, and shares no weights with the new one.
    Optimizers are not taken over.

    Args:
        network: A `Model` of the zoo or of your own, on any backend.
        num_classes: The number of outputs, whatever the model calls them; 0 takes the head off
            where the model knows that.
        seed: Keys the head's start values.

    Raises:
        CapabilityError: The network has no head, shares the head's weights with other layers, or
            was made from other networks, which its arguments do not tell.
        SettingError: The number makes no sense.
        StateError: Not only the head depends on the number of outputs.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("resnet8", backend="torch").eval()
        >>> net.set_trainable("layer?.*", False)[0]
        'layer1.0.conv1.weight'
        >>> other = reset_head(net, 3)
        >>> other.fc.weight.shape[0], other.training, other.conv1.weight.requires_grad, other.layer1[0].conv1.weight.requires_grad
        (3, False, True, False)
    """  # noqa: E501 - what it prints
    settings = _settings(network) | {network.outputs: num_classes}
    new = networks.build(
        type(network), seed=seed, dtype=network.dtype_name, device=network.device_name, **settings
    )
    head = _head(new)
    before, rest = (
        network.neutral_slots(),
        [name for name in new.neutral_slots() if name not in head],
    )
    _take_over(network, new, {name: before[name].read() for name in rest if name in before}, rest)
    _as_before(network, new, rest)
    return new


def _settings(network: Any) -> dict[str, Any]:
    """The arguments that a model was made with, if it can be made again with another head."""
    name = type(network).__name__
    if not isinstance(network, Model):
        raise CapabilityError(
            f"{name} does not state its head: derive it from deliralike.zoo.Model"
        )
    parameters = inspect.signature(type(network).written_once.__init__).parameters
    if network.outputs not in parameters:
        raise CapabilityError(
            f"{name} has no setting {network.outputs!r}, the number of its outputs"
        )
    if not network.head_paths and _number(network, parameters) != 0:
        raise CapabilityError(f"{name} has no head that could be replaced")
    settings = dict(network.init_kwargs)
    for argument, value in settings.items():
        if (
            _holds_networks(value)
            or parameters.get(argument, _ANY).kind is inspect.Parameter.VAR_POSITIONAL
        ):
            raise CapabilityError(
                f"{name} was made from other networks ({argument}=…), and cannot be made again"
            )
    return settings


_ANY = inspect.Parameter("any", inspect.Parameter.KEYWORD_ONLY)


def _number(network: Any, parameters: Any) -> Any:
    return network.init_kwargs.get(network.outputs, parameters[network.outputs].default)


def _holds_networks(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, networks.Block) or (
        isinstance(value, list | tuple) and any(map(_holds_networks, value))
    )


def _head(network: Any) -> set[str]:
    """The names of the head's parameters and buffers, also those under which the same layers stand elsewhere."""
    slots = network.neutral_slots()
    heads = {id(_block(network, path)) for path in network.head_paths}
    natives = {
        id(slot.native): name for name, slot in slots.items() if _below(name, network.head_paths)
    }
    names = {
        name for name, slot in slots.items() if slot.is_parameter and id(slot.native) in natives
    }
    for name in names:
        if (
            not _below(name, network.head_paths)
            and id(_block(network, name.rpartition(".")[0])) not in heads
        ):
            head = natives[id(slots[name].native)]
            raise CapabilityError(
                f"{type(network).__name__}: the head's {head!r} is tied to {name!r}"
            )
    return names | set(natives.values())


def _block(network: Any, path: str) -> Any:
    return reduce(getattr, path.split("."), network) if path else network


def _below(name: str, paths: Iterable[str]) -> bool:
    return any(name == path or name.startswith(f"{path}.") for path in paths)


def _take_over(old: Any, new: Any, state: dict[str, Any], names: Sequence[str]) -> None:
    """The weights of these names."""
    what = f"more than the head of {type(old).__name__} depends on {old.outputs}"
    if missing := [name for name in names if name not in state]:
        raise StateError(f"{what}: there are no weights for {missing[0]!r}")
    if not names:  # a network that is nothing but its head
        return
    try:
        new.load_neutral_state(state, strict=False)
    except StateError as error:
        raise StateError(f"{what}: {error}") from None


def _as_before(old: Any, new: Any, names: Iterable[str]) -> None:
    """Training mode, block by block, and which of the parameters are frozen."""
    blocks = dict(old.named_blocks())
    for path, block in new.train(old.training).named_blocks():
        if hasattr(block, "training"):
            block.training = getattr(blocks.get(path), "training", old.training)
    before, after = old.neutral_slots(), new.neutral_slots()
    for name in names:
        if after[name].is_parameter:
            after[name].trainable = before[name].trainable
