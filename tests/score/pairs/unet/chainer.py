"""The U-Net as one chain of links."""

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "load"


class Double(chainer.ChainList):
    def __init__(self, n_in, n_out):
        super().__init__(
            L.Convolution2D(n_in, n_out, 3, pad=1),
            L.GroupNormalization(2, n_out, eps=1e-5),
            L.Convolution2D(n_out, n_out, 3, pad=1),
            L.GroupNormalization(2, n_out, eps=1e-5),
        )

    def forward(self, x):
        conv1, norm1, conv2, norm2 = self
        h = F.relu(norm1(conv1(x)))
        return F.relu(norm2(conv2(h)))


class UNet(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.enc0 = Double(2, 4)
            self.enc1 = Double(4, 6)
            self.enc2 = Double(6, 8)
            self.up = L.Deconvolution2D(8, 6, 2, stride=2)
            self.dec1 = Double(12, 6)
            self.conv = L.Convolution2D(6, 4, 1)
            self.dec0 = Double(8, 4)
            self.classify = L.Convolution2D(4, 3, 1)

    def forward(self, x):
        e0 = self.enc0(x)
        e1 = self.enc1(F.max_pooling_2d(e0, 2, 2))
        e2 = self.enc2(F.max_pooling_2d(e1, 2, 2))
        d1 = self.dec1(F.concat((e1, self.up(e2)), axis=1))
        d1 = F.resize_images(d1, e0.shape[2:], mode="bilinear", align_corners=False)
        d0 = self.dec0(F.concat((e0, self.conv(d1)), axis=1))
        return self.classify(d0)


def network(reference):
    return UNet()
