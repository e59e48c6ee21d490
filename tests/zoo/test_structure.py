"""Names, shapes and counts, against published numbers and lists written out here."""

from itertools import product

import pytest

from deliralike import zoo
from deliralike.backends.outline import BACKEND as OUTLINE


def test_small_residual_networks_have_the_size_that_the_paper_states(subtests):
    millions = {20: 0.27, 32: 0.46, 44: 0.66, 56: 0.85, 110: 1.7}
    for depth, shortcut in product(millions, "AB"):
        n = (depth - 2) // 6
        weights = 9 * (
            3 * 16 + 2 * n * 16 * 16 + (16 + (2 * n - 1) * 32) * 32 + (32 + (2 * n - 1) * 64) * 64
        )
        norms = 2 * (16 + 2 * n * (16 + 32 + 64))
        linear = 64 * 10 + 10
        projections = (16 * 32 + 2 * 32 + 32 * 64 + 2 * 64) if shortcut == "B" else 0
        with subtests.test(depth=depth, shortcut=shortcut):
            parameters = zoo.outline(f"resnet{depth}", shortcut=shortcut).parameters
            assert parameters == weights + norms + linear + projections
            if shortcut == "A":  # the paper's own choice for CIFAR-10
                assert parameters / 1e6 == pytest.approx(millions[depth], abs=0.03)


def test_resnet8_is_the_smallest_of_them():
    weights = 9 * (16 + 2 * 16 * 16 + (16 + 32) * 32 + (32 + 64) * 64)
    assert zoo.outline("resnet8").parameters == weights + 2 * (16 + 2 * (16 + 32 + 64)) + 650


@pytest.mark.parametrize(("dims", "count"), [(3, 5_749_410), (2, None), (1, None)])
def test_unet_has_as_many_parameters_as_monais_basic_unet(dims, count):
    f = (32, 32, 64, 128, 256, 32)
    k = 3**dims

    def two(m, n):
        return (m + n) * n * k + 2 * n + 4 * n  # two convolutions with biases, two norms

    def up(m, n):
        return m * n * 2**dims + n

    down = two(1, f[0]) + sum(two(f[i], f[i + 1]) for i in range(4))
    halving = sum(up(f[i + 1], f[i + 1] // 2) + two(f[i] + f[i + 1] // 2, f[i]) for i in (3, 2, 1))
    finest = up(f[1], f[1]) + two(f[0] + f[1], f[5])
    expected = down + halving + finest + f[5] * 2 + 2
    assert zoo.outline("unet", dims=dims).parameters == expected
    assert count in (None, expected)


def norm(name, width, affine_only=False):
    arrays = [("weight", (width,)), ("bias", (width,))]
    if not affine_only:
        arrays += [
            ("running_mean", (width,)),
            ("running_var", (width,)),
            ("num_batches_tracked", ()),
        ]
    return [(f"{name}.{key}", shape) for key, shape in arrays]


def torchvision_names(kind, counts, dims=2, classes=1000):
    """Torchvision's state by its naming rule: conv1, bn1, layer{1-4}.{i}.conv/bn/downsample, fc."""

    def square(k):
        return (k,) * dims

    expected = [("conv1.weight", (64, 3, *square(7))), *norm("bn1", 64)]
    width = 64
    for stage, count in enumerate(counts):
        channels = 64 * 2**stage
        out = channels * (4 if kind == "bottleneck" else 1)
        for block in range(count):
            at = f"layer{stage + 1}.{block}"
            if kind == "basic":
                convs = [(channels, width, 3), (channels, channels, 3)]
            else:
                convs = [(channels, width, 1), (channels, channels, 3), (out, channels, 1)]
            for i, (to, of, kernel) in enumerate(convs, start=1):
                expected += [
                    (f"{at}.conv{i}.weight", (to, of, *square(kernel))),
                    *norm(f"{at}.bn{i}", to),
                ]
            if block == 0 and (stage > 0 or width != out):
                expected += [
                    (f"{at}.downsample.0.weight", (out, width, *square(1))),
                    *norm(f"{at}.downsample.1", out),
                ]
            width = out
    return [*expected, ("fc.weight", (classes, width)), ("fc.bias", (classes,))]


@pytest.mark.parametrize(
    ("name", "kind", "counts"),
    [("resnet18", "basic", (2, 2, 2, 2)), ("resnet50", "bottleneck", (3, 4, 6, 3))],
)
def test_names_order_and_shapes_are_torchvisions(name, kind, counts):
    slots = zoo.find(name).on(OUTLINE)().neutral_slots()
    assert [(key, slot.shape) for key, slot in slots.items()] == torchvision_names(kind, counts)


def test_a_real_network_has_as_many_parameters_as_published(backend):
    assert zoo.build("resnet18", backend=backend).count_parameters() == 11_689_512


@pytest.mark.parametrize("dims", [1, 3])
def test_other_numbers_of_axes_have_the_same_names(dims):
    layers = (1, 2, 1, 1)
    settings = {"dims": dims, "num_classes": 7, "layers": layers}
    state = zoo.find("resnet18").on(OUTLINE)(**settings).neutral_slots()
    assert [(key, slot.shape) for key, slot in state.items()] == torchvision_names(
        "basic", layers, dims, 7
    )


def test_names_of_the_unet_are_monais():
    def two(prefix, m, n):
        return [
            entry
            for i, (of, to) in enumerate([(m, n), (n, n)])
            for entry in [
                (f"{prefix}.conv_{i}.conv.weight", (to, of, 3, 3)),
                (f"{prefix}.conv_{i}.conv.bias", (to,)),
                *norm(f"{prefix}.conv_{i}.adn.N", to, affine_only=True),
            ]
        ]

    expected = two("conv_0", 1, 4) + two("down_1.convs", 4, 6) + two("down_2.convs", 6, 8)
    expected += [
        ("upcat_2.upsample.deconv.weight", (8, 4, 2, 2)),
        ("upcat_2.upsample.deconv.bias", (4,)),
    ]
    expected += two("upcat_2.convs", 10, 6)
    expected += [
        ("upcat_1.upsample.deconv.weight", (6, 6, 2, 2)),
        ("upcat_1.upsample.deconv.bias", (6,)),
    ]
    expected += two("upcat_1.convs", 10, 5) + [
        ("final_conv.weight", (2, 5, 1, 1)),
        ("final_conv.bias", (2,)),
    ]
    state = zoo.find("unet").on(OUTLINE)(features=(4, 6, 8, 5)).neutral_slots()
    assert [(key, slot.shape) for key, slot in state.items()] == expected
