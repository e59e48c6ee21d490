"""Connectionist temporal classification: labels without known positions in a sequence."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks
from deliralike.nn.arguments import in_float32
from deliralike.nn.losses import Losses
from deliralike.nn.primitives import Array

# the logarithm of no probability; its derivative is 0 where minus infinity has none
_NEVER = -1e30
_IMPOSSIBLE = 1e29


class SequenceLosses(Losses):
    """Losses of sequences of labels."""

    @in_float32
    def ctc_loss(
        self,
        log_probs: Array,
        targets: Array,
        input_lengths: Array | Sequence[int],
        target_lengths: Array | Sequence[int],
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
    ) -> Array:
        """The negative logarithm of the probability of a sequence of labels, over all alignments.

        Source: Graves et al. 2006, doi 10.1145/1143844.1143891.

        Args:
            log_probs: Logarithms of probabilities of classes, as `log_softmax` gives them.
            targets: Labels, none of them `blank`: rows that are padded, or one after another.
            input_lengths, target_lengths: One for each sample.
            blank: The class between labels.
            reduction: ``"mean"`` (losses divided by the lengths of their targets, then their mean),
                ``"sum"`` or ``"none"``.
            zero_infinity: Whether a sample whose target is longer than its input counts as 0 in
                place of infinity.

        Shapes:
            ``(time, batch, classes)`` and ``(batch, most labels)`` or ``(labels of all,)`` give a
            scalar, or ``(batch,)`` for ``"none"``; without a batch ``(time, classes)``,
            ``(labels,)`` and lengths without axes give a scalar.
        """
        if log_probs.ndim == 2:
            x = self.expand_dims(log_probs, 1)
            steps = self._lengths(input_lengths, log_probs, 1)
            counts = self._lengths(target_lengths, log_probs, 1)
            losses = self.ctc_loss(
                x, targets, steps, counts, blank, reduction, zero_infinity
            )
            return losses[0] if reduction == "none" else losses
        if log_probs.ndim != 3:
            raise ShapeError(
                f"ctc_loss: log_probs has shape {tuple(log_probs.shape)}; wanted (time, batch, "
                "classes) or (time, classes)"
            )
        time, batch, classes = log_probs.shape
        if not 0 <= blank < classes:
            raise SettingError(
                f"ctc_loss: blank={blank!r}; wanted one of {classes} classes"
            )
        steps = self._lengths(input_lengths, log_probs, batch)
        counts = self._lengths(target_lengths, log_probs, batch)
        self.checked(steps, checks.InRange(time + 1, "ctc_loss: input_lengths"))
        labels = self._padded_labels(targets, counts, batch)
        self.checked(labels, checks.InRange(classes, "ctc_loss: targets"))
        losses = -self._alignments(log_probs, labels, steps, counts, blank)
        infinite = 0.0 if zero_infinity else np.inf
        losses = self.where(losses > _IMPOSSIBLE, infinite, losses)
        if reduction == "mean":
            lengths = self.cast(counts, log_probs)
            losses = losses / self.where(lengths > 1, lengths, 1.0)
        return self._reduce(losses, reduction)

    def _lengths(self, lengths: Any, like: Array, batch: int) -> Array:
        """Return lengths as an array (batch,)."""
        if not hasattr(lengths, "dtype"):
            lengths = np.asarray(lengths)
        if isinstance(lengths, np.ndarray):
            lengths = self.constant(lengths, like=like)
        checks.whole_numbers(lengths, "ctc_loss: lengths")
        if tuple(lengths.shape) not in ((batch,), ()):
            raise ShapeError(
                f"ctc_loss: lengths of shape {tuple(lengths.shape)} came, wanted one for each of "
                f"{batch} samples"
            )
        return self.reshape(lengths, (-1,))

    def _padded_labels(self, targets: Array, counts: Array, batch: int) -> Array:
        """Return labels as rows (batch, most labels), 0 behind the end."""
        checks.whole_numbers(targets, "ctc_loss: targets")
        rows = targets
        if targets.ndim == 1:
            known = self.concrete(counts)
            most = targets.shape[0] if known is None else int(known.max(initial=0))
            ends = self.cumsum(counts, 0)
            starts = self.expand_dims(ends - counts, 1)
            places = starts + self.constant(np.arange(most)[None], like=targets)
            # one label more, as there may be none
            targets = self.pad_constant(targets, ((0, 1),), 0)
            last = targets.shape[0] - 1
            rows = self.select(
                targets, self.where(places > last, places * 0 + last, places), 0
            )
        columns = self.constant(np.arange(rows.shape[1])[None], like=targets)
        inside = columns < self.expand_dims(counts, 1)
        return self.where(inside, rows, rows * 0)

    def _alignments(
        self, log_probs: Array, labels: Array, steps: Array, counts: Array, blank: int
    ) -> Array:
        """Return the logarithm of the sum of all alignments' probabilities: (batch,).

        A state is a label or one of the blanks around labels. Alignments stay in a state, go on to
        the next one, or go from a label to another label over the blank between them.
        """
        time, batch, _ = log_probs.shape
        count = labels.shape[1]
        blanks = labels * 0 + blank
        pairs = self.reshape(self.stack([blanks, labels], 2), (batch, 2 * count))
        first = self.constant(np.full((batch, 1), blank), like=labels)
        states = self.concatenate([pairs, first], 1)  # (batch, 2 * labels + 1)
        size = states.shape[1]
        index = self.broadcast_to(self.expand_dims(states, 0), (time, batch, size))
        emitted = self.select_along(log_probs, index, 2)
        emitted = self.where(emitted < _NEVER, _NEVER, emitted)  # NaN stays
        before = self._shifted(states, 1, 2, blank)
        may_skip = (states != blank) & (states != before)
        times = self.constant(np.arange(time)[:, None], like=steps)
        runs = self.cast(times < self.expand_dims(steps, 0), log_probs)
        is_start = self.constant(np.arange(size)[None] < 1, like=log_probs)
        start = self.zeros((batch, size), like=log_probs)
        start = self.where(self.broadcast_to(is_start, start.shape), start, _NEVER)

        def step(scores: Array, x: Array) -> tuple[Array, Array]:
            stay = self.where(scores < _NEVER, _NEVER, scores)
            forward = self._shifted(stay, 1, 1, _NEVER)
            skip = self.where(may_skip, self._shifted(stay, 1, 2, _NEVER), _NEVER)
            ways = self.stack([stay, forward, skip], 0)
            moved = self.logsumexp(ways, 0) + x[:, :size]
            scores = self.where(x[:, size:] > 0.0, moved, scores)
            return scores, scores[:, :1]

        # Before the first step the only state is the blank in front: it may stay or go on.
        inputs = self.concatenate([emitted, self.expand_dims(runs, -1)], 2)
        scores, _ = self.scan(step, start, inputs)
        return self._final(scores, counts)

    def _final(self, scores: Array, counts: Array) -> Array:
        """Return the sum over the last label and the blank behind it."""
        last = self.expand_dims(counts * 2, 1)
        blank = self.select_along(scores, last, 1)
        before = self.where(last > 0, last - 1, last * 0)
        label = self.where(last > 0, self.select_along(scores, before, 1), _NEVER)
        return self.logsumexp(self.concatenate([blank, label], 1), 1)
