"""The U-Net in flax; converted tensor by tensor."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

WEIGHTS = "judge"


class ConvBlock(nnx.Module):
    def __init__(self, cin, cout, rngs):
        self.c1 = nnx.Conv(cin, cout, kernel_size=(3, 3), rngs=rngs)
        self.n1 = nnx.GroupNorm(cout, num_groups=2, epsilon=1e-5, rngs=rngs)
        self.c2 = nnx.Conv(cout, cout, kernel_size=(3, 3), rngs=rngs)
        self.n2 = nnx.GroupNorm(cout, num_groups=2, epsilon=1e-5, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.n1(self.c1(x)))
        return nnx.relu(self.n2(self.c2(x)))


def pool(x):
    return nnx.max_pool(x, (2, 2), strides=(2, 2))


def upsample(x):
    n, h, w, c = x.shape
    return jax.image.resize(x, (n, 2 * h, 2 * w, c), method="bilinear")


class UNet(nnx.Module):
    def __init__(self, rngs):
        self.enc1 = ConvBlock(2, 4, rngs)
        self.enc2 = ConvBlock(4, 6, rngs)
        self.bottom = ConvBlock(6, 8, rngs)
        self.deconv = nnx.ConvTranspose(8, 6, (2, 2), strides=(2, 2), padding="VALID", rngs=rngs)
        self.dec2 = ConvBlock(12, 6, rngs)
        self.squeeze = nnx.Conv(6, 4, (1, 1), rngs=rngs)
        self.dec1 = ConvBlock(8, 4, rngs)
        self.head = nnx.Conv(4, 3, (1, 1), rngs=rngs)

    def __call__(self, x):
        skip1 = self.enc1(x)
        skip2 = self.enc2(pool(skip1))
        y = self.deconv(self.bottom(pool(skip2)))
        y = self.dec2(jnp.concatenate([skip2, y], axis=-1))
        y = self.squeeze(upsample(y))
        y = self.dec1(jnp.concatenate([skip1, y], axis=-1))
        return self.head(y)


def _set(param, value):
    assert param.shape == value.shape, (param.shape, value.shape)
    param.set_value(jnp.asarray(np.ascontiguousarray(value)))


def network(reference):
    sd = {k: v.numpy() for k, v in reference.state_dict().items()}
    net = UNet(nnx.Rngs(0))
    blocks = {
        "inc": net.enc1,
        "down1": net.enc2,
        "down2": net.bottom,
        "conv1": net.dec2,
        "conv2": net.dec1,
    }
    for name, block in blocks.items():
        key = f"{name}.double_conv"
        _set(block.c1.kernel, sd[f"{key}.0.weight"].transpose(2, 3, 1, 0))
        _set(block.c1.bias, sd[f"{key}.0.bias"])
        _set(block.n1.scale, sd[f"{key}.1.weight"])
        _set(block.n1.bias, sd[f"{key}.1.bias"])
        _set(block.c2.kernel, sd[f"{key}.3.weight"].transpose(2, 3, 1, 0))
        _set(block.c2.bias, sd[f"{key}.3.bias"])
        _set(block.n2.scale, sd[f"{key}.4.weight"])
        _set(block.n2.bias, sd[f"{key}.4.bias"])
    _set(net.deconv.kernel, sd["up1.weight"].transpose(2, 3, 0, 1)[::-1, ::-1])
    _set(net.deconv.bias, sd["up1.bias"])
    for name, layer in {"reduce": net.squeeze, "outc": net.head}.items():
        _set(layer.kernel, sd[f"{name}.weight"].transpose(2, 3, 1, 0))
        _set(layer.bias, sd[f"{name}.bias"])
    return net
