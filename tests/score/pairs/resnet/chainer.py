"""The residual network in Chainer; the weights are copied by hand."""

import numpy as np

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "judge"


class BasicBlock(chainer.Chain):
    def __init__(self, n_in, n_out, stride=1):
        super().__init__()
        self.project = stride != 1 or n_in != n_out
        with self.init_scope():
            self.conv1 = L.Convolution2D(n_in, n_out, 3, stride, 1, nobias=True)
            self.bn1 = L.BatchNormalization(n_out, eps=1e-5)
            self.conv2 = L.Convolution2D(n_out, n_out, 3, 1, 1, nobias=True)
            self.bn2 = L.BatchNormalization(n_out, eps=1e-5)
            if self.project:
                self.conv3 = L.Convolution2D(n_in, n_out, 1, stride, 0, nobias=True)
                self.bn3 = L.BatchNormalization(n_out, eps=1e-5)

    def __call__(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        if self.project:
            x = self.bn3(self.conv3(x))
        return F.relu(h + x)


class ResNetSmall(chainer.Chain):
    def __init__(self, n_class=6):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 4, 3, 1, 1, nobias=True)
            self.bn1 = L.BatchNormalization(4, eps=1e-5)
            self.res2 = chainer.ChainList(BasicBlock(4, 4), BasicBlock(4, 4))
            self.res3 = chainer.ChainList(BasicBlock(4, 8, 2), BasicBlock(8, 8))
            self.fc = L.Linear(8, n_class)

    def __call__(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        for block in self.res2:
            h = block(h)
        for block in self.res3:
            h = block(h)
        h = F.average_pooling_2d(h, h.shape[2:])
        return self.fc(h)


def _copy_bn(bn, source):
    bn.gamma.array[...] = source.weight.detach().numpy()
    bn.beta.array[...] = source.bias.detach().numpy()
    bn.avg_mean[...] = source.running_mean.numpy()
    bn.avg_var[...] = source.running_var.numpy()


def _copy_block(block, source):
    block.conv1.W.array[...] = source.conv1.weight.detach().numpy()
    block.conv2.W.array[...] = source.conv2.weight.detach().numpy()
    _copy_bn(block.bn1, source.bn1)
    _copy_bn(block.bn2, source.bn2)
    if block.project:
        block.conv3.W.array[...] = source.downsample[0].weight.detach().numpy()
        _copy_bn(block.bn3, source.downsample[1])


def network(reference):
    model = ResNetSmall()
    model.conv1.W.array[...] = reference.conv1.weight.detach().numpy()
    _copy_bn(model.bn1, reference.bn1)
    for mine, theirs in zip(model.res2, reference.layer1):
        _copy_block(mine, theirs)
    for mine, theirs in zip(model.res3, reference.layer2):
        _copy_block(mine, theirs)
    model.fc.W.array[...] = np.asarray(reference.fc.weight.detach())
    model.fc.b.array[...] = np.asarray(reference.fc.bias.detach())
    return model
