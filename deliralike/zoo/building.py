"""From a name of the zoo, settings and weights to a native network of a backend."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, overload

from deliralike import own_code
from deliralike.errors import (
    AnotherBackend,
    ArgumentError,
    DeliralikeError,
    SettingError,
    WeightFileMissing,
)
from deliralike.zoo import loading, published
from deliralike.zoo.registry import find

if TYPE_CHECKING:
    from deliralike.backends.chainer.network import AbstractChainerNetwork
    from deliralike.backends.jax.network import AbstractJaxNetwork
    from deliralike.backends.torch.network import AbstractTorchNetwork
    from deliralike.network.interface import Networks

Weights = str | os.PathLike[str] | Mapping[str, Any] | None


@overload
def build(
    name: str,
    *,
    backend: Literal["torch"],
    seed: int = 0,
    dtype: str = "float32",
    device: Any = None,
    weights: Weights = None,
    **settings: Any,
) -> AbstractTorchNetwork: ...


@overload
def build(
    name: str,
    *,
    backend: Literal["chainer"],
    seed: int = 0,
    dtype: str = "float32",
    device: Any = None,
    weights: Weights = None,
    **settings: Any,
) -> AbstractChainerNetwork: ...


@overload
def build(
    name: str,
    *,
    backend: Literal["jax"],
    seed: int = 0,
    dtype: str = "float32",
    device: Any = None,
    weights: Weights = None,
    **settings: Any,
) -> AbstractJaxNetwork: ...


@overload
def build(
    name: str,
    *,
    backend: str | Networks[Any],
    seed: int = 0,
    dtype: str = "float32",
    device: Any = None,
    weights: Weights = None,
    **settings: Any,
) -> Any: ...


def build(
    name: str,
    *,
    backend: str | Networks[Any],
    seed: int = 0,
    dtype: str = "float32",
    device: Any = None,
    weights: Weights = None,
    **settings: Any,
) -> Any:
    """Create a network of the zoo by name: a native network of the backend.

    Args:
        name: A name of `list`.
        backend: ``"torch"``, ``"chainer"``, ``"jax"`` …, or the backend itself.
        seed: The seed of the start values, which are the same on every backend.
        dtype: ``"float32"``, ``"float64"`` …
        device: One of ``backend.devices()``; the backend's first when not given.
        weights: The name of published weights, which are downloaded once: ``"pretrained"`` for the
            architecture's usual ones, ``"torchvision/IMAGENET1K_V2"``,
            ``"timm/resnet50.a1_in1k"``, ``"hf-hub:google/vit-base-patch16-224"``; see `weights`.
            Or a file, or arrays by name, see `load`. They may be for another number of input
            channels or classes: the stem is then adapted, the head left at the start values, and
            the logger ``"deliralike"`` says so.
        settings: Settings to change in the architecture; see ``find(name).settings``. The number of
            outputs is ``num_classes`` everywhere, and may have the reference's name too
            (``out_channels``, ``classes``). Published weights bring those that they need, such as
            the number of classes, where none are given. A class of another framework is ported (see
            `deliralike.port`), with its own start values, where its attribute ``input_shape`` or a
            setting of that name has the shape of a sample; ``proof=False`` leaves out the proof.

    Raises:
        UnknownName: The zoo has no such architecture.
        ArgumentError: The architecture has no such setting.
        SettingError: A setting's value makes no sense.
        BackendUnavailable: The backend is unknown, not installed or broken.
        AnotherBackend: It is a class of another framework that is not ported.
        ProofFailed: Its port is not proved.
        StateError, WeightFileError: The weights do not fit, or the file is missing, cannot be read,
            or is not the published one.
        DownloadError: Published weights are not in the cache and cannot be downloaded.

    Example:
        >>> build("resnet18", backend="torch", num_classes=10).count_parameters()
        11181642
    """
    architecture, settings = find(name).apart(settings)
    _refuse_pretrained(name, settings)
    settings = architecture.rename_settings(settings)
    bound = architecture.on(backend, seed=seed, dtype=dtype, device=device)
    entry = None
    if published.is_name(weights):
        entry = published.choose(name, str(weights), architecture.settings)
        settings = dict(entry.settings) | settings
        # refuses an unknown one before anything is downloaded
        architecture.arguments(**settings)
        weights = entry.fetch()
    with _blaming_settings(name, settings):
        model = bound(**settings)
    if weights is None:
        return model
    try:
        report = loading.load(model, weights)
    except WeightFileMissing as error:
        error.add_note(
            f"Published weights have other names: {published.how_to_see_all(name)}"
        )
        raise
    if entry is not None:
        model.published_weights = entry.without_head() if report.skipped else entry
    return model


def on_first(
    name: str,
    backends: Sequence[str],
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> Any:
    """Build a network on the first backend that it can be on, with those settings that it has.

    No class is ported.
    """
    architecture = find(name)
    own_class = {"proof": None} if own_code.is_name(name) else {}
    settings = architecture.rename_settings(settings or {})
    own = {
        key: value for key, value in settings.items() if key in architecture.words
    } | own_class
    for backend in backends[:-1]:
        try:
            return build(name, backend=backend, seed=seed, **own)
        except AnotherBackend:
            continue
    return build(name, backend=backends[-1], seed=seed, **own)


def _refuse_pretrained(name: str, settings: Mapping[str, Any]) -> None:
    if "pretrained" in settings:
        raise ArgumentError(
            f"{name} has no setting 'pretrained': say weights='pretrained', or one of the names in "
            f"zoo.weights({name!r})"
        )


@contextmanager
def _blaming_settings(name: str, settings: Mapping[str, Any]) -> Iterator[None]:
    """Name the settings with which a network could not be built.

    Python's own error only names the operation that failed.
    """
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, DeliralikeError) or not settings:
            raise
        shown = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        raise SettingError(
            f"{name} cannot be built with {shown}: {error}. A setting is of another type than the "
            f"network expects; see deliralike.zoo.find({name!r}).settings"
        ) from error
