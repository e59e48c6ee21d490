"""The detector on flax, channels last; anchors are made in the forward pass."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

WEIGHTS = "load"
PAD = ((1, 1), (1, 1))


def level_anchors(height, width, stride, dtype):
    """Of one level, as (height * width * 2, 4)."""
    y, x = np.meshgrid(np.arange(height) + 0.5, np.arange(width) + 0.5, indexing="ij")
    centre = np.stack([x, y], axis=-1)[:, :, None] * stride
    size = 2.0 * stride * np.array([[1.0, 1.0], [2.0, 0.5]])
    shape = (height, width, 2, 2)
    both = [np.broadcast_to(centre, shape), np.broadcast_to(size, shape)]
    return jnp.asarray(np.concatenate(both, axis=-1).reshape(-1, 4), dtype)


class Stem(nnx.Module):
    def __init__(self, rngs):
        self.conv_a = nnx.Conv(3, 6, (3, 3), strides=2, padding=PAD, rngs=rngs)
        self.gn_a = nnx.GroupNorm(6, num_groups=2, epsilon=1e-5, rngs=rngs)
        self.conv_b = nnx.Conv(6, 8, (3, 3), strides=2, padding=PAD, rngs=rngs)
        self.gn_b = nnx.GroupNorm(8, num_groups=2, epsilon=1e-5, rngs=rngs)

    def __call__(self, x):
        c2 = jax.nn.relu(self.gn_a(self.conv_a(x)))
        c3 = jax.nn.relu(self.gn_b(self.conv_b(c2)))
        return c2, c3


class Pyramid(nnx.Module):
    def __init__(self, rngs):
        self.inner2 = nnx.Conv(6, 5, (1, 1), rngs=rngs)
        self.inner3 = nnx.Conv(8, 5, (1, 1), rngs=rngs)
        self.outer = nnx.Conv(5, 5, (3, 3), padding=PAD, rngs=rngs)

    def __call__(self, c2, c3):
        p3 = self.inner3(c3)
        n, h, w, c = p3.shape
        up = jax.image.resize(p3, (n, 2 * h, 2 * w, c), "nearest")
        return self.outer(self.inner2(c2) + up), p3


class Detector(nnx.Module):
    def __init__(self, rngs):
        self.stem = Stem(rngs)
        self.neck = Pyramid(rngs)
        self.classify = nnx.Conv(5, 4, (3, 3), padding=PAD, rngs=rngs)
        self.regress = nnx.Conv(5, 8, (3, 3), padding=PAD, rngs=rngs)

    def __call__(self, images):
        levels = self.neck(*self.stem(images))
        scores, deltas, anchors = [], [], []
        for p, stride in zip(levels, (2, 4)):
            n, h, w, _ = p.shape
            scores.append(self.classify(p).reshape(n, h * w * 2, 2))
            deltas.append(self.regress(p).reshape(n, h * w * 2, 4))
            anchors.append(level_anchors(h, w, stride, p.dtype))
        anchors = jnp.concatenate(anchors)
        deltas = jnp.concatenate(deltas, axis=1)
        xy = anchors[:, :2] + deltas[..., :2] * anchors[:, 2:]
        wh = anchors[:, 2:] * jnp.exp(deltas[..., 2:])
        boxes = jnp.concatenate([xy, wh], axis=-1)
        return {"scores": jnp.concatenate(scores, axis=1), "boxes": boxes}


def smooth_l1(x, beta=0.5):
    x = jnp.abs(x)
    return jnp.where(x < beta, 0.5 * x**2 / beta, x - 0.5 * beta)


def loss(network, images, target):
    out = network(images)
    boxes, flags = target[..., :4], target[..., 4:]
    positive = jnp.any(flags > 0, axis=-1)
    distance = jnp.sum(smooth_l1(out["boxes"] - boxes), axis=-1)
    regression = jnp.sum(distance * positive) / jnp.maximum(jnp.sum(positive), 1)
    s = out["scores"]
    entropy = -flags * jax.nn.log_sigmoid(s) - (1 - flags) * jax.nn.log_sigmoid(-s)
    return jnp.mean(entropy) + 0.5 * regression


def network(reference):
    """The port; comparing copies the weights as well."""
    model = Detector(nnx.Rngs(0))
    backbone, fpn = reference.backbone, reference.fpn
    convolutions = [
        (model.stem.conv_a, backbone.conv1),
        (model.stem.conv_b, backbone.conv2),
        (model.neck.inner2, fpn.lateral1),
        (model.neck.inner3, fpn.lateral2),
        (model.neck.outer, fpn.smooth),
        (model.classify, reference.cls_head),
        (model.regress, reference.box_head),
    ]
    for ours, theirs in convolutions:
        ours.kernel[...] = theirs.weight.detach().numpy().transpose(2, 3, 1, 0)
        ours.bias[...] = theirs.bias.detach().numpy()
    for ours, theirs in ((model.stem.gn_a, backbone.norm1), (model.stem.gn_b, backbone.norm2)):
        ours.scale[...] = theirs.weight.detach().numpy()
        ours.bias[...] = theirs.bias.detach().numpy()
    return model
