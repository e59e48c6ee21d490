"""One training step of a member of every family of the zoo, on each backend, against torch's.

Each network has a process of its own, with one thread. What counts is processor time, so that the
ratio says what a backend computes, also on a machine that does other things meanwhile. The first
step, which compiles on JAX, is reported apart.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.timing import Ratio, in_fresh_process, processor_seconds
from deliralike import backends, nest, zoo
from deliralike.optim.rules import rule

BACKENDS = ("torch", "jax", "chainer")
LIMITS = {"jax": 2.2, "chainer": 2.7}
# steps that are timed: at most so many, and at least three, until so many seconds are over
_STEPS = 7
_SECONDS = 12.0


@dataclass(frozen=True)
class Member:
    """One network of a family, small enough for a few cores.

    Attributes:
        name: The architecture.
        size: The spatial size, or the length, of its inputs; None for the architecture's own.
        settings: What to change in it.
        batch: Samples.
    """

    name: str
    size: tuple[int, ...] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    batch: int = 2

    def inputs(self) -> tuple[Any, ...]:
        """Draw a batch of the architecture's inputs, those with axes in this member's size."""
        generator = np.random.default_rng(0)
        drawn = []
        for entry in zoo.find(self.name).inputs_for(**self.settings):
            lead = 0 if entry.below is not None else 1
            is_sized = self.size is not None and len(entry.shape) == lead + len(
                self.size
            )
            shape = (*entry.shape[:lead], *self.size) if is_sized else entry.shape
            drawn.append(zoo.Input(shape, entry.below).draw(generator, self.batch))
        return tuple(drawn)


_SMALL_ENCODER = {"encoder": "resnet18"}
_FOUR_STAGES = {
    "features_per_stage": (16, 32, 64, 128),
    "strides": (1, 2, 2, 2),
}
_SMALL_LLAMA = {
    "vocab_size": 1000,
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
}
MEMBERS = (
    Member("unet", (32, 32, 32), {"dims": 3}),
    Member("mobilenet_v2", (128, 128)),
    Member("convnext_tiny", (96, 96)),
    Member("resnext50_32x4d", (96, 96)),
    Member("efficientnet_b0", (128, 128)),
    Member("shufflenet_v2_x1_0", (128, 128)),
    Member("resnet18", (96, 96)),
    Member("resnet50", (96, 96)),
    Member("densenet121", (96, 96)),
    Member("mobilenet_v3_small", (128, 128)),
    Member("mnasnet0_5", (128, 128)),
    Member("regnet_x_400mf", (96, 96)),
    Member("regnet_y_400mf", (96, 96)),
    Member("convnextv2_atto", (96, 96)),
    Member("swin_t", (112, 112)),
    Member("swin_v2_t", (112, 112)),
    Member("mixer_s32_224", (128, 128), {"image_size": 128}),
    Member("resmlp_12_224", (128, 128), {"image_size": 128}),
    Member("deit_tiny_patch16_224", (128, 128), {"image_size": 128}),
    Member("alexnet", (96, 96)),
    Member("vgg11", (64, 64)),
    Member("googlenet", (96, 96)),
    Member("inception_v3", (139, 139), {"aux_logits": False}),
    Member("squeezenet1_1", (128, 128)),
    Member("resnetv2_18", (96, 96)),
    Member("lenet", batch=16),
    Member("mlp", batch=16),
    Member("r3d_18", (8, 48, 48)),
    Member("r2plus1d_18", (8, 48, 48)),
    Member("attention_unet", (32, 32, 32), batch=1),
    Member("residual_unet", (32, 32, 32)),
    Member("segresnet", (32, 32, 32), batch=1),
    Member(
        "dynunet", (32, 32, 32), {"kernel_size": (3,) * 4, "strides": (1, 2, 2, 2)}, 1
    ),
    Member("nnunet", (32, 32, 32), _FOUR_STAGES, 1),
    Member("vnet", (32, 32, 32), batch=1),
    Member(
        "unetr", (32, 32, 32), {"img_size": 32, "hidden_size": 192, "mlp_dim": 768}, 1
    ),
    Member("swin_unetr", (64, 64, 64), {"feature_size": 12}, 1),
    Member("unet", (96, 96)),
    Member("encoder_unet", (96, 96), _SMALL_ENCODER),
    Member("unetplusplus", (64, 64), _SMALL_ENCODER),
    Member("fpn", (96, 96), _SMALL_ENCODER),
    Member("pspnet", (96, 96), _SMALL_ENCODER),
    Member("fcn_resnet50", (64, 64)),
    Member("deeplabv3_resnet50", (64, 64)),
    Member(
        "samvit_base_patch16",
        (224, 224),
        {
            "image_size": 224,
            "embed_dim": 192,
            "depth": 4,
            "global_attn_indexes": (1, 3),
        },
        1,
    ),
    Member("ddpm_small"),
    Member("diffusion_model_unet"),
    Member("autoencoder_kl"),
    Member("vae", batch=16),
    Member("conv_vae", batch=4),
    Member("dcgan_generator"),
    Member("dcgan_discriminator"),
    Member("wgan_critic"),
    Member("bert_tiny", (128,)),
    Member("gpt_mini", (64,)),
    Member("llama_2_7b", (64,), _SMALL_LLAMA),
    Member("t5_small", (32,), {"num_layers": 2, "vocab_size": 1000}),
    Member("transformer_classifier", (64,), {"num_layers": 2, "vocab_size": 1000}),
    Member("lstm_classifier", (32,), {"vocab_size": 1000}),
    Member("gru_classifier", (32,), {"vocab_size": 1000}),
    Member("tcn", (256,), batch=4),
    Member("inception_time", batch=4),
    Member("wavenet", (2048,), {"stacks": 2}),
    Member(
        "clip_vit_b_32",
        None,
        {"image_size": 64, "vision_num_hidden_layers": 3, "text_num_hidden_layers": 3},
    ),
)


@dataclass(frozen=True)
class Row:
    """What was measured of one member: processor seconds by backend.

    Attributes:
        name: The architecture.
        first: Of the first step, with everything that it compiles.
        step: Median of later steps.
    """

    name: str
    first: dict[str, float]
    step: dict[str, float]

    def ratio(self, backend: str) -> float:
        """The step's time on a backend by that on torch."""
        return self.step[backend] / self.step["torch"]


def run() -> list[Ratio]:
    """Measure every member; see the module for how."""
    ratios = []
    for member in MEMBERS:
        row = Row(**in_fresh_process("benchmarks.families", MEMBERS.index(member)))
        print(as_line(row), flush=True)
        for backend, limit in LIMITS.items():
            ratio = row.ratio(backend)
            name = f"{row.name}, step on {backend}, torch"
            times = row.step[backend], row.step["torch"]
            ratios.append(Ratio(name, *times, ratio, ratio, ratio, limit))
    return ratios


def as_line(row: Row) -> str:
    """Return a row of the documentation's table."""
    ratios = (f"{row.ratio(backend):.2f}" for backend in BACKENDS[1:])
    cells = (
        row.name,
        f"{row.step['torch'] * 1e3:.0f}",
        *ratios,
        f"{row.first['jax']:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def measure(member: Member) -> Row:
    """Make steps on every backend in turn; the process should have one thread."""
    inputs = member.inputs()
    steps = {name: _step(name, member, inputs) for name in BACKENDS}
    first = {name: processor_seconds(step) for name, step in steps.items()}
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in BACKENDS}
    start = time.process_time()
    for count in range(_STEPS):
        if count >= 3 and time.process_time() - start > _SECONDS:
            break
        for name, step in steps.items():
            times[name].append(processor_seconds(step))
    return Row(
        member.name, first, {name: statistics.median(t) for name, t in times.items()}
    )


def _step(name: str, member: Member, inputs: tuple[Any, ...]) -> Any:
    backend = backends.get(name)
    network = zoo.build(member.name, backend=backend, **member.settings).train()
    optimizer = backend.optimizer(rule("sgd", lr=0.001, momentum=0.9), network)
    return lambda: float(backend.numpy(optimizer.update(square_distance, *inputs)))


def square_distance(network: Any, *inputs: Any) -> Any:
    """The mean square distance of each output from 1, added up.

    From 0, all gradients of a network that begins with outputs of 0 would be 0.
    """
    outputs = nest.leaves(network(*inputs))
    return sum(network.nn.mean((y - 1.0) * (y - 1.0)) for y in outputs)


def _single_thread_torch() -> None:
    import torch

    torch.set_num_threads(1)


if __name__ == "__main__":
    _single_thread_torch()
    print(json.dumps(asdict(measure(MEMBERS[int(sys.argv[1])]))))
