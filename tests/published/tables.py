"""The tables of published weights, read off the installed reference libraries.

An entry is kept only if the names and shapes of the library's own network fit ours, as `zoo.load`
reads them. Nothing is downloaded, so nothing here says that a file answers to its description.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from deliralike import zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from deliralike.errors import DeliralikeError
from deliralike.zoo import loading
from tests.references import allow_torchvision, compute_on_cpu

Record = dict[str, Any]

IMAGENET = "imagenet-1k"
VOC = "voc"
KINETICS = "kinetics-400"


def torchvision_records() -> list[Record]:
    """Return an entry for each weight of torchvision's enums whose network the zoo has."""
    records = []
    models = _torchvision().models
    for name in sorted(set(models.list_models()) & set(zoo.list())):
        default = models.get_model_weights(name).DEFAULT
        for weights in models.get_model_weights(name):
            if weights.meta["categories"] is None:
                continue  # VGG's features, in whose file the classifier is not a number
            size = weights.transforms.keywords.get("crop_size")
            settings = _torchvision_settings(name, weights, size)
            theirs = functools.partial(
                models.get_model, name, **_theirs(name, settings)
            )
            if _fits(name, settings, theirs):
                records.append(
                    _torchvision_record(name, weights, settings, weights is default)
                )
    return records


def _torchvision_settings(name: str, weights: Any, size: Any) -> Record:
    """Return the settings under which torchvision itself builds the network for its weights."""
    settings: Record = {}
    if name in ("googlenet", "inception_v3"):
        settings["transform_input"] = True
    if name.startswith(("fcn_", "deeplabv3_")):
        settings["aux_loss"] = True
    if zoo.find(name).task == "classification":
        settings["image_size"] = size
    return _changed(name, settings)


def _theirs(name: str, settings: Record) -> Record:
    """Return the settings of torchvision's own function."""
    theirs = {key: value for key, value in settings.items() if key != "transform_input"}
    if zoo.find(name).task == "segmentation":
        theirs["weights_backbone"] = None
    return theirs


def _torchvision_record(
    name: str, weights: Any, settings: Record, default: bool
) -> Record:
    keywords = weights.transforms.keywords
    interpolation = keywords.get("interpolation")
    is_segmentation = weights.transforms.func.__name__ == "SemanticSegmentation"
    meta = weights.meta
    resize = keywords.get("resize_size", 256)
    preprocessing = {
        "resize": resize if isinstance(resize, int) else list(resize),
        "crop": None if is_segmentation else keywords["crop_size"],
        "interpolation": interpolation.value if interpolation else "bilinear",
        "mean": list(keywords.get("mean", (0.485, 0.456, 0.406))),
        "std": list(keywords.get("std", (0.229, 0.224, 0.225))),
    }
    if weights.transforms.func.__name__ == "VideoClassification":
        preprocessing = None
    return {
        "architecture": name,
        "name": f"torchvision/{weights.name}",
        "url": weights.url,
        "sha256": re.search(r"-([0-9a-f]{8,64})\.\w+$", weights.url)[1],
        "size": meta["_file_size"],
        "classes": len(meta["categories"]),
        "labels": _labels_key(meta["categories"]),
        "metrics": meta["_metrics"],
        "license": meta.get("license"),
        "settings": settings,
        "preprocessing": preprocessing,
        "default": default,
    }


@functools.cache
def labels() -> dict[str, list[str]]:
    """Return the names of the classes of each data set."""
    models = _torchvision().models
    imagenet = models.get_model_weights("resnet18").DEFAULT.meta["categories"]
    voc = models.get_model_weights("fcn_resnet50").DEFAULT.meta["categories"]
    kinetics = models.get_model_weights("r3d_18").DEFAULT.meta["categories"]
    return {IMAGENET: list(imagenet), VOC: list(voc), KINETICS: list(kinetics)}


def _labels_key(categories: list[str]) -> str:
    for key, names in labels().items():
        if names == list(categories):
            return key
    return ""


# timm's windows are no larger than the image of their stage.
_WINDOWS_16: Record = {"window_size": [16, 16, 16, 8]}
_WINDOWS_24: Record = {"window_size": [24, 24, 24, 12]}
_FROM_12: Record = {"pretrained_window_size": [12, 12, 12, 6]}
# timm's normalisations move as PyTorch's do by default.
_AS_PYTORCH: Record = {"momentum": 0.1}
# the multiply-adds of a RegNet in timm's name, and in torchvision's
_REGNETS = {
    "004": "400mf",
    "008": "800mf",
    "016": "1_6gf",
    "032": "3_2gf",
    "080": "8gf",
    "160": "16gf",
    "320": "32gf",
    "1280": "128gf",
}

# timm's name of an architecture: the zoo's name, and the settings that make it the same network
_TIMM_ALIASES: tuple[tuple[str, str, Record], ...] = (
    (r"vit_base_patch16_\d+", "vit_b_16", {}),
    (r"vit_base_patch32_\d+", "vit_b_32", {}),
    (r"vit_large_patch16_\d+", "vit_l_16", {}),
    (r"vit_large_patch32_\d+", "vit_l_32", {}),
    (r"vit_huge_patch14_\d+", "vit_h_14", {}),
    (r"(?:vit|deit)_tiny_patch16_\d+", "deit_tiny_patch16_224", {}),
    (r"(?:vit|deit)_small_patch16_\d+", "deit_small_patch16_224", {}),
    (r"deit_base_patch16_\d+", "deit_base_patch16_224", {}),
    (r"(vit_base_patch16_siglip)_\d+", r"\1_224", {}),
    (r"(vit_large_patch16_siglip)_(?:256|384)", r"\1_256", {}),
    (r"(vit_so400m_patch14_siglip)_(?:224|378)", r"\1_224", {}),
    (r"(vit_(?:small|base|large)_patch16_dinov3)_qkvb", r"\1", {"qkv_bias": True}),
    (r"(sam2_hiera_\w+)", r"\1", {"neck_chans": 0}),
    (r"swin_tiny_patch4_window7_224", "swin_t", {}),
    (r"swin_small_patch4_window7_224", "swin_s", {}),
    (r"swin_base_patch4_window7_224", "swin_b", {}),
    (r"swin_base_patch4_window12_384", "swin_b", {"window_size": 12}),
    (r"swinv2_tiny_window8_256", "swin_v2_t", {}),
    (r"swinv2_tiny_window16_256", "swin_v2_t", _WINDOWS_16),
    (r"swinv2_small_window8_256", "swin_v2_s", {}),
    (r"swinv2_small_window16_256", "swin_v2_s", _WINDOWS_16),
    (r"swinv2_base_window8_256", "swin_v2_b", {}),
    (r"swinv2_base_window16_256", "swin_v2_b", _WINDOWS_16),
    (r"swinv2_base_window12_192", "swin_v2_b", {"window_size": [12, 12, 12, 6]}),
    (r"swinv2_base_window12to16_192to256", "swin_v2_b", _WINDOWS_16 | _FROM_12),
    (r"swinv2_base_window12to24_192to384", "swin_v2_b", _WINDOWS_24 | _FROM_12),
    (r"deit_base_distilled_patch16_\d+", "deit_base_distilled_patch16_224", {}),
    (r"efficientnet_(b[0-7])", r"efficientnet_\1", {"eps": 1e-5, **_AS_PYTORCH}),
    (
        r"tf_efficientnet_(b[0-7])",
        r"efficientnet_\1",
        {"same_padding": True, "eps": 1e-3, **_AS_PYTORCH},
    ),
    (r"mobilenetv2_100", "mobilenet_v2", {}),
    (r"mobilenetv2_140", "mobilenet_v2", {"width_mult": 1.4}),
    (r"mobilenetv2_050", "mobilenet_v2", {"width_mult": 0.5}),
    (
        r"mobilenetv3_(large|small)_100",
        r"mobilenet_v3_\1",
        {"eps": 1e-5, **_AS_PYTORCH},
    ),
    (
        r"tf_mobilenetv3_(large|small)_100",
        r"mobilenet_v3_\1",
        {"same_padding": True, **_AS_PYTORCH},
    ),
    (r"mnasnet_100", "mnasnet1_0", _AS_PYTORCH),
    (r"regnetx_004_tv", "regnet_x_400mf", {}),
    (r"regnety_008_tv", "regnet_y_800mf", {}),
    (r"regnety_080_tv", "regnet_y_8gf", {}),
    (r"regnety_080", "regnet_y_8gf", {"widths": [168, 448, 896, 2016]}),
    (r"regnetx_004", "regnet_x_400mf", {"widths": [32, 64, 160, 384]}),
    (r"regnety_008", "regnet_y_800mf", {"widths": [64, 128, 320, 768]}),
    *(
        (rf"regnet([xy])_{theirs}", rf"regnet_\1_{ours}", {})
        for theirs, ours in _REGNETS.items()
    ),
    (
        r"tf_efficientnetv2_([sml])",
        r"efficientnet_v2_\1",
        {"same_padding": True, "eps": 1e-3},
    ),
)

# Of the same name in both, but not the same function, or files of which the table does not say
# whether they hold the auxiliary classifier.
_TIMM_LEFT_OUT = ("inception_v3",)


# Networks without a classifier, whose files lack the last normalisation that timm's network has.
_TIMM_TAGS_LEFT_OUT = ("fcmae",)


def timm_records() -> list[Record]:
    """Return an entry for each of timm's weights on the Hugging Face Hub that the zoo has."""
    timm = _timm()
    records = []
    for full_name in timm.list_pretrained():
        theirs, _, tag = full_name.partition(".")
        ours = _timm_alias(theirs)
        if ours is None:
            continue
        config = timm.models.get_pretrained_cfg(full_name)
        if config.hf_hub_id != f"timm/{full_name}" or tag in _TIMM_TAGS_LEFT_OUT:
            continue
        name, settings = ours
        settings = _changed(name, settings | _timm_settings(theirs, config))
        create = functools.partial(
            timm.create_model, theirs, num_classes=config.num_classes
        )
        if _fits(name, settings, create):
            records.append(_timm_record(name, full_name, config, settings))
    return records


def _timm_alias(theirs: str) -> tuple[str, Record] | None:
    if theirs in _TIMM_LEFT_OUT:
        return None
    for pattern, ours, settings in _TIMM_ALIASES:
        match = re.fullmatch(pattern, theirs)
        if match:
            return match.expand(ours), dict(settings)
    if theirs in zoo.list():
        return theirs, {}
    return None


def _timm_settings(theirs: str, config: Any) -> Record:
    """Return the numbers of classes and of pixels, and what is dropped in training."""
    return {
        "num_classes": config.num_classes,
        "image_size": config.input_size[-1],
        "dropout": 0.0,
        "stochastic_depth": 0.1 if theirs.startswith("swin") else 0.0,
    }


def _changed(name: str, settings: Record) -> Record:
    """Return the settings that the architecture has, and by default otherwise."""
    known = zoo.find(name).settings
    return {
        key: value for key, value in settings.items() if known.get(key, value) != value
    }


def _timm_record(name: str, full_name: str, config: Any, settings: Record) -> Record:
    from timm.data import resolve_data_config

    data = resolve_data_config(pretrained_cfg=config.to_dict())
    side = data["input_size"][-1]
    scaled = math.floor(side / data["crop_pct"])
    is_squashed = data["crop_mode"] == "squash"
    assert data["crop_mode"] in ("center", "squash"), full_name
    assert data["input_size"][1] == side, full_name
    return {
        "architecture": name,
        "name": f"timm/{full_name}",
        "repository": config.hf_hub_id,
        "size": None,
        "classes": config.num_classes,
        "labels": IMAGENET if config.num_classes == 1000 else "",
        "metrics": {},
        "license": None if config.license == "unknown" else config.license,
        "settings": settings,
        "preprocessing": {
            "resize": [scaled, scaled] if is_squashed else scaled,
            "crop": side,
            "interpolation": data["interpolation"],
            "mean": list(data["mean"]),
            "std": list(data["std"]),
        },
    }


# repository of a checkpoint: the module of transformers that names it, the zoo's name and settings
_TRANSFORMERS: dict[str, tuple[str, str, Record]] = {
    "google/vit-base-patch16-224": (
        "models.vit.configuration_vit",
        "vit_b_16",
        {"eps": 1e-12},
    ),
    "facebook/dinov2-base": (
        "models.dinov2.configuration_dinov2",
        "vit_base_patch14_dinov2",
        {},
    ),
    "facebook/dinov2-with-registers-base": (
        "models.dinov2_with_registers.configuration_dinov2_with_registers",
        "vit_base_patch14_reg4_dinov2",
        {},
    ),
    "facebook/dinov3-vits16-pretrain-lvd1689m": (
        "models.dinov3_vit.configuration_dinov3_vit",
        "vit_small_patch16_dinov3",
        {"qkv_bias": True, "global_pool": "token"},
    ),
    "google/siglip-base-patch16-224": (
        "models.siglip.configuration_siglip",
        "vit_base_patch16_siglip_224",
        {"approximate": "tanh"},
    ),
    "facebook/sam2.1-hiera-tiny": (
        "models.sam2.configuration_sam2",
        "sam2_hiera_tiny",
        {},
    ),
    "google-bert/bert-base-uncased": (
        "models.bert.configuration_bert",
        "bert_base_uncased",
        {},
    ),
    "openai-community/gpt2": ("models.gpt2.configuration_gpt2", "gpt2", {}),
    "openai/clip-vit-base-patch32": (
        "models.clip.configuration_clip",
        "clip_vit_b_32",
        {},
    ),
    "meta-llama/Llama-3.2-1B": ("modeling_utils", "llama_3_2_1b", {}),
    "Qwen/Qwen2.5-0.5B-Instruct": ("generation.logits_process", "qwen2_5_0_5b", {}),
    "openai/whisper-tiny": (
        "models.whisper.configuration_whisper",
        "whisper_tiny",
        {},
    ),
    "openai/whisper-base": ("models.whisper.modeling_whisper", "whisper_base", {}),
    "google-t5/t5-small": ("models.t5.configuration_t5", "t5_small", {}),
    "google/flan-t5-small": ("generation.logits_process", "flan_t5_small", {}),
}
_PROCESSORS = {
    "vit_b_16": "transformers.models.vit.image_processing_vit",
    "clip_vit_b_32": "transformers.models.clip.image_processing_clip",
}


def transformers_records() -> list[Record]:
    """Return an entry for each checkpoint in one file that transformers names and we have."""
    import importlib

    allow_torchvision()
    records = []
    for repository, (module, name, settings) in _TRANSFORMERS.items():
        source = inspect.getsource(importlib.import_module(f"transformers.{module}"))
        if f'"{repository}"' not in source:
            raise LookupError(f"transformers.{module} no longer names {repository}")
        classes = zoo.find(name).settings.get("num_classes")
        preprocessing = None
        if name in _PROCESSORS:
            preprocessing = _image_processor(_PROCESSORS[name])
        records.append(
            {
                "architecture": name,
                "name": f"hf-hub:{repository}",
                "repository": repository,
                "size": None,
                "classes": classes,
                "labels": IMAGENET if classes == 1000 else "",
                "metrics": {},
                "license": None,
                "settings": settings,
                "preprocessing": preprocessing,
            }
        )
    return records


def _image_processor(module: str) -> Record:
    """Return the defaults of an image processor of transformers.

    It resizes to a fixed size, or the shorter side, and then crops a square.
    """
    import importlib

    from transformers.image_processing_backends import TorchvisionBackend  # noqa: F401

    found = importlib.import_module(module)
    (processor,) = [
        value
        for name, value in vars(found).items()
        if name.endswith("ImageProcessor") and value.__module__ == module
    ]
    size = processor.size
    is_fixed = "height" in size
    return {
        "resize": [size["height"], size["width"]]
        if is_fixed
        else size["shortest_edge"],
        "crop": None if is_fixed else processor.crop_size["height"],
        "interpolation": processor.resample.name.lower(),
        "mean": list(processor.image_mean),
        "std": list(processor.image_std),
    }


def smp_records() -> list[Record]:
    """Return an entry for each of smp's encoders that is a network of the zoo without a head."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        allow_torchvision()
        from segmentation_models_pytorch.encoders import encoders
    records = []
    for encoder in sorted(encoders):
        name, settings = _smp_alias(encoder)
        if name not in zoo.list():
            continue
        entry = encoders[encoder]
        create = functools.partial(entry["encoder"], **entry["params"])
        if not _fits(name, settings, create):
            continue
        for tag, place in entry["pretrained_settings"].items():
            records.append(
                {
                    "architecture": name,
                    "name": f"{place['repo_id'].replace('smp-hub', 'smp')}",
                    "repository": place["repo_id"],
                    "revision": place["revision"],
                    "size": None,
                    "classes": None,
                    "labels": "",
                    "metrics": {},
                    "license": None,
                    "settings": _changed(name, settings),
                    "preprocessing": _smp_preprocessing(tag, place),
                    "encoder": tag,
                }
            )
    for record in records:
        del record["encoder"]
    return records


# The side of the images for which smp's EfficientNets pad; B0 hands on the first block of a stage.
_SMP_SIDES = (224, 240, 260, 300, 380, 456, 528, 600)
_SMP_B0 = {"feature_blocks": [2, 4, 8, 15]}


def _smp_alias(encoder: str) -> tuple[str, Record]:
    """Return the zoo's name for an encoder, and the settings that make it the same network."""
    match = re.fullmatch(r"(timm-)?efficientnet-b([0-7])", encoder)
    if not match:
        return encoder, {}
    number = int(match[2])
    name = f"efficientnet_b{number}"
    if match[1]:
        return name, {"eps": 1e-5, **_AS_PYTORCH}
    settings: Record = {
        "same_padding": _SMP_SIDES[number],
        "eps": 1e-3,
        "momentum": 0.01,
    }
    if number == 0:
        settings |= _SMP_B0
    return name, settings


def _smp_preprocessing(tag: str, place: Mapping[str, Any]) -> Record | None:
    """Return mean and deviation; smp neither resizes nor crops.

    The library does not state those of weights that were trained on adversarial pictures.
    """
    if tag == "advprop":
        return None
    return {
        "resize": None,
        "crop": None,
        "interpolation": "bilinear",
        "mean": list(place.get("mean", (0.485, 0.456, 0.406))),
        "std": list(place.get("std", (0.229, 0.224, 0.225))),
    }


def monai_records() -> list[Record]:
    """Return an entry for each file that MONAI names and whose network the zoo has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        allow_torchvision()
        from monai.networks.nets import efficientnet, resnet
    return [*_medicalnet_records(resnet), *_monai_efficientnet_records(efficientnet)]


_23_DATASETS = "_23dataset.pth"


def _medicalnet_records(resnet: Any) -> list[Record]:
    """Return the ResNets of MedicalNet; those of 23 data sets, MONAI's first choice, come first."""
    if _23_DATASETS not in inspect.getsource(resnet.get_pretrained_resnet_medicalnet):
        raise LookupError(f"MONAI no longer names MedicalNet's files {_23_DATASETS}")
    records = []
    for name, (*_, has_23_datasets) in resnet.resnet_params.items():
        depth = name.removeprefix("resnet")
        _, shortcut = resnet.get_medicalnet_pretrained_resnet_args(int(depth))
        settings = {"dims": 3, "in_channels": 1, "num_classes": 0, "shortcut": shortcut}
        settings = _changed(name, settings)
        create = functools.partial(resnet.ResNetFeatures, name, pretrained=False)
        if not _fits(name, settings, create):
            continue
        repository = f"{resnet.MEDICALNET_HUGGINGFACE_REPO_BASENAME}{depth}"
        file = f"{resnet.MEDICALNET_HUGGINGFACE_FILES_BASENAME}{depth}"
        of_monai = f"monai/{repository.partition('/')[2]}"
        files = {of_monai: f"{file}.pth"}
        if has_23_datasets:
            files = {f"{of_monai}_23datasets": f"{file}{_23_DATASETS}", **files}
        for full_name, filename in files.items():
            place = {"repository": repository, "filename": filename}
            records.append(
                {"architecture": name, "name": full_name, **place, "settings": settings}
            )
    return records


def _monai_efficientnet_records(efficientnet: Any) -> list[Record]:
    """Return the EfficientNets, and those that were trained with adversarial pictures (ap)."""
    records = []
    for theirs, url in efficientnet.url_map.items():
        size = re.search(r"b\d", theirs)[0]
        name = f"efficientnet_{size}"
        if name not in zoo.list():
            continue
        _, _, side, *_ = efficientnet.efficientnet_params[f"efficientnet-{size}"]
        settings = _changed(name, {"same_padding": side, "eps": 1e-3, "momentum": 0.01})
        create = functools.partial(efficientnet_of_monai, f"efficientnet-{size}")
        if not _fits(name, settings, create):
            continue
        suffix = "-ap" if theirs.endswith("-ap") else ""
        records.append(
            {
                "architecture": name,
                "name": f"monai/efficientnet-{size}{suffix}",
                "url": url,
                "classes": 1000,
                "labels": IMAGENET,
                "settings": settings,
            }
        )
    return records


def efficientnet_of_monai(name: str) -> Any:
    """Return MONAI's network, whose state has the names of the files, as MONAI translates them."""
    from monai.networks.nets import EfficientNetBN

    network = EfficientNetBN(name, pretrained=False)
    network.register_state_dict_post_hook(_without_stages)
    return network


def _without_stages(module: Any, state: Any, prefix: str, metadata: Any) -> None:
    for key in list(state):
        state[re.sub(r"(.+)\.\d+(\.\d+\..+)", r"\1\2", key)] = state.pop(key)


SOURCES = {
    "torchvision": torchvision_records,
    "timm": timm_records,
    "transformers": transformers_records,
    "smp": smp_records,
    "monai": monai_records,
}


def _fits(name: str, settings: Record, create: Any) -> bool:
    """Return whether every array of the library's network has its place in ours."""
    key = (name, repr(sorted(settings.items())), repr(create))
    if key not in _FITS:
        _FITS[key] = _compare(name, settings, create)
    return _FITS[key]


_FITS: dict[tuple[str, str, str], bool] = {}


def _compare(name: str, settings: Record, create: Any) -> bool:
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        module = create()
    state = {}
    for key, value in module.state_dict().items():
        state[key] = np.broadcast_to(np.zeros((), np.float32), tuple(value.shape))
    try:
        network = zoo.find(name).on(OUTLINE)(**settings)
        plan = loading.Plan.of(network, {"": state})
    except DeliralikeError as error:
        print(f"left out: {name} {settings}: {error}")
        return False
    without_head = set(dict(plan.report("").skipped).values())
    if plan.fits and len(without_head) <= 1:
        return True
    print(f"left out: {name} {settings}: {plan.problem()}")
    return False


@functools.cache
def _torchvision() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        allow_torchvision()
        import torchvision
    compute_on_cpu(torchvision.models.regnet.BlockParams, "from_init_params")
    return torchvision


@functools.cache
def _timm() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        allow_torchvision()
        import timm
    compute_on_cpu(timm.models.regnet.RegNet, "_get_stage_args")
    return timm


def lines(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a record that say something."""
    for key, value in record.items():
        if value not in (None, "", {}, False):
            yield key, value
