"""What an architecture refuses: settings that make no sense, and inputs of other sizes."""

import pytest

from deliralike import zoo
from deliralike.errors import SettingError, ShapeError
from tests.zoo.case import DYNUNET, NNUNET

# name, settings, and what the error says
SETTINGS = [
    ("resnet18", {"layers": (2, 2, 2)}, "numbers, exactly 4"),
    ("resnet18", {"groups": 2}, "block='bottleneck' does"),
    (
        "resnet18",
        {"replace_stride_with_dilation": (True, True, True)},
        "block='bottleneck' does",
    ),
    ("resnet50", {"replace_stride_with_dilation": True}, "each entry true or false"),
    ("resnet50d", {"output_stride": 16}, "avg_down=True takes no"),
    ("resnet50d", {"shortcut": "A"}, "takes shortcut='B'"),
    ("resnet20", {"depth": 21}, r"wanted 6n \+ 2"),
    ("mlp", {"hidden": (4, 0)}, "hidden=0 must be"),
    ("mlp", {"dropout": 1.5}, "probability"),
    ("lenet", {"image_size": 11}, "at least 12"),
    ("unet", {"norm": "group", "num_groups": 5}, "num_channels.*num_groups"),
    ("unet", {"features": (8, 8)}, "numbers, at least 3"),
    ("unet", {"features": 8}, "each entry a whole number"),
    ("vgg11", {"layers": (1, 2)}, "layers"),
    ("mobilenet_v2", {"blocks": ((1, 2, 3),)}, "blocks"),
    ("mobilenet_v3_small", {"blocks": ((3, 8, 8, True, "GELU", 2),)}, "blocks"),
    (
        "mobilenet_v3_small",
        {"blocks": ((3, 8, 8, True, "ReLU", 1),)},
        "no block has a stride",
    ),
    ("squeezenet1_0", {"plan": (None, (1, 2, 3))}, "plan"),
    ("shufflenet_v2_x0_5", {"widths": (3, 4, 5, 6, 7)}, "widths"),
    ("shufflenet_v2_x0_5", {"layers": (1, 2)}, "layers"),
    ("regnet_x_400mf", {"widths": (16, 20, 32, 48)}, "widths"),
    ("regnet_x_400mf", {"layers": (1, 2)}, "layers"),
    ("regnet_x_400mf", {"squeeze": 1.5}, "squeeze"),
    ("mnasnet1_0", {"stacks": ((1, 2),)}, "stacks"),
    ("googlenet", {"blocks": {"6a": ()}}, "blocks"),
    (
        "googlenet",
        {"blocks": {"3a": (1,) * 6, "4a": (1,) * 6, "5a": (1,) * 6}},
        "blocks",
    ),
    ("googlenet", {"transform_input": True, "in_channels": 1}, "transform_input"),
    ("resnetv2_50", {"layers": (1, 2)}, "a number for each stage"),
    ("resnetv2_50", {"widths": (254, 512, 1024, 2048)}, "widths=254"),
    ("resnetv2_50d_gn", {"stem_width": 48}, "num_groups"),
    ("r3d_18", {"kinds": ("3d", "3d", "3d", "3e")}, "no kind='3e'"),
    ("r3d_18", {"kinds": ("3d",) * 3}, "one for each of four stages"),
    ("r3d_18", {"layers": (2, 2)}, "numbers, exactly 4"),
    (
        "vit_b_16",
        {"image_size": 30, "patch_size": 16},
        "image_size=30 cannot be divided by patch_size=16",
    ),
    (
        "vit_b_16",
        {"hidden_dim": 9, "num_heads": 2},
        "embed_dim=9 cannot be divided by num_heads=2",
    ),
    ("vit_b_16", {"distilled_training": True}, "needs distilled=True"),
    (
        "vit_b_16",
        {"attention_pool": True, "distilled": True},
        "attention_pool=True goes with no other tokens",
    ),
    ("whisper_tiny", {"num_attention_heads": 5}, "d_model=384 cannot be divided by"),
    (
        "whisper_tiny",
        {"d_model": 9, "num_attention_heads": 3},
        r"d_model=9 cannot be divided by 2 \(sines and cosines\)=2",
    ),
    ("mamba2_130m", {"head_dim": 7}, r"2 \* hidden_size=1536 cannot be divided by"),
    ("mamba2_130m", {"n_groups": 5}, "heads=24 cannot be divided by n_groups=5"),
    ("efficientnet_b0", {"stages": ()}, "stages="),
    ("efficientnet_b0", {"stages": (("mbconv", 1, 3, 1, 8, 1),)}, "'mb' or 'fused'"),
    (
        "efficientnet_b0",
        {"stages": (("mb", 1, 3, 1, 8, 0),)},
        "blocks=.* must be a whole number",
    ),
    ("convnext_tiny", {"layers": (1, 2)}, "a number for each stage"),
    ("convnextv2_tiny", {"layers": (1, 2)}, "ConvNeXtV2: layers="),
    ("swin_t", {"num_heads": (5, 6, 12, 24)}, "cannot be divided by num_heads=5"),
    ("swin_t", {"window_size": (7, 7)}, "numbers, exactly 4"),
    ("swin_t", {"version": 3}, "wanted 1 or 2"),
    ("swin_t", {"pretrained_window_size": 7}, "needs version=2"),
    ("mixer_s32_224", {"image_size": 100}, "cannot be divided"),
    ("nnunet", {"strides": (1, 2)}, r"strides=\(1, 2\).*each of the 6 stages"),
    ("nnunet", {"kernel_sizes": 4}, "odd"),
    ("nnunet", {"num_classes": 0}, "num_classes"),
    ("dynunet", {"strides": (1, 2), "kernel_size": (3, 3)}, "three or more"),
    (
        "dynunet",
        {"strides": (1, 3, 2), "kernel_size": (3, 1, 3)},
        "too small for the stride",
    ),
    ("dynunet", {"deep_supervision": True, "deep_supr_num": 5}, "wanted 1 to 4"),
    ("residual_unet", {"channels": (4,)}, "numbers, at least 2"),
    ("segresnet", {"blocks_up": (1, 1)}, "one level less"),
    ("segresnet", {"dims": 1}, "wanted 2, 3"),
    ("vnet", {"in_channels": 3}, "divisor of 16"),
    ("unetr", {"img_size": 90}, "multiples of 16"),
    ("unetr", {"num_heads": 5}, "num_heads=5"),
    ("swin_unetr", {"depths": (2, 2)}, "numbers, exactly 4"),
    ("dcgan_generator", {"image_size": 48}, "image_size=48; wanted 8, 16, 32, 64"),
    ("dcgan_generator", {"image_size": 4}, "image_size=4; wanted 8"),
    (
        "conv_vae",
        {"image_size": 40},
        "image_size=40; wanted a multiple of 32 for 5 levels",
    ),
    ("conv_vae", {"features": 3}, "features=3 must be a list"),
    (
        "ddpm_cifar10",
        {"attention": (True,)},
        "wanted True or False for each of 4 levels",
    ),
    (
        "ddpm_cifar10",
        {"features": (9, 9), "attention": (False, False), "num_groups": 3},
        "cannot be divided by 2",
    ),
    ("ddpm_cifar10", {"num_groups": 24}, "cannot be divided by num_groups=24"),
    (
        "diffusion_model_unet",
        {"cross_attention_dim": 4},
        "with_conditioning=False and cross_attention_dim=4; wanted both or neither",
    ),
    (
        "diffusion_model_unet",
        {"num_head_channels": 7},
        "attention: channels=64 cannot be divided by num_head_channels=7",
    ),
    (
        "diffusion_model_unet",
        {"channels": (32, 48)},
        "wanted one value for each of the 2 stages",
    ),
    ("autoencoder_kl", {"norm_num_groups": 24}, "cannot be divided by num_groups=24"),
    (
        "clip_vit_b_32",
        {"patch_size": 30},
        "CLIP: image_size=224 cannot be divided by patch_size=30",
    ),
    (
        "clip_vit_b_32",
        {"text_num_attention_heads": 7},
        "text_hidden_size=512 cannot be divided by text_num_att",
    ),
    (
        "samvit_base_patch16",
        {"image_size": 1000},
        "SAMEncoder: image_size=1000 cannot be divided by patch_size=16",
    ),
    (
        "samvit_base_patch16",
        {"num_heads": 7},
        "SAMEncoder: embed_dim=768 cannot be divided by num_heads=7",
    ),
    (
        "samvit_base_patch16",
        {"depth": 4},
        r"global_attn_indexes=\(2, 5, 8, 11\); wanted numbers of blocks, from 0 to 3",
    ),
    ("samvit_base_patch16", {"neck_chans": 0}, "out_channels=0"),
    (
        "sam2_hiera_tiny",
        {"global_attn_indexes": (12,)},
        r"SAM2Encoder: global_attn_indexes=\(12,\); wanted numbers of blocks, from 0 to 11",
    ),
    (
        "sam2_hiera_tiny",
        {"window_size": (4, 4, 14, 7)},
        r"window_size=\(4, 4, 14, 7\); wanted a multiple of 8, two even",
    ),
    (
        "sam2_hiera_tiny",
        {"window_size": (8, 4, 7, 7)},
        r"window_size=\(8, 4, 7, 7\); wanted a multiple of 8, two even",
    ),
    (
        "efficientvit_b0",
        {"head_dim": 24},
        "EfficientViT: a stage's width=64 cannot be divided by head_dim=24",
    ),
    (
        "efficientvit_b0",
        {"widths": (8, 16, 32)},
        "EfficientViT: widths=.*; wanted a list of numbers, exactly 5",
    ),
    ("sam2_hiera_tiny", {"layers": (1, 2, 7)}, "wanted a list of numbers, exactly 4"),
    (
        "sam2_hiera_tiny",
        {"num_heads": 5},
        "SAM2Encoder: embed_dim=96 cannot be divided by num_heads=5",
    ),
    (
        "gpt2",
        {"n_embd": 10, "n_head": 3},
        "GPT2: n_embd=10 cannot be divided by n_head=3",
    ),
    (
        "llama_3_2_1b",
        {"num_key_value_heads": 5},
        "Llama: num_attention_heads=32 cannot be divided by num_key_value_heads=5",
    ),
    (
        "llama_3_2_1b",
        {"num_attention_heads": 24},
        "Llama: hidden_size=2048 cannot be divided by num_attention_heads=24",
    ),
    (
        "qwen3_0_6b",
        {"head_dim": 5},
        "rotary positions turn pairs: a head's width of 5 is odd",
    ),
    (
        "llama_2_7b",
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        "rope_scaling={'rope_type': 'yarn', 'factor': 4.0}: wanted None or the type 'llama3'",
    ),
    (
        "bert_tiny",
        {"num_attention_heads": 5},
        "BERT: hidden_size=128 cannot be divided by num_attention_heads=5",
    ),
    (
        "transformer_classifier",
        {"nhead": 7},
        "embed_dim=512 cannot be divided by num_heads=7",
    ),
    (
        "unetplusplus",
        {"encoder": "resnet20"},
        r"UNetPlusPlus: encoder 'resnet20' has no stage at 1/8, 1/16, 1/32 .* are stem \(1/1\)",
    ),
    ("fpn", {"encoder": "vit_b_16"}, r"has no stage at 1/4, 1/8.*\(no image\)"),
    (
        "encoder_unet",
        {"encoder": "convnext_tiny"},
        "'convnext_tiny' has no stage at 1/2 of",
    ),
    (
        "deeplabv3",
        {"encoder": "vgg11"},
        "DeepLabV3: encoder 'vgg11' cannot keep its last stages at 1/8 .* take a residual network",
    ),
    (
        "pspnet",
        {"output_stride": 4, "encoder_depth": 5},
        "output_stride=4; wanted 8, 16",
    ),
    ("encoder_unet", {"encoder_depth": 6}, "=6; wanted a whole number from 1 to 5"),
    ("deeplabv3plus", {"encoder_depth": 2}, "wanted a whole number from 3 to 5"),
    ("unetplusplus", {"decoder_channels": (4, 4)}, "numbers, exactly 5"),
    ("pspnet", {"num_classes": 0}, "num_classes"),
    ("fpn", {"segmentation_channels": 48}, "32"),
    ("fcn_resnet50", {"backbone": "resnet18"}, "block='bottleneck' does"),
    (
        "resnet50",
        {"output_stride": 8, "replace_stride_with_dilation": (False, True, True)},
        "32 beside replace_stride_with_dilation",
    ),
    (
        "mobilenetv4_conv_small",
        {"stages": (("uir_k3",),)},
        "stages has 'uir_k3'; wanted",
    ),
    (
        "mednext_s",
        {"blocks": (1, 1), "expansions": (2, 2)},
        "as many stages down as up",
    ),
    ("gemma_3_270m", {"sliding_window": 0}, "sliding_window=0"),
    ("gemma_3_270m", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar=0"),
]


def test_settings_that_make_no_sense_are_refused(subtests):
    for name, settings, message in SETTINGS:
        with (
            subtests.test(name, **settings),
            pytest.raises(SettingError, match=message),
        ):
            zoo.outline(name, **settings)


# name, one sample's shape, settings, and what the error says
SHAPES = [
    ("nnunet", (1, 8, 10), NNUNET, r"'encoder\.stages\.2'.*multiples of \(4, 4\)"),
    (
        "nnunet",
        (1, 4, 4),
        NNUNET,
        r"too small for the stage 'encoder\.stages\.2'.*twice",
    ),
    ("dynunet", (1, 8, 2), DYNUNET, r"'bottleneck'.*multiples of \(4, 4\)"),
    ("residual_unet", (1, 24), {"dims": 1}, r"'down_4'.*multiples of \(16,\)"),
    ("segresnet", (1, 8, 12), {"dims": 2}, r"'down_layers\.3'.*multiples of \(8, 8\)"),
    ("vnet", (1, 16, 40), {"dims": 2}, r"'down_tr256'.*multiples of \(16, 16\)"),
    ("attention_unet", (1, 16, 8), {"dims": 2}, r"'down_4'.*multiples of \(16, 16\)"),
    (
        "unetr",
        (1, 16, 32),
        {"img_size": 16, "dims": 2},
        r"wanted the size \(16, 16\).*set img_size",
    ),
    ("mednext_s", (1, 64, 40), {"dims": 2}, r"'bottleneck'.*multiples of \(16, 16\)"),
    ("swin_unetr", (1, 64, 48), {"dims": 2}, r"'encoder10'.*multiples of \(32, 32\)"),
    ("swin_unetr", (1, 32, 32), {"dims": 2}, "too small for the stage 'encoder10'"),
    (
        "dcgan_generator",
        [(99,)],
        {},
        r"Generator: got noise of shape \(1, 99\), wanted \(batch, 100\)",
    ),
    ("dcgan_generator", [(100, 2, 2)], {}, r"got noise of shape \(1, 100, 2, 2\)"),
    (
        "dcgan_discriminator",
        [(3, 64, 32)],
        {},
        "wanted 64 elements along each spatial axis",
    ),
    (
        "vae",
        [(784,), (19,)],
        {},
        r"VAE: got noise of shape \(1, 19\), wanted \(1, 20\)",
    ),
    ("vae", [(783,), (20,)], {}, "Linear at 'fc1'"),
    (
        "conv_vae",
        [(3, 32, 32), (128,)],
        {},
        "wanted 64 elements along each spatial axis",
    ),
    (
        "ddpm_cifar10",
        [(3, 32, 36), zoo.Input((), 9)],
        {},
        "wanted sizes that are multiples of 8",
    ),
    (
        "diffusion_model_unet",
        [(1, 32, 36), zoo.Input((), 9)],
        {},
        "wanted sizes that are multiples of 8",
    ),
    ("autoencoder_kl", [(2, 64, 64)], {}, "Conv2d at 'encoder.blocks.0.conv"),
    (
        "autoencoder_kl",
        [(1, 64, 64), (3, 4, 4)],
        {},
        r"AutoencoderKL: got noise of shape \(1, 3, 4",
    ),
    (
        "clip_vit_b_32",
        [zoo.Input((78,), below=9), (3, 224, 224)],
        {},
        "positions for max_position_embeddings=77; cut",
    ),
    (
        "clip_vit_b_32",
        [zoo.Input((7,), below=9), (3, 224, 96)],
        {},
        "wanted 224 elements along each spatial axis",
    ),
    (
        "clip_vit_b_32",
        [zoo.Input((7,), below=9), (1, 224, 224)],
        {},
        "'vision_model.embeddings.patch_embedding'",
    ),
    (
        "clip_vit_b_32",
        [zoo.Input((7,), 9), (3, 224, 224), zoo.Input((6,), 2)],
        {},
        "got attention_mask of shape",
    ),
    (
        "samvit_base_patch16",
        (3, 32, 48),
        {"image_size": 32, "depth": 1, "global_attn_indexes": ()},
        "wanted 32 elements along each spatial axis: pad them",
    ),
    ("mamba2_130m", zoo.Input((0,), below=9), {}, "one token at least"),
    ("bert_tiny", zoo.Input((0,), below=9), {}, "one token at least"),
    (
        "sam2_hiera_tiny",
        (3, 64, 100),
        {},
        "got an input of 16 x 25 patches, wanted multiples of 8: pad images to multiples of 32",
    ),
]


def test_inputs_that_do_not_fit_are_refused_by_the_layer_or_the_stage(subtests):
    for name, shape, settings, message in SHAPES:
        with subtests.test(name, shape=shape), pytest.raises(ShapeError, match=message):
            zoo.outline(name, shape, **settings)
