"""Mutants of wiring: calls left out, repeated, reordered or cut off from the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.planted import Mistake
from tests.planted.fixtures import PIXEL_MEAN, PIXEL_STD
from tests.planted.planting import Plant, with_methods

# A residual block
# -----------------------------------------------------------------------------


def _branch(block: Any, x: Any) -> Any:
    return block.bn2(block.conv2(block.relu(block.bn1(block.conv1(x)))))


def _shortcut(block: Any, x: Any) -> Any:
    return x if block.downsample is None else block.downsample(x)


def _relu(block: Any, x: Any) -> Any:
    return block.relu(x)


def _block(
    path: str,
    join: Callable[[Any, Any, Any], Any] = lambda nn, y, x: y + x,
    branch: Callable[[Any, Any], Any] = _branch,
    shortcut: Callable[[Any, Any], Any] = _shortcut,
    last: Callable[[Any, Any], Any] = _relu,
) -> Plant:
    """A residual block with another branch, shortcut or sum."""
    return with_methods(
        path, forward=lambda self, x: last(self, join(self.nn, branch(self, x), shortcut(self, x)))
    )


def _no_activation_within(block: Any, x: Any) -> Any:
    return block.bn2(block.conv2(block.bn1(block.conv1(x))))


def _activation_before_norm(block: Any, x: Any) -> Any:
    return block.bn2(block.conv2(block.bn1(block.nn.relu(block.conv1(x)))))


def _norms_exchanged(block: Any, x: Any) -> Any:
    return block.bn1(block.conv2(block.nn.relu(block.bn2(block.conv1(x)))))


def _one_norm_for_both(block: Any, x: Any) -> Any:
    return block.bn1(block.conv2(block.nn.relu(block.bn1(block.conv1(x)))))


def _no_last_norm(block: Any, x: Any) -> Any:
    return block.conv2(block.relu(block.bn1(block.conv1(x))))


def _norm_before(block: Any, x: Any) -> Any:
    """Norm, activation, convolution: the order of the pre-activated net."""
    return block.conv2(block.nn.relu(block.bn2(block.conv1(block.nn.relu(block.bn1(x))))))


def _convolved_twice(block: Any, x: Any) -> Any:
    return block.bn2(block.conv2(block.conv2(block.relu(block.bn1(block.conv1(x))))))


def _convolutions_exchanged(block: Any, x: Any) -> Any:
    return block.bn2(block.conv1(block.relu(block.bn1(block.conv2(x)))))


def _activated_branch(block: Any, x: Any) -> Any:
    return block.nn.relu(_branch(block, x))


def _activated_shortcut(block: Any, x: Any) -> Any:
    return block.nn.relu(x)


def _without_norm(self, x):
    return getattr(self, "0")(x)


def _activated_before_norm(self, x):
    return getattr(self, "1")(self.nn.relu(getattr(self, "0")(x)))


# The network around it
# -----------------------------------------------------------------------------


def _normalised(
    mean: np.ndarray | None = PIXEL_MEAN,
    std: np.ndarray | None = PIXEL_STD,
    before: Callable[[Any, Any], Any] = lambda nn, x: x,
    after: Callable[[Any, Any], Any] = lambda nn, x: x,
) -> Plant:
    """Pictures normalised in another way."""

    def normalised(self, x):
        x = before(self.nn, x)
        if mean is not None:
            x = x - self.nn.constant(mean.reshape(1, -1, 1, 1), like=x)
        if std is not None:
            x = x / self.nn.constant(std.reshape(1, -1, 1, 1), like=x)
        return after(self.nn, x)

    return with_methods("", normalised=normalised)


def _run(run: Callable[[Any, Any], Any]) -> Plant:
    return with_methods("", forward=run)


def _second_block_twice(self, x):
    x = self.block2(self.block1(self.normalised(x)))
    return self.fc(self.pooled(self.block2(x)))


def _second_block_left_out(self, x):
    return self.fc(self.pooled(self.block1(self.normalised(x))))


def _head_on_both(self, x):
    """The head sees the sum of both blocks' outputs."""
    x = self.block1(self.normalised(x))
    return self.fc(self.pooled(x + self.block2(x)))


def _first_block_frozen(self, x):
    """No gradient reaches the first block."""
    return self.fc(self.pooled(self.block2(self.nn.stop_gradient(self.block1(self.normalised(x))))))


def _scaled_scores(self, x):
    return self.fc(self.pooled(self.block2(self.block1(self.normalised(x))))) * 0.5


def _activated_scores(self, x):
    return self.nn.relu(self.fc(self.pooled(self.block2(self.block1(self.normalised(x))))))


def _probabilities(self, x):
    return self.nn.softmax(self.fc(self.pooled(self.block2(self.block1(self.normalised(x))))), 1)


def _features_normalised(self, x):
    return self.fc(self.nn.normalize(self.pooled(self.block2(self.block1(self.normalised(x))))))


# The convolutional network
# -----------------------------------------------------------------------------


def _flat(order: Sequence[int]) -> Plant:
    return with_methods("", flat=lambda self, x: self.nn.flatten(self.nn.permute(x, order)))


def _flat_reversed(self, x):
    return self.nn.flip(self.nn.flatten(x), 1)


def _norm_after_pool(self, x):
    return self.fc(self.flat(self.grouped(self.act(self.norm(self.pool(self.conv(x)))))))


def _activation_before_norm_and_pool(self, x):
    return self.fc(self.flat(self.grouped(self.pool(self.norm(self.act(self.conv(x)))))))


def _no_activation(self, x):
    return self.fc(self.flat(self.grouped(self.pool(self.norm(self.conv(x))))))


def _activated_twice(self, x):
    return self.fc(self.flat(self.grouped(self.act(self.act(self.pool(self.norm(self.conv(x))))))))


def _no_norm(self, x):
    return self.fc(self.flat(self.grouped(self.act(self.pool(self.conv(x))))))


def _normalised_twice(self, x):
    return self.fc(self.flat(self.grouped(self.act(self.pool(self.norm(self.norm(self.conv(x))))))))


def _activated_at_the_end(self, x):
    return self.fc(self.act(self.flat(self.grouped(self.act(self.pool(self.norm(self.conv(x))))))))


# Joined parts
# -----------------------------------------------------------------------------


def _joined(join: Callable[..., Any]) -> Plant:
    return with_methods("", joined=lambda self, *parts: join(self.nn, *parts))


def _in_order(order: Sequence[int]) -> Plant:
    return _joined(lambda nn, *parts: nn.concatenate([parts[place] for place in order], dim=1))


def _changed(number: int, change: Callable[[Any, Any], Any]) -> Plant:
    """One of the parts is changed."""

    def join(nn, *parts):
        return nn.concatenate(
            [change(nn, p) if n == number else p for n, p in enumerate(parts)], dim=1
        )

    return _joined(join)


def _interleaved(nn: Any, up: Any, smooth: Any, coarse: Any, shuffled: Any) -> Any:
    """The channels of two parts take turns."""
    both = nn.reshape(nn.stack([up, smooth], dim=2), (up.shape[0], -1, *up.shape[2:]))
    return nn.concatenate([both, coarse, shuffled], dim=1)


# The U-Net
# -----------------------------------------------------------------------------


def _upcat(
    join: Callable[[Any, Any, Any], Any], pad: str = "replicate", before: bool = False
) -> Plant:
    """What comes up, and the finer level, joined in another way."""

    def forward(self, x, skip):
        x = self.upsample(x)
        gaps = [fine - size for fine, size in zip(skip.shape[2:], x.shape[2:], strict=True)]
        pads = [(gap, 0) if before else (0, gap) for gap in gaps]
        return self.convs(join(self.nn, skip, self.nn.pad(x, pads, mode=pad)))

    return with_methods("upcat_1", forward=forward)


def _skip_first(nn: Any, skip: Any, x: Any) -> Any:
    """The right one."""
    return nn.concatenate([skip, x], dim=1)


def _convolved_once_more(self, x):
    return self.conv_1(self.conv_1(self.conv_0(x)))


# Tied
# -----------------------------------------------------------------------------


def _tied(
    hidden: Callable[[Any, Any], Any], scores: Callable[[Any, Any], Any] | None = None
) -> Plant:
    """From the embedded tokens to what the head sees, and from there to the scores."""

    def forward(self, tokens):
        x = hidden(self, self.embedding(tokens))
        return self.nn.permute(self.head(x) if scores is None else scores(self, x), (0, 2, 1))

    return with_methods("", forward=forward)


def _hidden(net: Any, x: Any) -> Any:
    """The right one."""
    return net.nn.tanh(net.other(net.nn.tanh(net.square(x))))


def _residual(
    name: str, plant: Plant, *cause: str, place: Sequence[str] = (), path: str = "block2"
) -> Mistake:
    return Mistake(
        f"residual {path}: {name}", "wiring", plant, (path, "BasicBlock", *place), cause, "residual"
    )


def _pictures(name: str, plant: Plant, *cause: str) -> Mistake:
    places = ("Residual", "block1", "input")
    return Mistake(f"pictures: {name}", "wiring", plant, places, (*cause, "input"), "residual")


def _network(
    name: str, plant: Plant, place: Sequence[str], *cause: str, fixture: str = "residual"
) -> Mistake:
    return Mistake(
        f"{fixture} network: {name}", "wiring", plant, tuple(place), (*cause, "input"), fixture
    )


def _parts(name: str, plant: Plant, *cause: str) -> Mistake:
    places = ("concatenate", "Resizing", "head")
    return Mistake(f"parts: {name}", "wiring", plant, places, (*cause, "input"), "resizing")


def _unet(
    name: str, plant: Plant, *cause: str, place: Sequence[str] = ("upcat_1", "concatenate")
) -> Mistake:
    return Mistake(f"U-Net: {name}", "wiring", plant, tuple(place), (*cause, "input"), "unet")


def _of_tied(name: str, plant: Plant, place: Sequence[str], *cause: str) -> Mistake:
    return Mistake(
        f"tied network: {name}", "wiring", plant, (*place, "Tied"), (*cause, "input"), "tied"
    )


MISTAKES = [
    _residual("no shortcut", _block("block2", lambda nn, y, x: y), "shortcut", "skip", "residual"),
    _residual("no branch", _block("block2", lambda nn, y, x: x * 1.0), "branch"),
    _residual(
        "shortcut twice",
        _block("block2", lambda nn, y, x: y + 2.0 * x),
        "shortcut",
        "skip",
        "scale",
    ),
    _residual(
        "shortcut halved",
        _block("block2", lambda nn, y, x: y + 0.5 * x),
        "shortcut",
        "skip",
        "scale",
    ),
    _residual(
        "branch scaled by 0.1", _block("block2", lambda nn, y, x: 0.1 * y + x), "branch", "scale"
    ),
    _residual(
        "sum divided by the root of two",
        _block("block2", lambda nn, y, x: (y + x) * 0.5**0.5),
        "scale",
    ),
    _residual(
        "shortcut subtracted", _block("block2", lambda nn, y, x: y - x), "shortcut", "skip", "sign"
    ),
    _residual("product for sum", _block("block2", lambda nn, y, x: y * x), "product"),
    _residual("maximum for sum", _block("block2", lambda nn, y, x: nn.where(y > x, y, x)), "max"),
    _residual(
        "shortcut detached",
        _block("block2", lambda nn, y, x: y + nn.stop_gradient(x)),
        "detached",
        "gradient",
    ),
    _residual(
        "branch detached",
        _block("block2", lambda nn, y, x: nn.stop_gradient(y) + x),
        "detached",
        "gradient",
    ),
    _residual(
        "no last activation", _block("block2", last=lambda block, y: y), "activation", "relu"
    ),
    _residual(
        "activation before the sum",
        _block("block2", branch=_activated_branch, last=lambda block, y: y),
        "activation",
        "relu",
        "order",
    ),
    _residual(
        "no activation within",
        _block("block2", branch=_no_activation_within),
        "activation",
        "relu",
        "input",
        place=("conv2",),
    ),
    _residual(
        "activation before the norm",
        _block("block2", branch=_activation_before_norm),
        "activation",
        "relu",
        "order",
        "input",
    ),
    _residual(
        "norms exchanged",
        _block("block2", branch=_norms_exchanged),
        "exchanged",
        "order",
        "swapped",
        "call",
    ),
    _residual(
        "one norm for both", _block("block2", branch=_one_norm_for_both), "twice", "call", "bn2"
    ),
    _residual("no last norm", _block("block2", branch=_no_last_norm), "bn2", "missing", "call"),
    _residual(
        "norms before convolutions", _block("block2", branch=_norm_before), "order", "input", "norm"
    ),
    _residual(
        "convolved twice", _block("block2", branch=_convolved_twice), "twice", "call", "input"
    ),
    _residual(
        "convolutions exchanged",
        _block("block2", branch=_convolutions_exchanged),
        "exchanged",
        "order",
        "swapped",
        "call",
    ),
    _residual(
        "shortcut of the branch's input activated",
        _block("block1", shortcut=lambda block, x: block.downsample(_activated_shortcut(block, x))),
        "activation",
        "relu",
        "input",
        path="block1",
    ),
    _residual(
        "shortcut without a norm",
        with_methods("block1.downsample", forward=_without_norm),
        "norm",
        "missing",
        "call",
        path="block1",
    ),
    _residual(
        "shortcut activated before the norm",
        with_methods("block1.downsample", forward=_activated_before_norm),
        "activation",
        "relu",
        "input",
        path="block1",
    ),
    _pictures(
        "BGR after normalisation",
        _normalised(after=lambda nn, x: nn.flip(x, 1)),
        "channel",
        "BGR",
        "order",
    ),
    _pictures("mirrored", _normalised(before=lambda nn, x: nn.flip(x, 3)), "mirror", "flip"),
    _pictures("upside down", _normalised(before=lambda nn, x: nn.flip(x, 2)), "flip"),
    _pictures(
        "rows and columns exchanged",
        _normalised(before=lambda nn, x: nn.permute(x, (0, 1, 3, 2))),
        "transpos",
    ),
    _pictures(
        "samples in the reverse order",
        _normalised(before=lambda nn, x: nn.flip(x, 0)),
        "order",
        "sample",
    ),
    _network(
        "second block twice",
        _run(_second_block_twice),
        ("block2", "Residual", "fc"),
        "twice",
        "call",
    ),
    _network(
        "second block left out",
        _run(_second_block_left_out),
        ("block2", "Residual", "fc", "mean"),
        "left out",
        "missing",
        "call",
    ),
    _network("head on both blocks", _run(_head_on_both), ("fc", "Residual", "mean"), "sum"),
    _network(
        "no gradient of the first block",
        _run(_first_block_frozen),
        ("block1", "block2", "Residual"),
        "gradient",
    ),
    _network(
        "scores halved",
        _run(_scaled_scores),
        ("Residual", "loss", "cross_entropy", "fc"),
        "scale",
        "factor",
    ),
    _network(
        "scores activated",
        _run(_activated_scores),
        ("Residual", "loss", "cross_entropy", "fc"),
        "relu",
        "activation",
    ),
    _network(
        "probabilities for scores",
        _run(_probabilities),
        ("Residual", "loss", "cross_entropy", "fc"),
        "softmax",
    ),
    _network(
        "features of length one",
        _run(_features_normalised),
        ("Residual", "fc"),
        "normalize",
        "length",
    ),
    _network(
        "maximum for mean",
        with_methods("", pooled=lambda self, x: self.nn.max_along(self.nn.max_along(x, 3), 2)),
        ("mean", "Residual", "fc"),
        "max",
    ),
    _network(
        "flattened in NHWC order",
        _flat((0, 2, 3, 1)),
        ("flatten", "fc", "Convolutional"),
        "NHWC",
        "order",
        fixture="convolutional",
    ),
    _network(
        "flattened in CWH order",
        _flat((0, 1, 3, 2)),
        ("flatten", "fc", "Convolutional"),
        "order",
        "transpos",
        fixture="convolutional",
    ),
    _network(
        "flattened backwards",
        with_methods("", flat=_flat_reversed),
        ("flatten", "fc", "Convolutional"),
        "order",
        "revers",
        "flip",
        fixture="convolutional",
    ),
    _network(
        "norm after the pooling",
        _run(_norm_after_pool),
        ("norm", "pool", "act", "Convolutional"),
        "order",
        fixture="convolutional",
    ),
    _network(
        "activation before norm and pooling",
        _run(_activation_before_norm_and_pool),
        ("norm", "pool", "act", "grouped", "Convolutional"),
        "order",
        "activation",
        fixture="convolutional",
    ),
    _network(
        "no activation",
        _run(_no_activation),
        ("act", "grouped", "Convolutional"),
        "activation",
        "missing",
        "call",
        fixture="convolutional",
    ),
    _network(
        "activated twice",
        _run(_activated_twice),
        ("act", "grouped", "Convolutional"),
        "twice",
        "call",
        fixture="convolutional",
    ),
    _network(
        "no norm",
        _run(_no_norm),
        ("norm", "pool", "Convolutional"),
        "norm",
        "missing",
        "call",
        fixture="convolutional",
    ),
    _network(
        "normalised twice",
        _run(_normalised_twice),
        ("norm", "pool", "Convolutional"),
        "twice",
        "call",
        fixture="convolutional",
    ),
    _network(
        "activated at the end too",
        _run(_activated_at_the_end),
        ("act", "fc", "Convolutional"),
        "twice",
        "activation",
        "call",
        fixture="convolutional",
    ),
    _parts("first two exchanged", _in_order((1, 0, 2, 3)), "order"),
    _parts("in the reverse order", _in_order((3, 2, 1, 0)), "order", "revers"),
    _parts("one in the place of another", _in_order((0, 0, 2, 3)), "twice", "order", "missing"),
    _parts("channels take turns", _joined(_interleaved), "interleav", "order"),
    _parts("one of zeros", _changed(2, lambda nn, part: part * 0.0), "zero", "missing"),
    _parts(
        "one detached", _changed(1, lambda nn, part: nn.stop_gradient(part)), "detached", "gradient"
    ),
    _parts(
        "one of its channels reversed",
        _changed(0, lambda nn, part: nn.flip(part, 1)),
        "order",
        "revers",
    ),
    _parts("one scaled", _changed(0, lambda nn, part: part * 0.5), "scale", "factor"),
    _parts("one upside down", _changed(3, lambda nn, part: nn.flip(part, 2)), "flip"),
    _unet("skip last", _upcat(lambda nn, skip, x: nn.concatenate([x, skip], dim=1)), "order"),
    _unet(
        "skip of zeros",
        _upcat(lambda nn, skip, x: _skip_first(nn, skip * 0.0, x)),
        "skip",
        "zero",
        "missing",
    ),
    _unet(
        "skip detached",
        _upcat(lambda nn, skip, x: _skip_first(nn, nn.stop_gradient(skip), x)),
        "detached",
        "gradient",
    ),
    _unet(
        "what comes up detached",
        _upcat(lambda nn, skip, x: _skip_first(nn, skip, nn.stop_gradient(x))),
        "detached",
        "gradient",
    ),
    _unet(
        "padded with zeros",
        _upcat(_skip_first, "constant"),
        "pad",
        "zero",
        place=("upcat_1", "pad"),
    ),
    _unet("padded before", _upcat(_skip_first, before=True), "pad", place=("upcat_1", "pad")),
    _unet(
        "skip activated",
        _upcat(lambda nn, skip, x: _skip_first(nn, nn.relu(skip), x)),
        "relu",
        "activation",
    ),
    _unet(
        "last convolution twice",
        with_methods("down_1.convs", forward=_convolved_once_more),
        "twice",
        "call",
        place=("down_1",),
    ),
    _of_tied(
        "layers exchanged",
        _tied(lambda net, x: net.nn.tanh(net.square(net.nn.tanh(net.other(x))))),
        ("square", "other"),
        "exchanged",
        "order",
        "swapped",
        "call",
    ),
    _of_tied(
        "one layer twice",
        _tied(lambda net, x: net.nn.tanh(net.square(net.nn.tanh(net.square(x))))),
        ("square", "other"),
        "twice",
        "call",
    ),
    _of_tied(
        "one layer left out",
        _tied(lambda net, x: net.nn.tanh(net.square(x))),
        ("other", "head"),
        "missing",
        "call",
        "left out",
    ),
    _of_tied(
        "no activation between",
        _tied(lambda net, x: net.nn.tanh(net.other(net.square(x)))),
        ("tanh", "other"),
        "activation",
        "tanh",
        "missing",
    ),
    _of_tied(
        "no last activation",
        _tied(lambda net, x: net.other(net.nn.tanh(net.square(x)))),
        ("tanh", "head"),
        "activation",
        "tanh",
        "missing",
    ),
    _of_tied(
        "skip around the second layer",
        _tied(lambda net, x: _hidden(net, x) + x),
        ("head",),
        "skip",
        "shortcut",
    ),
    _of_tied(
        "ties take one gradient",
        _tied(
            _hidden, lambda net, x: net.nn.linear(x, net.nn.stop_gradient(net.head.weight * 1.0))
        ),
        ("head", "embedding"),
        "gradient",
        "tied",
    ),
]
