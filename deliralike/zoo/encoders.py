"""Classifiers as encoders of segmentation networks.

This module finds which stages a decoder takes, and how wide they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deliralike.errors import CapabilityError, SettingError, ShapeError
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, Distribution, HeUniform, XavierUniform
from deliralike.zoo.blocks import by_dims
from deliralike.zoo.keymaps import KeyMap, below, by_patterns
from deliralike.zoo.mobile import check_output_stride
from deliralike.zoo.model import Model
from deliralike.zoo.registry import Architecture
from deliralike.zoo.summary import Run, Stage, architecture_of, run_on_shapes, stages_of


@dataclass(frozen=True)
class Tap:
    """One input of a decoder: a stage of its encoder.

    Attributes:
        reduction: The factor by which it is smaller than the input along each axis.
        stage: The stage's name; None for the input itself.
        channels: The number of channels.
    """

    reduction: int
    stage: str | None
    channels: int


@dataclass(frozen=True)
class Encoder:
    """A classifier and its settings, to be built as an encoder.

    Layers that none of its stages runs through are left out.

    Example:
        >>> encoder = Encoder.of("resnet18", in_channels=1)
        >>> [(tap.stage, tap.channels) for tap in encoder.taps([1, 2, 32], "Decoder")]
        [(None, 1), ('stem', 64), ('layer4', 512)]
        >>> encoder.unused
        ('avgpool', 'fc')
    """

    architecture: Architecture
    settings: Mapping[str, Any]
    stages: Mapping[str, Stage]
    unused: tuple[str, ...]

    @classmethod
    def of(
        cls,
        network: Any,
        in_channels: int = 3,
        dims: int = 2,
        settings: Mapping[str, Any] | None = None,
    ) -> Encoder:
        """Look at a classifier on shapes alone.

        Args:
            network: A name of the zoo, an `Architecture`, or a class written once.
            in_channels: Number of input channels.
            dims: Number of spatial axes.
            settings: Further settings of the classifier.

        Raises:
            UnknownName: The zoo has no such architecture; the message names the nearest.
            ArgumentError: It lacks the setting in_channels, num_classes, dims or one of `settings`.
            SettingError: It names no stages, or one of the settings makes no sense.
        """
        architecture = architecture_of(network)
        own = {"in_channels": in_channels, "num_classes": 0}
        if dims != 2:
            own["dims"] = dims
        own.update(settings or {})
        shape = (
            None if architecture.shape is not None else (in_channels, *(256,) * dims)
        )
        try:
            run = run_on_shapes(architecture, shape, own, "forward_stages")
        except CapabilityError as error:
            raise SettingError(
                f"{architecture.name} cannot be an encoder: {error}"
            ) from None
        passed_by = getattr(run.network, "not_for_decoders", ())
        stages = {
            name: stage
            for name, stage in stages_of(run).items()
            if name not in passed_by
        }
        return cls(architecture, own, stages, _unused(run))

    def taps(self, reductions: Iterable[int], owner: str) -> tuple[Tap, ...]:
        """Return the last stage for each reduction.

        For reduction 1 it is the input itself, unless there is such a stage.

        Raises:
            SettingError: No stage has one of them; the message lists those that there are.
        """
        reductions = tuple(reductions)
        taps = {1: Tap(1, None, self.settings["in_channels"])}
        described = []
        for name, stage in self.stages.items():
            reduction = _reduction(stage)
            if reduction is None:
                described.append(f"{name} (no image)")
            else:
                described.append(f"{name} (1/{reduction})")
                taps[reduction] = Tap(reduction, name, stage.channels)
        missing = [reduction for reduction in reductions if reduction not in taps]
        if missing:
            raise SettingError(
                f"{owner}: encoder {self.architecture.name!r} has no stage at "
                f"{_fractions(missing)} of the input's size, which this decoder needs; its stages "
                f"are {', '.join(described)}"
            )
        return tuple(taps[reduction] for reduction in reductions)

    def dilated(self, output_stride: int, owner: str) -> Encoder:
        """Return the same encoder with its last stages dilated.

        No stage is then more than `output_stride` times smaller than the input.

        Raises:
            SettingError: The architecture has no such setting.
        """
        check_output_stride(output_stride, owner)
        if "output_stride" not in self.architecture.settings:
            raise SettingError(
                f"{owner}: encoder {self.architecture.name!r} cannot keep its last stages at "
                f"1/{output_stride} of the input's size, since it has no setting output_stride: "
                "take a residual network, an EfficientNet or mobilenet_v2"
            )
        settings = {**self.settings, "output_stride": output_stride}
        return Encoder(self.architecture, settings, self.stages, self.unused)

    def build(self) -> Any:
        """Build the network, as a block of the network that is being built."""
        arguments = self.architecture.arguments(**self.settings)
        network = self.architecture.network(**arguments)
        blocks = dict(network.named_blocks())
        for path in self.unused:
            parent, _, name = path.rpartition(".")
            setattr(blocks[parent], name, network.nn.Identity())
        return network


def _unused(run: Run) -> tuple[str, ...]:
    """Return the topmost blocks that did not run, and below which nothing did."""
    used = {""}
    for path in run.trace.blocks:
        while path:
            used.add(path)
            path = path.rpartition(".")[0]
    unused: list[str] = []
    for path, _ in run.network.named_blocks():
        is_below_unused = any(path.startswith(f"{above}.") for above in unused)
        if path not in used and not is_below_unused:
            unused.append(path)
    return tuple(unused)


def _reduction(stage: Stage) -> int | None:
    """Return the nearest power of two if it is the same along each axis, else None."""
    exponents = {round(math.log2(max(1, reduction))) for reduction in stage.reduction}
    if len(exponents) != 1:
        return None
    return 2 ** exponents.pop()


def _fractions(reductions: Sequence[int]) -> str:
    return ", ".join(f"1/{reduction}" for reduction in reductions)


_SAME_NAMES = KeyMap("timm", by_patterns({"(.*)": r"\1"}))


class EncoderDecoder(Model):
    """The base of networks made of an `encoder`, a `decoder` and a `segmentation_head`.

    Names, order, shapes and start values are those of segmentation_models_pytorch. The encoder is
    any classifier of the zoo that has stages at the reductions which the decoder takes; its layers
    keep their names below ``encoder.``, and the state is that of the whole classifier without its
    head, also where the decoder takes the first stages only. The other layouts of the classifier
    are layouts of the whole network: ``"timm"`` is that of the reference's encoders ``timm-…``,
    ``"timm universal"`` that of its ``tu-…``, of which some end with the last stage taken.

    Attributes:
        multiple: The number of which each spatial axis of the input must be a multiple.
    """

    head_paths = ("segmentation_head.0",)
    multiple = 1
    encoder: Any
    decoder: Any
    segmentation_head: Any

    @property
    def stem_paths(self):  # type: ignore[override]
        """The encoder's stem."""
        return tuple(
            f"encoder.{path}" for path in getattr(self.encoder, "stem_paths", ())
        )

    @property
    def keymaps(self):  # type: ignore[override]
        """The encoder's below ``encoder.``, and timm's below ``encoder.model.``."""
        own = getattr(self.encoder, "keymaps", ())
        maps = [below(each, "encoder.", "encoder.") for each in own]
        timm = next((each for each in own if each.name == "timm"), _SAME_NAMES)
        return (*maps, below(timm, "encoder.", "encoder.model.", "timm universal"))

    def encode_with(
        self,
        encoder: Any,
        depths: Iterable[int],
        in_channels: int,
        dims: int,
        settings: Mapping[str, Any] | None,
        output_stride: int = 32,
    ) -> tuple[int, ...]:
        """Build the encoder.

        Args:
            encoder: A name of the zoo, an `Architecture`, or a class written once.
            depths: The number of times that each of the decoder's inputs is halved, from the finest
                to the coarsest; 0 is the network's input.
            in_channels, dims: The channels and the spatial axes of the network's input.
            settings: Further settings of the encoder.
            output_stride: The largest reduction; stages of larger ones are dilated instead.

        Returns:
            The channels of the decoder's inputs.
        """
        owner = type(self).__name__
        depths = tuple(depths)
        by_dims(self.nn, dims, "Conv")
        plan = Encoder.of(encoder, in_channels, dims, settings)
        taps = plan.taps([2**depth for depth in depths], owner)
        if 2 ** max(depths) > output_stride:
            plan = plan.dilated(output_stride, owner)
        self.encoder = plan.build()
        inputs = []
        for tap in taps:
            reduction = min(tap.reduction, output_stride)
            inputs.append((tap.stage, reduction))
        self.decoder_inputs = tuple(inputs)
        return tuple(tap.channels for tap in taps)

    def forward(self, x):
        return self.segmentation_head(self.forward_stages(x)["decoder"])

    def forward_stages(self, x):
        """Return the encoder's stages that the decoder needs, and ``decoder``, the head's input."""
        _divisible(self, x, self.multiple)
        names = tuple(name for name, _ in self.decoder_inputs if name is not None)
        stages = run_stages_of(self.encoder, (x,), names)
        arrays = []
        for name, _ in self.decoder_inputs:
            arrays.append(x if name is None else stages[name])
        if self.multiple > 1:
            self._check_sizes(x, arrays)
        stages["decoder"] = self.decoder(arrays, x.shape[2:])
        return stages

    def _check_sizes(self, x, arrays):
        """Check that each stage is smaller than the input by exactly the factor expected.

        The factors differ where the encoder does not pad its convolutions.
        """
        for (name, reduction), array in zip(self.decoder_inputs, arrays, strict=True):
            wanted = tuple(size // reduction for size in x.shape[2:])
            if tuple(array.shape[2:]) != wanted:
                raise ShapeError(
                    f"{checks.where(self)}: an input of shape {tuple(x.shape)} gives a stage "
                    f"{name!r} of size {tuple(array.shape[2:])}, wanted {wanted}: take another "
                    "encoder, or EncoderUNet (encoder_unet), which takes any sizes"
                )


def run_stages_of(
    model: Any, inputs: tuple[Any, ...], wanted: tuple[str, ...]
) -> dict[str, Any]:
    """Run the stages of a model: at least those wanted, no later ones where it can stop."""
    if getattr(model, "can_stop", False):
        return model.forward_stages(*inputs, until=wanted)
    return model.forward_stages(*inputs)


def depth_of(encoder_depth: int, least: int, owner: str) -> int:
    """Return how often the encoder halves the size.

    Raises:
        SettingError: It is less than the decoder needs, or more than 5.
    """
    if isinstance(encoder_depth, bool) or encoder_depth not in range(least, 6):
        raise SettingError(
            f"{owner}: encoder_depth={encoder_depth!r}; wanted a whole number from {least} to 5"
        )
    return encoder_depth


def segmentation_head(
    nn: Any,
    in_channels: int,
    num_classes: int,
    kernel_size: int,
    dims: int,
    upsampling: int = 1,
) -> Any:
    """Make a convolution to the classes, and a resize to the size of the input.

    The resize is linear, with aligned corners.
    """
    checks.positive(num_classes, "num_classes", "segmentation head")
    kind = by_dims(nn, dims, "Conv")
    conv = kind(in_channels, num_classes, kernel_size, padding=kernel_size // 2)
    if upsampling == 1:
        return nn.Sequential(conv)
    resize = nn.Upsample(
        scale_factor=float(upsampling), mode="linear", align_corners=True
    )
    return nn.Sequential(conv, resize)


HEAD_START: dict[str, Distribution] = {
    "segmentation_head.0.weight": XavierUniform(),
    "segmentation_head.0.bias": ZEROS,
}
DECODER_START: dict[str, Distribution] = {
    "decoder.*.0.weight": HeUniform(),
    "decoder.*.0.bias": ZEROS,
    **HEAD_START,
}


def _divisible(model: Any, x: Any, multiple: int) -> None:
    """Check that each spatial axis is a multiple of what the decoder's joins need.

    Raises:
        ShapeError: One is not; the message tells what to pad to.
    """
    size = tuple(x.shape[2:])
    if any(length % multiple for length in size):
        padded = tuple(-(-length // multiple) * multiple for length in size)
        raise ShapeError(
            f"{checks.where(model)}: an input of shape {tuple(x.shape)}; each spatial axis must be "
            f"a multiple of {multiple}: pad it to {padded}"
        )
