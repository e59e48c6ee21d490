"""What `port` makes of classes that others wrote: ``python -m tests.port.corpus``.

Each class is ported and proved in a process of its own; what came of it is a line of JSON, with
the commit. Classes that have a line already, with the same arguments, are left out.
"""

import argparse
import importlib
import json
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

# ruff: noqa: E501 - a line of the table is a class
#: A name, its arguments, its inputs as ``--input`` takes them; by the module that it is in.
CORPUS = {
    "torchvision.models": """
        alexnet num_classes=5 3x64x64
        squeezenet1_0 num_classes=5 3x33x33
        squeezenet1_1 num_classes=5 3x33x33
        resnet18 num_classes=5 3x33x33
        resnet34 num_classes=5 3x33x33
        resnet50 num_classes=5 3x33x33
        resnext50_32x4d num_classes=5 3x33x33
        wide_resnet50_2 num_classes=5 3x33x33
        densenet121 num_classes=5 3x33x33
        googlenet num_classes=5,aux_logits=False,init_weights=False 3x33x33
        inception_v3 num_classes=5,aux_logits=False,init_weights=False 3x79x79
        mobilenet_v2 num_classes=5 3x33x33
        mobilenet_v3_small num_classes=5 3x33x33
        mobilenet_v3_large num_classes=5 3x33x33
        mnasnet0_5 num_classes=5 3x33x33
        shufflenet_v2_x0_5 num_classes=5 3x33x33
        efficientnet_b0 num_classes=5 3x33x33
        efficientnet_v2_s num_classes=5 3x33x33
        regnet_x_400mf num_classes=5 3x33x33
        regnet_y_400mf num_classes=5 3x33x33
        convnext_tiny num_classes=5 3x33x33
        VisionTransformer image_size=32,patch_size=8,num_layers=2,num_heads=2,hidden_dim=16,mlp_dim=24,num_classes=5 3x32x32
        SwinTransformer patch_size=[2,2],embed_dim=12,depths=[2,2],num_heads=[2,4],window_size=[4,4],num_classes=5 3x32x32
        swin_v2_t num_classes=5 3x32x32
        MaxVit input_size=(32,32),stem_channels=8,partition_size=4,block_channels=[8,16],block_layers=[1,1],head_dim=8,stochastic_depth_prob=0.1,num_classes=5 3x32x32
    """,
    "torchvision.models.video": """
        r3d_18 num_classes=5 3x5x17x17
        mc3_18 num_classes=5 3x5x17x17
        r2plus1d_18 num_classes=5 3x5x17x17
        s3d num_classes=5 3x14x209x209
    """,
    "torchvision.models.segmentation": """
        fcn_resnet50 weights_backbone=None,num_classes=5 3x33x33
        deeplabv3_resnet50 weights_backbone=None,num_classes=5 3x33x33
        lraspp_mobilenet_v3_large weights_backbone=None,num_classes=5 3x33x33
    """,
    "timm.models": """
        resnet18 num_classes=5 3x33x33
        resnet26t num_classes=5 3x33x33
        seresnext26t_32x4d num_classes=5 3x33x33
        res2net50_14w_8s num_classes=5 3x33x33
        densenet121 num_classes=5 3x33x33
        dla34 num_classes=5 3x64x64
        vgg11 num_classes=5 3x33x33
        xception41 num_classes=5 3x65x65
        inception_resnet_v2 num_classes=5 3x79x79
        mobilenetv2_050 num_classes=5 3x33x33
        mobilenetv3_small_050 num_classes=5 3x33x33
        efficientnet_lite0 num_classes=5 3x33x33
        ghostnet_050 num_classes=5 3x33x33
        mixnet_s num_classes=5 3x33x33
        regnetx_002 num_classes=5 3x33x33
        convnext_atto num_classes=5 3x33x33
        convmixer.ConvMixer dim=24,depth=2,kernel_size=5,patch_size=4,num_classes=5 3x33x33
        resmlp_12_224 num_classes=5,img_size=32 3x32x32
        mixer_s32_224 num_classes=5,img_size=64 3x64x64
        gmlp_ti16_224 num_classes=5,img_size=32 3x32x32
        vit_tiny_patch16_224 num_classes=5,img_size=32 3x32x32
        deit_tiny_patch16_224 num_classes=5,img_size=32 3x32x32
        beit_base_patch16_224 num_classes=5,img_size=32,depth=2,embed_dim=24,num_heads=2 3x32x32
        cait_xxs24_224 num_classes=5,img_size=32,depth=2 3x32x32
        xcit_nano_12_p16_224 num_classes=5,img_size=32 3x32x32
        swin_tiny_patch4_window7_224 num_classes=5,img_size=32,window_size=4 3x32x32
        pvt_v2_b0 num_classes=5 3x33x33
        poolformer_s12 num_classes=5 3x33x33
        pit_ti_224 num_classes=5,img_size=32 3x32x32
        levit_128s num_classes=5,img_size=64 3x64x64
        mobilevit_xxs num_classes=5 3x64x64
        mobileone_s0 num_classes=5 3x33x33
        repvgg_a0 num_classes=5 3x33x33
        repghostnet_050 num_classes=5 3x33x33
        edgenext_xx_small num_classes=5 3x64x64
        fastvit_t8 num_classes=5 3x64x64
        efficientformer_l1 num_classes=5 3x224x224
        focalnet_tiny_srf num_classes=5 3x64x64
        davit_tiny num_classes=5 3x64x64
        coat_tiny num_classes=5,img_size=32 3x32x32
        crossvit_9_240 num_classes=5,img_size=120 3x120x120
        cspresnet50 num_classes=5 3x33x33
        darknet53 num_classes=5 3x33x33
        dpn48b num_classes=5 3x33x33
        hardcorenas_a num_classes=5 3x33x33
        hrnet_w18_small num_classes=5 3x64x64
        lcnet_035 num_classes=5 3x33x33
        nasnetalarge num_classes=5 3x65x65
        nf_resnet26 num_classes=5 3x33x33
        resnetv2_50 num_classes=5 3x33x33
        rexnet_100 num_classes=5 3x33x33
        selecsls42 num_classes=5 3x33x33
        sequencer2d_s num_classes=5,img_size=32 3x32x32
        skresnet18 num_classes=5 3x33x33
        tinynet_e num_classes=5 3x33x33
        tresnet_m num_classes=5 3x64x64
        tnt_s_legacy_patch16_224 num_classes=5,img_size=32 3x32x32
        vovnet39a num_classes=5 3x33x33
        inception_next_atto num_classes=5 3x33x33
        starnet_s1 num_classes=5 3x33x33
    """,
    "monai.networks.nets": """
        UNet spatial_dims=2,in_channels=1,out_channels=3,channels=(4,8),strides=(2,) 1x16x16
        BasicUNet spatial_dims=2,in_channels=1,out_channels=3,features=(4,4,8,8,8,4) 1x32x32
        BasicUNetPlusPlus spatial_dims=2,in_channels=1,out_channels=3,features=(4,4,8,8,8,4) 1x32x32
        AttentionUnet spatial_dims=2,in_channels=1,out_channels=3,channels=(4,8,8),strides=(2,2) 1x16x16
        SegResNet spatial_dims=2,init_filters=8,in_channels=1,out_channels=3,blocks_down=(1,1),blocks_up=(1,) 1x16x16
        SegResNetVAE input_image_size=(16,16),vae_estimate_std=False,spatial_dims=2,init_filters=8,in_channels=1,out_channels=3 1x16x16
        SegResNetDS spatial_dims=2,init_filters=8,in_channels=1,out_channels=3,blocks_down=(1,1) 1x16x16
        VNet spatial_dims=2,in_channels=1,out_channels=3,dropout_dim=2 1x32x32
        DynUNet spatial_dims=2,in_channels=1,out_channels=3,kernel_size=(3,3,3),strides=(1,2,2),upsample_kernel_size=(2,2),filters=(4,8,8) 1x16x16
        HighResNet spatial_dims=2,in_channels=1,out_channels=3 1x16x16
        DenseNet121 spatial_dims=2,in_channels=1,out_channels=3,init_features=8,growth_rate=4 1x33x33
        resnet18 spatial_dims=2,n_input_channels=1,num_classes=5 1x33x33
        SEResNet50 spatial_dims=2,in_channels=1,num_classes=5 1x33x33
        EfficientNetBN model_name="efficientnet-b0",spatial_dims=2,in_channels=1,num_classes=5,pretrained=False 1x33x33
        AHNet spatial_dims=2,out_channels=3,psp_block_num=0 1x64x64
        UNETR in_channels=1,out_channels=3,img_size=32,spatial_dims=2,feature_size=4,hidden_size=12,mlp_dim=16,num_heads=2 1x32x32
        SwinUNETR in_channels=1,out_channels=3,feature_size=12,spatial_dims=2,depths=(1,1,1,1),num_heads=(1,1,2,2) 1x64x64
        ViT in_channels=1,img_size=(16,16),patch_size=(8,8),hidden_size=12,mlp_dim=16,num_layers=1,num_heads=2,classification=True,spatial_dims=2 1x16x16
        AutoEncoder spatial_dims=2,in_channels=1,out_channels=1,channels=(4,8),strides=(2,2) 1x16x16
        Regressor in_shape=(1,16,16),out_shape=(2,),channels=(4,8),strides=(2,2) 1x16x16
        Classifier in_shape=(1,16,16),classes=3,channels=(4,8),strides=(2,2) 1x16x16
        Discriminator in_shape=(1,16,16),channels=(4,8),strides=(2,2) 1x16x16
        Generator latent_shape=(5,),start_shape=(4,4,4),channels=(4,1),strides=(2,1) 5
        FullyConnectedNet in_channels=5,out_channels=3,hidden_channels=(8,6) 5
        UNETR img_size=16,in_channels=1,out_channels=3,feature_size=4,hidden_size=12,mlp_dim=16,num_heads=2 1x16x16x16
        FlexibleUNet in_channels=3,out_channels=3,backbone="efficientnet-b0" 3x64x64
        Quicknat num_classes=3,num_channels=1,num_filters=4 1x32x32
        MedNeXtS spatial_dims=2,in_channels=1,out_channels=3 1x32x32
        milmodel.MILModel num_classes=3,pretrained=False 2x3x33x33
        VarAutoEncoder spatial_dims=2,in_shape=(1,16,16),out_channels=1,latent_size=2,channels=(4,8),strides=(2,2) 1x16x16
        PatchDiscriminator spatial_dims=2,channels=4,in_channels=1,num_layers_d=2 1x32x32
        AutoencoderKL spatial_dims=2,in_channels=1,out_channels=1,num_res_blocks=(1,1),channels=(4,4),attention_levels=(False,False),latent_channels=2,norm_num_groups=2 1x16x16
        VQVAE spatial_dims=2,in_channels=1,out_channels=1,channels=(4,4),num_res_channels=(4,4),num_res_layers=1,downsample_parameters=((2,4,1,1),(2,4,1,1)),upsample_parameters=((2,4,1,1,0),(2,4,1,1,0)),num_embeddings=8,embedding_dim=4 1x16x16
    """,
    "segmentation_models_pytorch": """
        Unet encoder_name="resnet18",encoder_weights=None,classes=3 3x64x64
        UnetPlusPlus encoder_name="resnet18",encoder_weights=None,classes=3 3x64x64
        MAnet encoder_name="resnet18",encoder_weights=None,classes=3 3x64x64
        Linknet encoder_name="resnet18",encoder_weights=None,classes=3 3x64x64
        FPN encoder_name="resnet18",encoder_weights=None,classes=3 3x64x64
        PSPNet encoder_name="resnet18",encoder_weights=None,classes=3 3x64x64
        PAN encoder_name="resnet18",encoder_weights=None,classes=3 3x128x128
        DeepLabV3 encoder_name="resnet18",encoder_weights=None,classes=3 3x64x64
        DeepLabV3Plus encoder_name="resnet18",encoder_weights=None,classes=3 3x64x64
        UPerNet encoder_name="resnet18",encoder_weights=None,classes=3 3x64x64
        Segformer encoder_name="resnet18",encoder_weights=None,classes=3 3x64x64
        Unet encoder_name="vgg11",encoder_weights=None,classes=3 3x32x32
        Unet encoder_name="densenet121",encoder_weights=None,classes=3 3x64x64
        Unet encoder_name="mobilenet_v2",encoder_weights=None,classes=3 3x64x64
        Unet encoder_name="efficientnet-b0",encoder_weights=None,classes=3 3x64x64
        Unet encoder_name="mit_b0",encoder_weights=None,classes=3 3x64x64
        Unet encoder_name="se_resnet50",encoder_weights=None,classes=3 3x64x64
        Unet encoder_name="timm-mobilenetv3_small_075",encoder_weights=None,classes=3 3x64x64
    """,
    "dynamic_network_architectures.architectures": """
        unet.PlainConvUNet input_channels=1,n_stages=3,features_per_stage=[4,8,8],conv_op=torch.nn.Conv2d,kernel_sizes=3,strides=[1,2,2],n_conv_per_stage=1,num_classes=3,n_conv_per_stage_decoder=1,norm_op=torch.nn.InstanceNorm2d,norm_op_kwargs={"affine":True},nonlin=torch.nn.LeakyReLU,nonlin_kwargs={"inplace":True} 1x16x16
        unet.ResidualEncoderUNet input_channels=1,n_stages=3,features_per_stage=[4,8,8],conv_op=torch.nn.Conv2d,kernel_sizes=3,strides=[1,2,2],n_blocks_per_stage=1,num_classes=3,n_conv_per_stage_decoder=1,norm_op=torch.nn.InstanceNorm2d,norm_op_kwargs={"affine":True},nonlin=torch.nn.LeakyReLU,nonlin_kwargs={"inplace":True} 1x16x16
        unet.ResidualUNet input_channels=1,n_stages=3,features_per_stage=[4,8,8],conv_op=torch.nn.Conv2d,kernel_sizes=3,strides=[1,2,2],n_blocks_per_stage=1,num_classes=3,n_conv_per_stage_decoder=1,norm_op=torch.nn.BatchNorm2d,nonlin=torch.nn.ReLU 1x16x16
        resnet.ResNet18_CIFAR n_classes=5,n_input_channels=3 3x32x32
        vgg.VGG16_cifar n_classes=5 3x32x32
        primus.Primus input_channels=1,embed_dim=24,patch_embed_size=(4,4,4),num_classes=3,eva_depth=1,eva_numheads=2,input_shape=(8,8,8) 1x8x8x8
    """,
    "diffusers.models": """
        unets.unet_2d.UNet2DModel sample_size=16,block_out_channels=(8,8),layers_per_block=1,norm_num_groups=4,down_block_types=("DownBlock2D","AttnDownBlock2D"),up_block_types=("AttnUpBlock2D","UpBlock2D"),attention_head_dim=4 3x16x16 ints::100
        autoencoders.autoencoder_kl.AutoencoderKL block_out_channels=(8,),layers_per_block=1,norm_num_groups=4 3x16x16
        autoencoders.vae.Encoder block_out_channels=(8,8),norm_num_groups=4,down_block_types=("DownEncoderBlock2D","DownEncoderBlock2D") 3x16x16
        autoencoders.vae.Decoder block_out_channels=(8,8),norm_num_groups=4,up_block_types=("UpDecoderBlock2D","UpDecoderBlock2D") 3x8x8
        resnet.ResnetBlock2D in_channels=4,out_channels=8,temb_channels=6,groups=2 4x8x8 6
        attention.BasicTransformerBlock dim=8,num_attention_heads=2,attention_head_dim=4,cross_attention_dim=6 hidden_states=5x8 encoder_hidden_states=4x6
        transformers.dit_transformer_2d.DiTTransformer2DModel num_attention_heads=2,attention_head_dim=4,in_channels=3,num_layers=1,sample_size=8,norm_num_groups=1,num_embeds_ada_norm=10 3x8x8 ints::100 ints::10
    """,
    "transformers.models": """
        bert.modeling_bert.BertModel config=transformers.BertConfig(hidden_size=8,num_hidden_layers=1,num_attention_heads=2,intermediate_size=12,vocab_size=50) ints:7:50
        bert.modeling_bert.BertEmbeddings config=transformers.BertConfig(hidden_size=8,vocab_size=50) ints:7:50
        gpt2.modeling_gpt2.GPT2Model config=transformers.GPT2Config(n_embd=8,n_layer=1,n_head=2,vocab_size=50) ints:7:50
        llama.modeling_llama.LlamaMLP config=transformers.LlamaConfig(hidden_size=8,num_attention_heads=2,num_key_value_heads=2,intermediate_size=12) 7x8
        vit.modeling_vit.ViTModel config=transformers.ViTConfig(hidden_size=8,num_hidden_layers=1,num_attention_heads=2,intermediate_size=12,image_size=16,patch_size=4) 3x16x16
        resnet.modeling_resnet.ResNetEncoder config=transformers.ResNetConfig(embedding_size=4,hidden_sizes=[4,8],depths=[1,1]) 4x17x17
        resnet.modeling_resnet.ResNetStage config=transformers.ResNetConfig(),in_channels=4,out_channels=8 4x17x17
        convnext.modeling_convnext.ConvNextStage config=transformers.ConvNextConfig(),in_channels=4,out_channels=8 4x16x16
    """,
}


def entries():
    """Each class: a label, ``module:name``, arguments and inputs."""
    for module, lines in CORPUS.items():
        for line in lines.strip().splitlines():
            name, arguments, *inputs = line.split()
            label = f"{module.partition('.')[0]} {name}"
            yield label, ":".join(f"{module}.{name}".rsplit(".", 1)), arguments, inputs


def look(name, arguments, inputs, backends):
    """Port one class and prove it; what came of it, as a dict."""
    import pkgutil

    from deliralike import port
    from deliralike.cli.port import drawn
    from tests.references import allow_torchvision

    allow_torchvision()
    words = set(re.findall(r"\b(torch|transformers)\.", arguments))
    modules = {word: importlib.import_module(word) for word in words}
    begin = time.process_time()
    found = port(
        pkgutil.resolve_name(name),
        drawn(inputs),
        **eval(f"dict({arguments})", modules),
    )
    told = {
        "port": time.process_time() - begin,
        "hands": [str(one) for one in found.hands],
    }
    told["lines"] = sum(lines for _, lines, _ in found.changes)
    told["changed"] = sum(changed for _, _, changed in found.changes)
    for backend in backends:
        begin = time.process_time()
        try:
            headline = found.prove(backend).headline
        except Exception as error:
            headline = f"{type(error).__name__}: {error}"
        told[backend] = (headline, time.process_time() - begin)
        # What is known so far, in the case of a time limit.
        print(json.dumps(told), flush=True)
    return told


def commit():
    """The commit that is checked out; ``-dirty`` where files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=8"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def _in_process(entry, backends, limit):
    label, name, arguments, inputs = entry
    command = [sys.executable, "-W", "ignore", "-m", "tests.port.corpus", "--one", name]
    command += ["--backends", ",".join(backends), "--limit", str(limit)]
    command += [arguments, *inputs]
    told = {"label": label, "arguments": arguments, "commit": commit()}
    ended = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if lines:
        return told | json.loads(lines[-1])
    is_late = ended.returncode == -signal.SIGXCPU
    errors = f"more than {limit} s" if is_late else ended.stderr
    return told | {"error": (errors.strip().splitlines() or ["?"])[-1][:300]}


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.port.corpus", description=__doc__
    )
    parser.add_argument("--backends", default="jax,chainer")
    parser.add_argument("--only", default="", help="labels that match this expression")
    parser.add_argument("--results", type=Path, default=Path("build/corpus.jsonl"))
    parser.add_argument(
        "--limit", type=int, default=240, help="seconds of the processor, a class"
    )
    parser.add_argument("--one", help="in this process")
    parser.add_argument("rest", nargs="*")
    given = parser.parse_args()
    backends = given.backends.split(",")
    if given.one:
        resource.setrlimit(resource.RLIMIT_CPU, (given.limit, given.limit + 10))
        arguments, *inputs = given.rest
        look(given.one, arguments, inputs, backends)
        return
    given.results.parent.mkdir(parents=True, exist_ok=True)
    given.results.touch()
    done = set()
    for line in given.results.read_text().splitlines():
        told = json.loads(line)
        done.add((told["label"], told["arguments"]))
    for entry in entries():
        label, _, arguments, _ = entry
        if re.search(given.only, label) and (label, arguments) not in done:
            told = _in_process(entry, backends, given.limit)
            with given.results.open("a") as file:
                file.write(json.dumps(told) + "\n")
            short = {
                key: value
                for key, value in told.items()
                if key not in ("label", "hands")
            }
            print(
                told["label"],
                len(told.get("hands", ())),
                "hands",
                str(short)[:300],
                flush=True,
            )


if __name__ == "__main__":
    main()
