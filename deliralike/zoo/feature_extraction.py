"""Take features from a model of the zoo, or give it another head."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from typing import Any

from deliralike import network as networks
from deliralike.errors import CapabilityError, StateError, UnknownName, suggestion
from deliralike.zoo.encoders import run_stages_of
from deliralike.zoo.model import Model


def features(
    network: Any, *inputs: Any, stages: str | Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the outputs of stages of a model by name, with gradients.

    Where the model can stop early, what comes after the last wanted stage is not computed. The mode
    of the network is not changed: put a fixed network into evaluation mode first, so that its
    statistics stay. On JAX that also lets the stages be compiled, once for each shape of inputs.

    Args:
        network: A `Model` of the zoo or of your own, on any backend.
        inputs: The model's inputs, as native arrays.
        stages: The stages' names, in the order wanted, or one name; all of them when not given.
            `deliralike.zoo.stages` lists them.

    Raises:
        UnknownName: The model has no such stage; the message names the nearest.
        CapabilityError: The network names no stages.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("resnet18", backend="torch").eval()
        >>> x = net.backend.array(zoo.find("resnet18").sample()[0])
        >>> outputs = features(net, x, stages=["layer2", "layer1"])
        >>> {name: tuple(array.shape) for name, array in outputs.items()}
        {'layer2': (1, 128, 28, 28), 'layer1': (1, 64, 56, 56)}
    """
    if not callable(getattr(network, "forward_stages", None)):
        raise CapabilityError(
            f"{type(network).__name__} names no stages: derive it from deliralike.zoo.Model and "
            "write forward_stages"
        )
    if stages is None:
        return network.backend.program(_all_stages, network)(*inputs)
    wanted = (stages,) if isinstance(stages, str) else tuple(stages)
    outputs = network.backend.program(_first_stages, network)(wanted, *inputs)
    for name in wanted:
        if name not in outputs:
            raise UnknownName(
                f"{type(network).__name__} has no stage {name!r}. {suggestion(name, outputs)}"
            )
    return {name: outputs[name] for name in wanted}


def _all_stages(network: Any, *inputs: Any) -> dict[str, Any]:
    return dict(network.forward_stages(*inputs))


def _first_stages(
    network: Any, wanted: tuple[str, ...], *inputs: Any
) -> dict[str, Any]:
    return run_stages_of(network, inputs, wanted)


def reset_head(network: Any, num_classes: int, *, seed: int = 0) -> Any:
    """Make a network with the same weights and a new head for another number of classes.

    It is built with the arguments of the old network, on the same backend and device and in the
    same type; training mode and frozen parameters are as before, apart from the head, which can be
    trained. The old network is not changed, and shares no weights with the new one. Optimizers are
    not copied.

    Args:
        network: A `Model` of the zoo or of your own, on any backend.
        num_classes: The number of outputs, whatever the model calls them; 0 takes the head off
            where the model knows that.
        seed: The seed of the head's start values.

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
        >>> other.fc.weight.shape[0], other.training
        (3, False)
        >>> other.conv1.weight.requires_grad, other.layer1[0].conv1.weight.requires_grad
        (True, False)
    """
    settings = _settings(network) | {network.outputs: num_classes}
    new = networks.build(
        type(network),
        seed=seed,
        dtype=network.dtype_name,
        device=network.device_name,
        **settings,
    )
    head = _head(new)
    shared = [name for name in new.neutral_slots() if name not in head]
    _copy_weights(network, new, shared)
    _copy_modes(network, new, shared)
    published = getattr(network, "published_weights", None)
    if published is not None:
        new.published_weights = published.without_head()
    return new


def _settings(network: Any) -> dict[str, Any]:
    """Return the arguments with which a model can be built again."""
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
    settings = dict(network.init_kwargs)
    outputs = settings.get(network.outputs, parameters[network.outputs].default)
    if not network.head_paths and outputs != 0:
        raise CapabilityError(f"{name} has no head that could be replaced")
    for argument, value in settings.items():
        is_variadic = (
            argument in parameters
            and parameters[argument].kind is inspect.Parameter.VAR_POSITIONAL
        )
        if is_variadic or _holds_networks(value):
            raise CapabilityError(
                f"{name} was made from other networks ({argument}=…), and cannot be made again"
            )
    return settings


def _holds_networks(value: Any) -> bool:
    if isinstance(value, networks.Block):
        return True
    if isinstance(value, dict):
        return any(map(_holds_networks, value.values()))
    return isinstance(value, list | tuple) and any(map(_holds_networks, value))


def _head(network: Any) -> set[str]:
    """Return the names of the head's parameters and buffers.

    They include the names that the same layers have elsewhere in the network.
    """
    slots = network.neutral_slots()
    heads = {id(_block(network, path)) for path in network.head_paths}
    head_names = {}  # by native parameter or buffer
    for name, slot in slots.items():
        if _is_below(name, network.head_paths):
            head_names[id(slot.native)] = name
    names = set(head_names.values())
    for name, slot in slots.items():
        if not slot.is_parameter or id(slot.native) not in head_names:
            continue
        names.add(name)
        block = _block(network, name.rpartition(".")[0])
        if id(block) not in heads and not _is_below(name, network.head_paths):
            head = head_names[id(slot.native)]
            raise CapabilityError(
                f"{type(network).__name__}: the head's {head!r} is tied to {name!r}"
            )
    return names


def _block(network: Any, path: str) -> Any:
    if not path:
        return network
    return reduce(getattr, path.split("."), network)


def _is_below(name: str, paths: Collection[str]) -> bool:
    prefixes = tuple(f"{path}." for path in paths)
    return name in paths or name.startswith(prefixes)


def _copy_weights(old: Any, new: Any, names: Sequence[str]) -> None:
    """Copy the weights of these names."""
    what = f"more than the head of {type(old).__name__} depends on {old.outputs}"
    slots = old.neutral_slots()
    for name in names:
        if name not in slots:
            raise StateError(f"{what}: there are no weights for {name!r}")
    if not names:  # a network that is nothing but its head
        return
    state = {name: slots[name].read() for name in names}
    try:
        new.load_neutral_state(state, strict=False)
    except StateError as error:
        raise StateError(f"{what}: {error}") from None


def _copy_modes(old: Any, new: Any, names: Iterable[str]) -> None:
    """Copy the training mode of each block, and which of the parameters are frozen."""
    blocks = dict(old.named_blocks())
    for path, block in new.train(old.training).named_blocks():
        if hasattr(block, "training"):
            block.training = getattr(blocks.get(path), "training", old.training)
    before = old.neutral_slots()
    after = new.neutral_slots()
    for name in names:
        if after[name].is_parameter:
            after[name].trainable = before[name].trainable
