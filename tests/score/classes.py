"""Classes whose source is given mistakes: ours, and those of installed packages, in small sizes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

NETWORK, LOSS, OPTIMIZER = "network", "loss", "optimizer"
Build = Callable[[ModuleType], Any]


@dataclass(frozen=True)
class Subclass:
    """A class or function whose module is mutated.

    Attributes:
        name: Unique.
        module: Where its source is.
        build: Makes of the module, or of a mutated copy, a network of PyTorch; of ours the function
            from a backend to a network; a function ``(outputs, target)`` for a loss; and one from
            a network to its optimizer.
        batch: Makes what the network is called with.
        part: Which of the three it is.
    """

    name: str
    module: str
    build: Build
    batch: Callable[[], tuple[Any, ...]]
    part: str = NETWORK

    @property
    def is_ours(self) -> bool:
        """Whether it runs on any backend."""
        return self.module.startswith("deliralike.")


def _arrays(*shape: int) -> tuple[Any, ...]:
    return (np.random.RandomState(3).randn(*shape).astype("float32"),)


def _images(
    size: int = 33, channels: int = 3, count: int = 4
) -> Callable[[], tuple[Any, ...]]:
    return partial(_arrays, count, channels, size, size + 2 * (size % 2))


def _pyramid() -> tuple[Any, ...]:
    """Features at four sizes, as an encoder gives them."""
    channels = enumerate((3, 4, 8, 16))
    return ([_arrays(3, width, 32 >> i, 32 >> i)[0] for i, width in channels],)


def _tokens(count: int = 7) -> tuple[Any, ...]:
    return (np.random.RandomState(3).randint(1, 30, size=(3, count)),)


def _rows() -> tuple[Any, ...]:
    random = np.random.RandomState(3)
    return random.randn(6, 5).astype("float32"), random.randint(0, 4, size=6)


def _torchvision(name: str, build: Build, batch: Any = None) -> Subclass:
    module = f"torchvision.models.{name}"
    return Subclass(f"torchvision {name}", module, build, batch or _images())


def _timm(name: str, build: Build, batch: Any = None) -> Subclass:
    return Subclass(f"timm {name}", f"timm.models.{name}", build, batch or _images(16))


def _monai(name: str, build: Build, batch: Any = None) -> Subclass:
    module = f"monai.networks.{name}"
    return Subclass(
        f"monai {name.split('.')[-1]}", module, build, batch or _images(24, 1)
    )


def _smp(name: str, build: Build) -> Subclass:
    module = f"segmentation_models_pytorch.decoders.{name}.decoder"
    return Subclass(f"smp {name}", module, build, _pyramid)


def _transformers(
    name: str, model: str, config: str, settings: dict[str, Any]
) -> Subclass:
    def build(module: ModuleType) -> Any:
        given = getattr(module, config)(**settings)
        given._attn_implementation = "eager"
        return getattr(module, model)(given)

    module = f"transformers.models.{name}.modeling_{name}"
    batch = _images(16) if name == "vit" else _tokens
    return Subclass(f"transformers {name}", module, build, batch)


def _ours(name: str, architecture: str, batch: Any, **settings: Any) -> Subclass:
    def build(module: ModuleType) -> Any:
        made = getattr(module, architecture)
        return lambda backend: made.on(backend)(**settings)

    return Subclass(f"ours {architecture}", f"deliralike.zoo.{name}", build, batch)


def _optimizer(module: str, name: str, **settings: Any) -> Subclass:
    def build(found: ModuleType) -> Any:
        made = getattr(found, name)
        return lambda network: made(network.parameters(), **settings)

    return Subclass(f"optimizer {name}", module, build, _rows, OPTIMIZER)


def _loss(
    module: str, name: str, change: Any = lambda y: y, **settings: Any
) -> Subclass:
    def build(found: ModuleType) -> Any:
        function = getattr(found, name)(**settings)
        return lambda outputs, target: function(outputs, change(target))

    return Subclass(f"loss {name}", module, build, _rows, LOSS)


def _one_hot(target: Any) -> Any:
    import torch

    return (
        torch.nn.functional.one_hot(target.long(), 4)
        .to(torch.get_default_dtype())
        .double()
    )


def _short_resnet(module: ModuleType) -> Any:
    """Without the stages that have most of the weights."""
    import torch

    network = module.ResNet(module.BasicBlock, [1, 1, 1, 1])
    network.layer3 = network.layer4 = torch.nn.Identity()
    network.fc = torch.nn.Linear(128, 5)
    return network


_BERT = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 16,
}  # fmt: skip
_GPT2 = {
    "vocab_size": 30, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16,
    "use_cache": False, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

CLASSES = (
    _torchvision("resnet", _short_resnet, _images(17)),
    _torchvision("squeezenet", lambda m: m.SqueezeNet("1_1", 5)),
    _torchvision("mobilenetv2", lambda m: m.MobileNetV2(5, 0.25)),
    _torchvision("densenet", lambda m: m.DenseNet(8, (2, 2), 16, drop_rate=0.2, num_classes=5)),
    _torchvision("shufflenetv2", lambda m: m.ShuffleNetV2([1, 1, 1], [8, 16, 32, 64, 64], 5)),
    _torchvision(
        "vision_transformer",
        lambda m: m.VisionTransformer(16, 8, 2, 2, 16, 32, 0.1, num_classes=5),
        _images(16),
    ),
    _torchvision(
        "convnext",
        lambda m: m.ConvNeXt([m.CNBlockConfig(8, 16, 1), m.CNBlockConfig(16, None, 1)], 0, 0.5, 5),
        _images(16),
    ),
    _torchvision(
        "swin_transformer",
        lambda m: m.SwinTransformer([2, 2], 8, [2, 2], [2, 2], [3, 3], num_classes=5),
        _images(16),
    ),
    _torchvision("segmentation.deeplabv3", lambda m: m.DeepLabHead(8, 5, (2, 3)), _images(9, 8)),
    _timm("mlp_mixer", lambda m: m.MlpMixer(5, 16, patch_size=4, num_blocks=2, embed_dim=16)),
    _timm(
        "vision_transformer",
        lambda m: m.VisionTransformer(
            16, 4, num_classes=5, embed_dim=16, depth=2, num_heads=2, init_values=0.5
        ),
    ),
    _timm(
        "cait",
        lambda m: m.Cait(
            16, 4, num_classes=5, embed_dim=16, depth=2, num_heads=2, depth_token_only=1
        ),
    ),
    _timm(
        "pvt_v2",
        lambda m: m.PyramidVisionTransformerV2(
            num_classes=5, depths=(1, 1), embed_dims=(8, 16), num_heads=(1, 2), sr_ratios=(2, 1),
            mlp_ratios=(2, 2),
        ),
        _images(32),
    ),
    _timm("convmixer", lambda m: m.ConvMixer(8, 2, num_classes=5)),
    _timm(
        "res2net",
        lambda m: importlib.import_module("timm.models.resnet").ResNet(
            m.Bottle2neck, (1, 1, 1, 1), channels=(16, 16, 16, 16), num_classes=5, base_width=16,
            block_args={"scale": 4},
        ),
    ),
    _monai(
        "nets.segresnet",
        lambda m: m.SegResNet(2, 8, 1, 2, 0.2, blocks_down=(1, 1), blocks_up=(1,)),
    ),
    _monai("nets.unet", lambda m: m.UNet(2, 1, 2, (4, 8, 16), (2, 2), num_res_units=1)),
    _monai("nets.basic_unet", lambda m: m.BasicUNet(2, 1, 2, (8, 8, 8, 8, 8, 8)), _images(32, 1)),
    _monai("nets.attentionunet", lambda m: m.AttentionUnet(2, 1, 2, (4, 8, 16), (2, 2))),
    _monai("blocks.selfattention", lambda m: m.SABlock(16, 2), partial(_arrays, 3, 7, 16)),
    _monai("blocks.squeeze_and_excitation", lambda m: m.ResidualSELayer(2, 8), _images(6, 8)),
    _smp("unet", lambda m: m.UnetDecoder((3, 4, 8, 16), (8, 8, 4), 3)),
    _smp("unetplusplus", lambda m: m.UnetPlusPlusDecoder((3, 4, 8, 16), (8, 8, 4), 3)),
    _smp("linknet", lambda m: m.LinknetDecoder((3, 4, 8, 16), 8, 3)),
    _transformers("bert", "BertModel", "BertConfig", _BERT),
    _transformers("gpt2", "GPT2Model", "GPT2Config", _GPT2),
    _transformers(
        "llama", "LlamaModel", "LlamaConfig", _BERT | {"num_key_value_heads": 1, "use_cache": False}
    ),
    _transformers(
        "distilbert", "DistilBertModel", "DistilBertConfig",
        {"vocab_size": 30, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    ),
    _transformers("electra", "ElectraModel", "ElectraConfig", _BERT | {"embedding_size": 8}),
    _transformers("vit", "ViTModel", "ViTConfig", _BERT | {"image_size": 16, "patch_size": 8}),
    _optimizer("timm.optim.lion", "Lion", lr=1e-3, weight_decay=0.1),
    _optimizer("timm.optim.rmsprop_tf", "RMSpropTF", lr=1e-3, momentum=0.9, weight_decay=0.01),
    _optimizer("timm.optim.sgdw", "SGDW", lr=1e-2, momentum=0.9, weight_decay=0.01),
    _optimizer("timm.optim.adopt", "Adopt", lr=1e-3, weight_decay=0.01),
    _optimizer("tests.score.recipes", "adam"),
    _optimizer("tests.score.recipes", "sgd"),
    _optimizer("tests.score.recipes", "rmsprop"),
    _loss("tests.score.recipes", "CrossEntropy"),
    _loss("tests.score.recipes", "Distance", _one_hot),
    _loss("timm.loss.asymmetric_loss", "AsymmetricLossMultiLabel", _one_hot),
    _loss("timm.loss.cross_entropy", "LabelSmoothingCrossEntropy"),
    _loss("monai.losses.focal_loss", "FocalLoss", _one_hot),
    _loss("monai.losses.tversky", "TverskyLoss", _one_hot, sigmoid=True),
    _ours("classification.lenet", "LeNet", _images(20, 1), image_size=20, num_classes=5),
    _ours("classification.resnet", "SmallResNet", _images(17), depth=8, shortcut="B"),
    _ours("classification.mobilenet_v2", "MobileNetV2", _images(), width_mult=0.25, num_classes=5),
    _ours("classification.squeezenet", "SqueezeNet", _images(), num_classes=5),
    _ours("classification.densenet", "DenseNet", _images(), layers=(2, 2), growth_rate=8),
    _ours("segmentation.unet", "UNet", _images(32, 1), features=(4, 4, 8, 8, 8, 4)),
    _ours("segmentation.segresnet", "SegResNet", _images(24, 1), dims=2, init_filters=8),
)  # fmt: skip
