"""Networks with published weights by name: tiny files of the reference libraries from the host."""

import hashlib
import io
import json
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from skimage import data

from deliralike import zoo
from deliralike.errors import (
    ArgumentError,
    SettingError,
    ShapeError,
    UnknownName,
    WeightFileMissing,
)
from deliralike.zoo import published
from deliralike.zoo.published import names
from deliralike.zoo.published.entries import WeightsTable, registry
from tests.references import Later
from tests.zoo.case import close, scrambled
from tests.zoo.cases import clip
from tests.zoo.cases.vit import SMALL

TorchvisionViT = Later("torchvision.models.VisionTransformer")
ResNet = Later("torchvision.models.ResNet")
BasicBlock = Later("torchvision.models.resnet.BasicBlock")
TimmResNet = Later("timm.models.resnet.ResNet")
TimmBlock = Later("timm.models.resnet.BasicBlock")
TimmViT = Later("timm.models.vision_transformer.VisionTransformer")
HFConfig = Later("transformers.ViTConfig")
HFViT = Later("transformers.ViTForImageClassification")
GPTConfig = Later("transformers.GPT2Config")
GPT = Later("transformers.GPT2LMHeadModel")
MonaiResNet = Later("monai.networks.nets.resnet.ResNet")
MonaiUNet = Later("monai.networks.nets.UNet")
Encoder = Later("segmentation_models_pytorch.encoders.resnet.ResNetEncoder")

RESNET = {"layers": (1, 1, 1, 1)}
HF_SMALL = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "image_size": 15,
    "patch_size": 5,
}
GPT_SMALL = {"vocab_size": 11, "n_positions": 6, "n_embd": 8, "n_layer": 1, "n_head": 2}


def timm_vit():
    return TimmViT(
        img_size=15,
        patch_size=5,
        embed_dim=8,
        depth=2,
        num_heads=2,
        mlp_ratio=1.5,
        num_classes=1000,
    )


# The publisher: the name, the zoo's architecture and small settings, the library's own network
NETWORKS = {
    "torchvision": (
        "torchvision/IMAGENET1K_V1",
        "vit_b_16",
        SMALL,
        lambda: TorchvisionViT(**SMALL),
    ),
    "timm": ("timm/vit_base_patch16_224.augreg_in1k", "vit_b_16", SMALL, timm_vit),
    "transformers": (
        "hf-hub:google/vit-base-patch16-224",
        "vit_b_16",
        SMALL,
        lambda: HFViT(HFConfig(num_labels=1000, **HF_SMALL)),
    ),
    "a language model": (
        "hf-hub:openai-community/gpt2",
        "gpt2",
        GPT_SMALL,
        lambda: GPT(GPTConfig(**GPT_SMALL, bos_token_id=0, eos_token_id=0)),
    ),
    "CLIP": (
        "hf-hub:openai/clip-vit-base-patch32",
        "clip_vit_b_32",
        clip.SMALL,
        lambda: clip.reference(**clip.SMALL),
    ),
    "torchvision's ResNet": (
        "torchvision/IMAGENET1K_V1",
        "resnet18",
        RESNET,
        lambda: ResNet(BasicBlock, [1, 1, 1, 1]),
    ),
    "timm's ResNet": (
        "timm/resnet18.a1_in1k",
        "resnet18",
        RESNET,
        lambda: TimmResNet(TimmBlock, [1, 1, 1, 1]),
    ),
    "smp's encoder": (
        "smp/resnet18.imagenet",
        "resnet18",
        RESNET,
        lambda: Encoder(
            out_channels=[3, 64], block=BasicBlock.found(), layers=[1, 1, 1, 1]
        ),
    ),
    "MedicalNet": (
        "monai/MedicalNet-Resnet18_23datasets",
        "resnet18",
        RESNET,
        lambda: MonaiResNet(
            "basic",
            [1, 1, 1, 1],
            [64, 128, 256, 512],
            n_input_channels=1,
            conv1_t_stride=2,
            shortcut_type="A",
            feed_forward=False,
        ),
    ),
}


@cache
def library_network(which):
    """The library's small network in double precision, with a state away from its start."""
    torch.manual_seed(0)
    module = NETWORKS[which][3]().double().eval()
    state = scrambled(
        {key: value.numpy() for key, value in module.state_dict().items()}
    )
    for key in state:
        if key == "lm_head.weight":
            state[key] = state["transformer.wte.weight"]
    module.load_state_dict(
        {key: torch.from_numpy(np.asarray(v)) for key, v in state.items()}
    )
    return module


def saved(module):
    """The module's file as torch.save writes it."""
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    return file.getvalue()


def of_data_parallel(module):
    """A checkpoint in the old form of torch.save, as MONAI reads MedicalNet's."""
    state = {f"module.{name}": value for name, value in module.state_dict().items()}
    file = io.BytesIO()
    torch.save({"state_dict": state}, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def safetensors(module, folder):
    from safetensors.torch import save_file

    if hasattr(module, "save_pretrained"):
        module.save_pretrained(folder)
    else:
        save_file(module.state_dict(), folder / "model.safetensors")
    return (folder / "model.safetensors").read_bytes()


@pytest.fixture
def publish(host, monkeypatch, tmp_path):
    """Puts the file of a network on the host; its hash becomes the published one."""

    def put(which, content=None):
        name, architecture, _, _ = NETWORKS[which]
        entry = published.choose(architecture, name)
        if name.startswith("torchvision/"):
            content = content or saved(library_network(which))
            file = replace(entry.file, sha256=hashlib.sha256(content).hexdigest()[:8])
            changed = replace(entry, file=file)
            rows = [changed if one == entry else one for one in registry()]
            monkeypatch.setattr(names, "registry", lambda: WeightsTable(rows))
            host.files[f"/models/{file.place.name}"] = content
            return changed
        filename = entry.file.filenames[0]
        path = f"/{entry.file.repository}/resolve/{entry.file.revision}/{filename}"
        if filename.endswith(".pth"):
            host.files[path] = of_data_parallel(library_network(which))
        else:
            host.files[path] = safetensors(library_network(which), tmp_path)
        return entry

    return put


def ours(backend, which="torchvision's ResNet", **settings):
    name, architecture, small, _ = NETWORKS[which]
    return zoo.build(
        architecture, backend=backend, dtype="float64", weights=name, **small | settings
    )


def outputs(network, x):
    backend = network.backend
    array = (
        backend.array(x, "float64")
        if x.dtype.kind == "f"
        else backend.array(x, "int64")
    )
    with network.training_mode(False), backend.evaluating():
        return backend.numpy(network(array))


@pytest.mark.parametrize(
    ("which", "backend"),
    [
        ("torchvision", "torch"),
        ("torchvision", "chainer"),
        ("torchvision", "jax"),
        ("timm", "chainer"),
        ("transformers", "jax"),
        ("a language model", "chainer"),
        ("torchvision's ResNet", "torch"),
        ("timm's ResNet", "torch"),
        ("MedicalNet", "torch"),
    ],
)
def test_weights_by_name_give_the_librarys_outputs(which, backend, publish):
    entry = publish(which)
    network = ours(backend, which)
    x = np.random.default_rng(0).standard_normal((1, 3, 15, 15))
    if which == "a language model":
        x = np.array([[1, 7, 0, 3]])
    if which == "MedicalNet":
        x = np.random.default_rng(0).standard_normal((1, 1, 17, 33, 19))
    with torch.no_grad():
        wanted = library_network(which)(torch.from_numpy(x))
    close(outputs(network, x), getattr(wanted, "logits", wanted).numpy(), 1e-9)
    assert network.published_weights == entry


def test_an_encoder_of_smp_gives_a_network_with_a_fresh_head(publish, caplog):
    publish("smp's encoder")
    state = ours("torch", "smp's encoder", num_classes=4).neutral_state()
    wanted = (
        library_network("smp's encoder").state_dict()["layer4.0.conv2.weight"].numpy()
    )
    np.testing.assert_array_equal(state["layer4.0.conv2.weight"], wanted)
    assert "the file has no such head; the start values stay" in caplog.text


def test_an_encoder_takes_the_file_of_its_classifier(publish):
    name = publish("smp's encoder").name
    settings = {"encoder": "resnet18", "encoder_settings": RESNET, "in_channels": 3}
    network = zoo.build("encoder_unet", backend="torch", **settings)
    report = zoo.load(network.encoder, zoo.weights("resnet18").find(name).fetch())
    assert report.complete
    wanted = library_network("smp's encoder").state_dict()["conv1.weight"].numpy()
    np.testing.assert_allclose(
        network.neutral_state()["encoder.conv1.weight"], wanted, rtol=1e-6
    )


def test_pretrained_is_the_sources_default(publish):
    publish("torchvision's ResNet")
    network = zoo.build("resnet18", backend="torch", weights="pretrained", **RESNET)
    assert network.published_weights.name == "torchvision/IMAGENET1K_V1"


def test_another_head_takes_the_labels_away_and_keeps_the_preprocessing(publish):
    publish("torchvision")
    network = ours("jax", "torchvision")
    other = zoo.reset_head(network, 3)
    assert zoo.preprocessing(other) == zoo.preprocessing(network)
    assert (other.published_weights.label_names(), other.published_weights.classes) == (
        (),
        None,
    )


def test_the_settings_of_the_weights_are_taken_unless_others_are_given(publish):
    publish("transformers")
    assert ours("torch", "transformers").encoder.ln.eps == 1e-12
    assert ours("torch", "transformers", eps=1e-5).encoder.ln.eps == 1e-5


def test_labels_and_probabilities_are_those_of_the_librarys_outputs(publish):
    publish("torchvision's ResNet")
    network = ours("torch")
    models = Later("torchvision.models")
    weights = models.get_model_weights("resnet18").IMAGENET1K_V1
    from PIL import Image

    x = weights.transforms()(Image.fromarray(data.astronaut()))[None].double()
    with torch.no_grad():
        scores = torch.softmax(library_network("torchvision's ResNet")(x), 1)[0]
    wanted = torch.topk(scores, 3)
    found = zoo.classify(network, data.astronaut(), top=3)
    assert [one.index for one in found] == wanted.indices.tolist()
    np.testing.assert_allclose(
        [one.probability for one in found], wanted.values, rtol=1e-6
    )
    assert found[0].label == weights.meta["categories"][found[0].index]
    both = zoo.classify(network, [data.astronaut(), data.camera()], top=3)
    assert [len(one) for one in both] == [3, 3]
    assert both[0][0].index == found[0].index


# Repositories that the registry does not have

TIMM_CONFIG = {
    "architecture": "resnet18",
    "num_classes": 6,
    "pretrained_cfg": {
        "input_size": [3, 40, 40],
        "crop_pct": 0.9,
        "crop_mode": "squash",
        "interpolation": "bicubic",
        "mean": [0.5, 0.5, 0.5],
        "std": [0.25, 0.5, 0.5],
        "label_names": list("abcdef"),
    },
}
HF_CONFIG = {
    "id2label": {str(i): f"kind {i}" for i in range(12)},
    "layer_norm_eps": 1e-12,
}
HF_PROCESSOR = {
    "do_resize": True,
    "size": {"height": 15, "width": 15},
    "resample": 3,
    "image_mean": [0.1, 0.2, 0.3],
    "image_std": [0.5, 0.6, 0.7],
}


def test_a_repository_of_timms_describes_itself(host, tmp_path):
    module = TimmResNet(TimmBlock, [1, 1, 1, 1], num_classes=6)
    folder = "/me/net/resolve/v1"
    host.files[f"{folder}/model.safetensors"] = safetensors(module, tmp_path)
    host.files[f"{folder}/config.json"] = json.dumps(TIMM_CONFIG).encode()
    network = zoo.build(
        "resnet18", backend="torch", weights="hf-hub:me/net@v1", **RESNET
    )
    assert network.fc.bias.shape == (6,)
    assert zoo.preprocessing(network) == zoo.Preprocessing(
        (44, 44), 40, "bicubic", (0.5, 0.5, 0.5), (0.25, 0.5, 0.5)
    )
    assert zoo.classify(network, data.camera(), top=1)[0].label in list("abcdef")


def test_a_repository_of_transformers_describes_itself(host, tmp_path):
    module = HFViT(HFConfig(num_labels=12, **HF_SMALL))
    folder = "/me/net/resolve/main"
    host.files[f"{folder}/model.safetensors"] = safetensors(module, tmp_path)
    host.files[f"{folder}/config.json"] = json.dumps(HF_CONFIG).encode()
    host.files[f"{folder}/preprocessor_config.json"] = json.dumps(HF_PROCESSOR).encode()
    network = zoo.build("vit_b_16", backend="torch", weights="hf-hub:me/net", **SMALL)
    assert network.encoder.ln.eps == 1e-12
    assert zoo.preprocessing(network) == zoo.Preprocessing(
        (15, 15), None, "bicubic", (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    )
    assert zoo.classify(network, data.camera(), top=1)[0].label.startswith("kind ")


def test_a_bundle_of_monai_gives_the_networks_outputs(host):
    small = {"channels": (4, 8), "strides": (2,), "num_res_units": 1}
    torch.manual_seed(0)
    module = MonaiUNet(3, 1, 2, norm="batch", **small).double().eval()
    host.files["/MONAI/net/resolve/0.5.3/models/model.pt"] = saved(module)
    weights = "hf-hub:MONAI/net@0.5.3"
    network = zoo.build(
        "residual_unet", backend="jax", dtype="float64", weights=weights, **small
    )
    x = np.random.default_rng(0).standard_normal((1, 1, 6, 4, 8))
    with torch.no_grad():
        wanted = module(torch.from_numpy(x))
    close(outputs(network, x), wanted.numpy(), 1e-9)


# Errors

BUILD = partial(zoo.build, "resnet18", backend="torch")


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (
            partial(BUILD, weights="timm/resnet18.a9_in1k"),
            UnknownName,
            "Did you mean 'timm/resnet18.a.*zoo.weights\\('resnet18'\\), or deliralike zoo",
        ),
        (
            partial(BUILD, weights="torchvision/IMAGENET1K_V9"),
            UnknownName,
            "Did you mean 'torchvision/IMAGENET1K_V1'",
        ),
        (
            partial(BUILD, weights="timm/resnet50.a1_in1k"),
            SettingError,
            "weights of 'resnet50', not of 'resnet18'",
        ),
        (
            partial(BUILD, weights="torchvision/IMAGENET1K_V1@main"),
            SettingError,
            "is no repository",
        ),
        (partial(BUILD, pretrained=True), ArgumentError, "say weights='pretrained'"),
        (
            partial(zoo.build, "lenet", backend="torch", weights="pretrained"),
            UnknownName,
            "nobody is known to have published weights of 'lenet'",
        ),
        (
            lambda: zoo.preprocessing(BUILD()),
            ArgumentError,
            "not built with published weights",
        ),
        (
            lambda: zoo.preprocessing(zoo.weights("gpt2")[0]),
            NotImplementedError,
            "its inputs are no pictures",
        ),
        (
            lambda: zoo.weights("resnet18").find("timm/resnet18.a9_in1k"),
            UnknownName,
            "the table has no weights 'timm/resnet18.a9_in1k'. Did you mean",
        ),
        (
            lambda: zoo.Preprocessing()(np.ones((3, 4))),
            ShapeError,
            "wanted uint8 from 0 to 255",
        ),
        (
            lambda: zoo.Preprocessing()([data.camera(), data.coins()]),
            ShapeError,
            "pictures of one size are wanted",
        ),
    ],
)
def test_an_error_says_what_to_do(build, error, words):
    with pytest.raises(error, match=words):
        build()


def test_a_file_that_is_missing_points_to_the_published_names():
    with pytest.raises(WeightFileMissing) as raised:
        BUILD(weights="IMAGENET1K_V1")
    assert "zoo.weights('resnet18')" in raised.value.__notes__[0]


def test_an_unknown_setting_is_refused_before_anything_is_downloaded(host):
    with pytest.raises(ArgumentError, match="has no setting 'depht'"):
        BUILD(weights="pretrained", depht=3)
    assert host.requests == []
