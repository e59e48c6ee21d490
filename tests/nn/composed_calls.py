"""Calls of functions that PyTorch has not, and of operators, on numbers between 0 and 1."""

import numpy as np

SHAPE = (2, 3, 5, 7)  # (batch, classes, height, width)
FUNCTIONS = {
    "arithmetic": lambda nn, x: (x + 1.0) * -x / (2.0 - x) ** 2.0,
    "comparison": lambda nn, x: nn.where(x > 0.5, x, 0.1),
    "slices": lambda nn, x: x[:, 1, ::2, None, -3:],
    "constant": lambda nn, x: x * nn.constant(np.array(0.1), like=x),
    "mean": lambda nn, x: nn.mean(x),
    "variance": lambda nn, x: nn.var(x, 1, correction=1),
    "pad": lambda nn, x: nn.pad(x, [(1, 2)], value=0.1),
    "clip": lambda nn, x: nn.clip(x, -0.5, 0.5),
    "normalize": lambda nn, x: nn.normalize(x),
    "nearest": lambda nn, x: nn.interpolate(x, scale_factor=1.7),
    "einsum": lambda nn, x: nn.einsum("bchw,bckw->bkc", x, x),
    "attention": lambda nn, x: nn.attention(x, x, x)[1],
    "l1": lambda nn, x: nn.l1_loss(x, x * 0.5),
    "cross-entropy": lambda nn, x: nn.cross_entropy(
        x, nn.argmax(x, 1), label_smoothing=0.1
    ),
    "flags": lambda nn, x: nn.bce_with_logits(x, nn.zeros(x.shape, like=x)),
    "dice": lambda nn, x: nn.dice_loss(x, x, reduction="none"),
    "generalised dice": lambda nn, x: nn.generalized_dice_loss(x, x, reduction="none"),
    "focal": lambda nn, x: nn.focal_loss(x, nn.argmax(x, 1), 1.5, reduction="none"),
    "binary focal": lambda nn, x: nn.binary_focal_loss(
        x, nn.zeros(x.shape, like=x), gamma=1.5
    ),
    "Tversky": lambda nn, x: nn.tversky_loss(x, x, gamma=0.75, reduction="none"),
    "Gaussians": lambda nn, x: nn.kl_gaussian(x, x),
    "divergence": lambda nn, x: nn.kl_divergence(
        nn.log_softmax(x, 1), nn.softmax(x, 1), reduction="none"
    ),
    "discriminator": lambda nn, x: nn.discriminator_loss(x, -x, "hinge"),
    "penalty": lambda nn, x: nn.gradient_penalty(
        lambda at: at**2.0, x, -x, x[:, 0, 0, 0]
    ),
    "supervision": lambda nn, x: nn.deep_supervision(
        nn.mse_loss, [x, x[:, :, ::2, ::2]], x
    ),
}
