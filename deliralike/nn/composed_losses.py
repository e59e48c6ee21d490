"""Losses made of others: over levels of outputs, or over the stages of another network."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deliralike.errors import ArgumentError, SettingError, ShapeError, suggestion
from deliralike.nn import geometry
from deliralike.nn.losses import Losses
from deliralike.nn.primitives import Array

Loss = Callable[[Array, Array], Array]


class ComposedLosses(Losses):
    """Functions that take another loss."""

    def deep_supervision(
        self,
        loss: Loss,
        predictions: Sequence[Array],
        target: Array | Sequence[Array],
        weights: Sequence[float] | None = None,
    ) -> Array:
        """Return the weighted sum of a loss over outputs at several levels of resolution.

        Source: Lee et al. 2015, arXiv 1409.5185; weights as in nnU-Net, Isensee et al. 2021, doi
        10.1038/s41592-020-01008-z.

        Args:
            loss: A function from one prediction and its target to a scalar.
            predictions: The outputs, from the finest level to the coarsest.
            target: The target at the finest resolution, labels ``(batch, *size)`` or an array with
                channels, of which each level gets the nearest elements; or one target for each
                level.
            weights: One for each level. When not given each level has half the weight of the one
                before it, and all together have 1. (nnU-Net's coarsest output has none: give
                ``weights`` that end in 0.)

        Shapes:
            ``(batch, channels, *size)``, ``(batch, channels, *coarser)`` … give a scalar.
        """
        predictions = list(predictions)
        if weights is None:
            halves = np.array([0.5**level for level in range(len(predictions))])
            weights = (halves / halves.sum()).tolist()
        if isinstance(target, list | tuple):
            targets = list(target)
        else:
            targets = [self._nearest(target, prediction) for prediction in predictions]
        if not len(predictions) == len(targets) == len(weights) > 0:
            raise ArgumentError(
                f"deep_supervision: {len(predictions)} predictions, {len(targets)} targets and "
                f"{len(weights)} weights; wanted as many of each, and at least one"
            )
        terms = []
        for weight, prediction, level_target in zip(
            weights, predictions, targets, strict=True
        ):
            if weight:
                terms.append(weight * loss(prediction, level_target))
        if not terms:
            return self.sum(predictions[0]) * 0.0
        return sum(terms[1:], terms[0])

    def perceptual_loss(
        self,
        network: Any,
        x: Array,
        y: Array,
        stages: Mapping[str, float] | Sequence[str],
        loss: Loss | None = None,
    ) -> Array:
        """Return the distance of two batches of pictures, as another network sees them.

        It is the weighted sum of a loss between the outputs of the network's stages.

        Source: Johnson et al. 2016, arXiv 1603.08155.

        Args:
            network: A model of the zoo (anything with ``forward_stages``), in evaluation mode, its
                parameters frozen.
            x, y: Pictures, normalized for that network.
            stages: Names of stages, as `deliralike.zoo.stages` lists them, with their weights;
                without weights each counts 1.
            loss: The loss between the outputs of one stage; `mse_loss` when not given.

        Shapes:
            ``(batch, channels, *size)`` twice gives a scalar.

        Raises:
            SettingError: There is no such stage, or the network is in training mode.
        """
        if network.training:
            raise SettingError(
                "perceptual_loss: the network is in training mode: call network.eval() and freeze "
                "it"
            )
        weights = stages if isinstance(stages, Mapping) else dict.fromkeys(stages, 1.0)
        outputs = network.forward_stages(x)
        wanted = network.forward_stages(y)
        unknown = next((name for name in weights if name not in outputs), None)
        if unknown is not None or not weights:
            raise SettingError(
                f"perceptual_loss: no stage {unknown!r}. {suggestion(str(unknown), list(outputs))}"
            )
        distance = loss or self.mse_loss
        terms = []
        for name, weight in weights.items():
            terms.append(weight * distance(outputs[name], wanted[name]))
        return sum(terms[1:], terms[0])

    def _nearest(self, target: Array, prediction: Array) -> Array:
        """Return a target at a prediction's resolution.

        Its last axes are resized, as many as the prediction has spatial axes.
        """
        axes = prediction.ndim - 2
        has_axes = target.ndim >= axes + 1
        if not has_axes or target.shape[0] != prediction.shape[0]:
            raise ShapeError(
                f"deep_supervision: a target of shape {tuple(target.shape)} does not fit a "
                f"prediction of shape {tuple(prediction.shape)}"
            )
        for dim in range(-axes, 0):
            have = target.shape[dim]
            want = prediction.shape[dim]
            if have != want:
                index = geometry.nearest_index(have, want, None)
                at = target.ndim + dim
                target = self.select(target, self.constant(index, like=target), at)
        return target
