"""The detector on Chainer, in one chain."""

import numpy as np

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "load"


class Detector(chainer.Chain):
    def __init__(self):
        super().__init__()
        self.anchors = np.concatenate([grid(8, 6, 2), grid(4, 3, 4)])
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 6, 3, stride=2, pad=1)
            self.gn1 = L.GroupNormalization(2, 6, eps=1e-5)
            self.conv2 = L.Convolution2D(6, 8, 3, stride=2, pad=1)
            self.gn2 = L.GroupNormalization(2, 8, eps=1e-5)
            self.lat1 = L.Convolution2D(6, 5, 1)
            self.lat2 = L.Convolution2D(8, 5, 1)
            self.out1 = L.Convolution2D(5, 5, 3, pad=1)
            self.conf = L.Convolution2D(5, 4, 3, pad=1)
            self.loc = L.Convolution2D(5, 8, 3, pad=1)

    def forward(self, x):
        h1 = F.relu(self.gn1(self.conv1(x)))
        h2 = F.relu(self.gn2(self.conv2(h1)))
        p2 = self.lat2(h2)
        p1 = self.out1(self.lat1(h1) + F.unpooling_2d(p2, 2, cover_all=False))
        confs, locs = [], []
        for p in (p1, p2):
            confs.append(rows(self.conf(p), 2))
            locs.append(rows(self.loc(p), 4))
        locs = F.concat(locs, axis=1)
        anchors = np.broadcast_to(self.anchors.astype(x.dtype), locs.shape)
        xy = anchors[..., :2] + locs[..., :2] * anchors[..., 2:]
        wh = anchors[..., 2:] * F.exp(locs[..., 2:])
        return {"scores": F.concat(confs, axis=1), "boxes": F.concat([xy, wh], axis=2)}


def rows(x, size):
    return F.transpose(x, (0, 2, 3, 1)).reshape(len(x), -1, size)


def grid(height, width, stride):
    found = []
    for y, x, ratio in np.ndindex(height, width, 2):
        w, h = (2 * stride, 2 * stride) if ratio == 0 else (4 * stride, stride)
        found.append([(x + 0.5) * stride, (y + 0.5) * stride, w, h])
    return np.array(found, np.float32)


def loss(network, x, target):
    out = network(x)
    target = getattr(target, "array", target)
    boxes, flags = target[..., :4], target[..., 4:]
    positive = (flags.max(axis=-1) > 0).astype(boxes.dtype)
    difference = F.absolute(out["boxes"] - boxes)
    near = 0.5 * difference**2 / 0.5
    distance = F.sum(F.where(difference.array < 0.5, near, difference - 0.25), axis=2)
    regression = F.sum(distance * positive) / max(positive.sum(), 1)
    scores = out["scores"]
    entropy = F.softplus(scores) - scores * flags
    return F.mean(entropy) + 0.5 * regression


def network(reference):
    port = Detector()
    backbone, fpn = reference.backbone, reference.fpn
    for ours, theirs in (
        (port.conv1, backbone.conv1),
        (port.conv2, backbone.conv2),
        (port.lat1, fpn.lateral1),
        (port.lat2, fpn.lateral2),
        (port.out1, fpn.smooth),
        (port.conf, reference.cls_head),
        (port.loc, reference.box_head),
    ):
        ours.W.array[...] = theirs.weight.detach().numpy()
        ours.b.array[...] = theirs.bias.detach().numpy()
    for ours, theirs in ((port.gn1, backbone.norm1), (port.gn2, backbone.norm2)):
        ours.gamma.array[...] = theirs.weight.detach().numpy()
        ours.beta.array[...] = theirs.bias.detach().numpy()
    return port
