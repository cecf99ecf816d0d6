"""The backbones of keras-hub, tiny: settings, and sizes of their inputs. Dropout is off."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import keras_hub
import numpy as np

models = keras_hub.models
Given = dict[str, Callable[[int], np.ndarray]]


@dataclass(frozen=True)
class Case:
    """A model, and what it takes.

    Attributes:
        make: makes it, with random weights.
        length: of texts.
        side: of images.
        below: what ids of texts are below.
        given: makes the inputs that have a meaning beyond their type, by name, for so many rows.
    """

    make: Callable[[], keras.Model]
    length: int = 6
    side: int = 32
    below: int = 10
    given: Given = field(default_factory=dict)


def of(
    name: str, length: int = 6, side: int = 32, below: int = 10, given: Given | None = None, **settings: Any
) -> Case:
    """A backbone with these settings."""
    return Case(lambda: getattr(models, name)(**settings), length, side, below, given or {})


WIDTHS = {"vocabulary_size": 10, "num_layers": 2, "hidden_dim": 8, "intermediate_dim": 16}
HEADS = {**WIDTHS, "num_heads": 2}
BOUNDED = {**HEADS, "max_sequence_length": 6}
GROUPED = {**WIDTHS, "num_query_heads": 4, "num_key_value_heads": 2}
EXPERTS = {**GROUPED, "num_experts": 4, "top_k": 2, "moe_intermediate_dim": 8}
STAGES = {"stackwise_num_filters": [64, 64, 64], "stackwise_num_blocks": [1, 1, 1], "stackwise_num_strides": [1, 2, 2]}
RESNET = {"input_conv_filters": [64], "input_conv_kernel_sizes": [3], "block_type": "basic_block", **STAGES}
MIT = {
    "layerwise_depths": [1, 1],
    "image_shape": (32, 32, 3),
    "hidden_dims": [4, 8],
    "num_layers": 2,
    "layerwise_num_heads": [1, 2],
    "layerwise_sr_ratios": [8, 4],
    "max_drop_path_rate": 0.0,
    "layerwise_patch_sizes": [7, 3],
    "layerwise_strides": [4, 2],
}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "partial_rotary_factor": 0.25,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
    "linear_conv_kernel_dim": 4,
    "head_dim": 8,
}
T5GEMMA = {
    "vocabulary_size": 10,
    **{
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {
            "hidden_dim": 16,
            "intermediate_dim": 16,
            "num_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 4,
            "layer_types": ["sliding_attention", "full_attention"],
        }.items()
    },
    "dropout_rate": 0.0,
    "attention_dropout": 0.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 1.0,
    "attention_bias": False,
    "hidden_activation": "gelu_approximate",
    "sliding_window": 3,
    "cross_attention_hidden_size": 16,
    "attn_logit_softcapping": 50.0,
    "rope_max_wavelength": 10000.0,
    "initializer_range": 0.04,
}
MOBILE_V5 = {
    name: [[first], [second, second]]
    for name, first, second in [
        ("stackwise_block_types", "er", "uir"),
        ("stackwise_num_filters", 8, 16),
        ("stackwise_act_layers", "relu", "relu"),
        ("stackwise_exp_ratios", 4.0, 6.0),
        ("stackwise_se_ratios", 0.0, 0.0),
        ("stackwise_dw_kernel_sizes", 0, 5),
        ("stackwise_dw_start_kernel_sizes", 0, 0),
        ("stackwise_dw_end_kernel_sizes", 0, 0),
        ("stackwise_exp_kernel_sizes", 3, 0),
        ("stackwise_pw_kernel_sizes", 1, 0),
        ("stackwise_num_heads", 0, 0),
        ("stackwise_key_dims", 0, 0),
        ("stackwise_value_dims", 0, 0),
        ("stackwise_kv_strides", 0, 0),
        ("stackwise_use_cpe", False, False),
    ]
} | {"stackwise_num_blocks": [1, 2], "stackwise_strides": [[2], [2, 1]]}


# Those that are made of several models --------------------------------------------------------------------------------


def basnet() -> keras.Model:
    widths = {**RESNET, "stackwise_num_filters": [64, 64, 64, 64], "stackwise_num_blocks": [1] * 4}
    encoder = models.ResNetBackbone(**{**widths, "stackwise_num_strides": [1, 2, 2, 2]})
    return models.BASNetBackbone(image_encoder=encoder, num_classes=1)


def blip2() -> keras.Model:
    from keras_hub.src.models.blip2.blip2_custom_opt import BLIP2CustomOPT
    from keras_hub.src.models.blip2.blip2_qformer import BLIP2QFormer
    from keras_hub.src.models.blip2.blip2_vision_encoder import BLIP2VisionEncoder

    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    biases = dict.fromkeys(["use_patch_bias", "use_class_token", "use_mha_bias", "use_mlp_bias"], True)
    numbers = {"layer_norm_epsilon": 1e-6, "initializer_range": 0.02}
    vision = BLIP2VisionEncoder(image_size=16, patch_size=4, dropout_rate=0.0, **sizes, **biases, **numbers)
    former = BLIP2QFormer(
        num_query_tokens=2, vision_dim=8, cross_attention_frequency=1, dropout=0.0, layer_norm_epsilon=1e-6, **sizes
    )
    language = BLIP2CustomOPT(
        vocabulary_size=10,
        num_query_tokens=2,
        qformer_hidden_dim=8,
        max_sequence_length=12,
        dropout=0.0,
        language_projection=None,
        **sizes,
    )
    return models.BLIP2Backbone(vision_encoder=vision, qformer=former, language_model=language)


def two_towers(name: str) -> keras.Model:
    """A model of images and texts."""
    vision = getattr(models, f"{name}VisionEncoder")(8, 8, 2, 2, 16, image_shape=(16, 16, 3), name="vision_encoder")
    text = getattr(models, f"{name}TextEncoder")(10, 8, 8, 2, 2, 16, name="text_encoder", max_sequence_length=6)
    width = {} if name == "SigLIP" else {"projection_dim": 8}
    return getattr(models, f"{name}Backbone")(vision_encoder=vision, text_encoder=text, **width)


def hgnet(**settings: Any) -> keras.Model:
    return models.HGNetV2Backbone(
        **{
            "stem_channels": [3, 8, 8],
            "stackwise_stage_filters": [[8, 8, 16, 1, 1, 3], [16, 8, 32, 1, 1, 3]],
            "apply_downsample": [False, True],
            "use_lightweight_conv_block": [False, False],
            "depths": [1, 1],
            "hidden_sizes": [16, 32],
            "embedding_size": 8,
            "use_learnable_affine_block": True,
            "hidden_act": "relu",
            "image_shape": (None, None, 3),
            "out_features": ["stage1", "stage2"],
            **settings,
        }
    )


def d_fine() -> keras.Model:
    return models.DFineBackbone(
        backbone=hgnet(),
        decoder_in_channels=[16, 16],
        encoder_hidden_dim=16,
        num_denoising=10,
        num_labels=4,
        hidden_dim=16,
        learn_initial_query=False,
        num_queries=10,
        anchor_image_size=(32, 32),
        feat_strides=[4, 8],
        num_feature_levels=2,
        encoder_in_channels=[16, 32],
        encode_proj_layers=[1],
        num_attention_heads=2,
        encoder_ffn_dim=32,
        num_encoder_layers=1,
        hidden_expansion=0.5,
        depth_multiplier=0.5,
        eval_idx=-1,
        num_decoder_layers=2,
        decoder_attention_heads=2,
        decoder_ffn_dim=32,
        decoder_n_points=[2, 2],
        lqe_hidden_dim=16,
        num_lqe_layers=2,
        out_features=["stage1", "stage2"],
        image_shape=(None, None, 3),
        seed=0,
    )


def depth_anything() -> keras.Model:
    encoder = models.DINOV2Backbone(
        14, 4, 8, 2, 16, 1.0, 0, image_shape=(126, 126, 3), apply_layernorm=True, name="image_encoder"
    )
    return models.DepthAnythingBackbone(
        image_encoder=encoder,
        reassemble_factors=[4, 2, 1, 0.5],
        neck_hidden_dims=[4, 8, 8, 16],
        fusion_hidden_dim=8,
        head_hidden_dim=4,
        head_in_index=-1,
        feature_keys=["stage1", "stage2", "stage3", "stage4"],
    )


GEMMA = {
    **{"vocabulary_size": 10, "image_size": 16, "num_layers": 2, "num_query_heads": 2, "num_key_value_heads": 1},
    **{"hidden_dim": 8, "intermediate_dim": 16, "head_dim": 4},
}
VISION = {"image_size": 16, "patch_size": 4, "pool_size": 2, "num_layers": 2, "num_heads": 2, "hidden_dim": 8}


def gemma3(vision: bool) -> keras.Model:
    from keras_hub.src.models.gemma3.gemma3_vision_encoder import Gemma3VisionEncoder

    encoder = Gemma3VisionEncoder(**VISION, intermediate_dim=16, output_dim=8) if vision else None
    normalized = ["query_head_dim_normalize", "use_query_key_norm", "use_post_ffw_norm", "use_post_attention_norm"]
    return models.Gemma3Backbone(
        **GEMMA,
        **dict.fromkeys(normalized, True),
        use_sliding_window_attention=True,
        sliding_window_size=4,
        vision_encoder=encoder,
    )


def gemma4(vision: bool) -> keras.Model:
    from keras_hub.src.models.gemma4.gemma4_vision_encoder import Gemma4VisionEncoder

    sizes = {"head_dim": 4, "num_key_value_heads": 2, "intermediate_dim": 16, "output_dim": 8}
    encoder = Gemma4VisionEncoder(**VISION, **sizes) if vision else None
    return models.Gemma4Backbone(
        **GEMMA, use_sliding_window_attention=True, sliding_window_size=4, vision_encoder=encoder
    )


def gemma3n(several: bool) -> keras.Model:
    return models.Gemma3nBackbone(
        text_vocab_size=10,
        text_hidden_size=4,
        num_hidden_layers=1,
        pad_token_id=0,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=4,
        intermediate_size=[8],
        hidden_activation="gelu_approximate",
        layer_types=["full_attention"],
        sliding_window=4,
        rope_theta=10000.0,
        max_position_embeddings=8,
        vocab_size_per_layer_input=10,
        hidden_size_per_layer_input=2,
        altup_num_inputs=2,
        laurel_rank=1,
        **(gemma3n_encoders() if several else {}),
    )


def gemma3n_encoders() -> dict[str, Any]:
    """The settings of what reads images and sounds."""
    from keras_hub.src.models.gemma3n.gemma3n_audio_encoder import Gemma3nAudioEncoder
    from keras_hub.src.models.mobilenetv5.mobilenetv5_builder import convert_arch_def_to_stackwise

    stages = convert_arch_def_to_stackwise([["er_r1_k3_s1_e1_c8"]])
    vision = models.MobileNetV5Backbone(**stages, num_features=4, image_shape=(16, 16, 3), use_msfa=False)
    audio = Gemma3nAudioEncoder(
        hidden_size=4,
        input_feat_size=16,
        sscp_conv_channel_size=[2, 4],
        sscp_conv_kernel_size=[(1, 1), (1, 1)],
        sscp_conv_stride_size=[(2, 2), (2, 2)],
        sscp_conv_group_norm_eps=1e-5,
        num_hidden_layers=1,
        rms_norm_eps=1e-6,
        gradient_clipping=1.0,
        residual_weight=0.5,
        num_attention_heads=1,
        attention_chunk_size=2,
        num_attention_context_right=1,
        num_attention_context_left=1,
        attention_logit_cap=50.0,
        conv_kernel_size=3,
        reduction_factor=1,
    )
    return {
        "vision_encoder_config": vision.get_config(),
        "vision_hidden_size": 8,
        "audio_encoder_config": audio.get_config(),
        "audio_hidden_size": 4,
    }


def parseq() -> keras.Model:
    encoder = models.ViTBackbone(
        image_shape=(16, 16, 3),
        patch_size=(4, 8),
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        mlp_dim=16,
        use_class_token=False,
        name="image_encoder",
    )
    return models.PARSeqBackbone(
        image_encoder=encoder,
        vocabulary_size=10,
        max_label_length=6,
        decoder_hidden_dim=8,
        num_decoder_layers=1,
        num_decoder_heads=2,
        decoder_mlp_dim=16,
        dropout_rate=0.0,
        attention_dropout=0.0,
    )


def retinanet() -> keras.Model:
    encoder = models.ResNetBackbone(**RESNET, image_shape=(None, None, 3))
    return models.RetinaNetBackbone(image_encoder=encoder, min_level=3, max_level=4, use_p5=False)


def sam() -> keras.Model:
    encoder = models.ViTDetBackbone(
        hidden_size=8,
        num_layers=2,
        intermediate_dim=16,
        num_heads=2,
        global_attention_layer_indices=[1],
        patch_size=4,
        num_output_channels=8,
        window_size=2,
        image_shape=(16, 16, 3),
    )
    from keras_hub.src.models.sam.sam_mask_decoder import SAMMaskDecoder
    from keras_hub.src.models.sam.sam_prompt_encoder import SAMPromptEncoder

    prompts = SAMPromptEncoder(
        hidden_size=8, image_embedding_size=(4, 4), input_image_size=(16, 16), mask_in_channels=16
    )
    decoder = SAMMaskDecoder(
        num_layers=2,
        hidden_size=8,
        intermediate_dim=16,
        num_heads=2,
        embedding_dim=8,
        num_multimask_outputs=3,
        iou_head_depth=3,
        iou_head_hidden_dim=8,
    )
    return models.SAMBackbone(image_encoder=encoder, prompt_encoder=prompts, mask_decoder=decoder)


def sam3() -> keras.Model:
    from keras_hub.src.models.sam3.sam3_detr_decoder import SAM3DetrDecoder
    from keras_hub.src.models.sam3.sam3_detr_encoder import SAM3DetrEncoder
    from keras_hub.src.models.sam3.sam3_geometry_encoder import SAM3GeometryEncoder
    from keras_hub.src.models.sam3.sam3_mask_decoder import SAM3MaskDecoder
    from keras_hub.src.models.sam3.sam3_text_encoder import SAM3TextEncoder
    from keras_hub.src.models.sam3.sam3_vision_encoder import SAM3VisionEncoder

    sizes = {"num_layers": 2, "hidden_dim": 8, "intermediate_dim": 16, "num_heads": 2}
    image = {"image_shape": (28, 28, 3), "patch_size": 14}
    return models.SAM3PromptableConceptBackbone(
        vision_encoder=SAM3VisionEncoder(
            **image,
            **sizes,
            fpn_hidden_dim=8,
            fpn_scale_factors=[4.0, 2.0, 1.0, 0.5],
            pretrain_image_shape=(42, 42, 3),
            window_size=2,
            global_attn_indexes=[1],
        ),
        text_encoder=SAM3TextEncoder(vocabulary_size=32, embedding_dim=8, **sizes),
        geometry_encoder=SAM3GeometryEncoder(**sizes, roi_size=7, dropout_rate=0.0),
        detr_encoder=SAM3DetrEncoder(**sizes, dropout_rate=0.0),
        detr_decoder=SAM3DetrDecoder(**image, **sizes, num_queries=8, dropout_rate=0.0),
        mask_decoder=SAM3MaskDecoder(num_upsampling_stages=3, hidden_dim=8, num_heads=2, dropout_rate=0.0),
    )


def vae() -> keras.Model:
    from keras_hub.src.models.vae.vae_backbone import VAEBackbone

    return VAEBackbone([32] * 4, [1] * 4, [32] * 4, [1] * 4, sampler_method="mode", name="vae")


def stable_diffusion() -> keras.Model:
    texts = {"intermediate_output_index": -2, "max_sequence_length": 6}
    small = models.CLIPTextEncoder(10, 32, 32, 2, 2, 64, "quick_gelu", name="clip_l", **texts)
    large = models.CLIPTextEncoder(10, 64, 64, 2, 2, 64, "gelu", name="clip_g", **texts)
    return models.StableDiffusion3Backbone(
        mmdit_patch_size=2,
        mmdit_hidden_dim=16,
        mmdit_num_layers=2,
        mmdit_num_heads=2,
        mmdit_position_size=16,
        mmdit_qk_norm=None,
        mmdit_dual_attention_indices=None,
        vae=vae(),
        clip_l=small,
        clip_g=large,
        image_shape=(32, 32, 3),
    )


def rqvae() -> keras.Model:
    from keras_hub.src.models.rqvae.rqvae_backbone import RQVAEBackbone

    return RQVAEBackbone(16, [16, 8], 8, [8, 16], num_embeddings=4, num_quantizers=2)


def places(*, of_images: int) -> Given:
    """The places of images in texts: as many for each row, others in each."""
    first = lambda rows: np.arange(rows)[:, None] % 3 + np.arange(of_images)  # noqa: E731
    return {
        "vision_indices": lambda rows: first(rows).astype("int32"),
        "vision_mask": lambda rows: (np.arange(12) == first(rows)[:, :, None]).any(1).astype("int32"),
    }


def for_all(value: float) -> Callable[[int], np.ndarray]:
    """A setting, given once for each row."""
    return lambda rows: np.full(rows, value)


PROMPTS: Given = {
    "points": lambda rows: np.random.default_rng(1).uniform(0, 16, (rows, 1, 2)).astype("float32"),
    "labels": lambda rows: np.arange(rows, dtype="float32")[:, None] % 2,
    "boxes": lambda rows: np.tile(np.array([[[[2, 2], [9, 9]]]], "float32"), (rows, 1, 1, 1)),
    "masks": lambda rows: np.zeros((rows, 0, 16, 16, 1), "float32"),
}
BOXES: Given = {
    "boxes": lambda rows: np.tile(np.array([[[0.4, 0.4, 0.3, 0.3, 1]]], "float32"), (rows, 1, 1)),
    "box_labels": lambda rows: np.arange(rows, dtype="int32")[:, None] % 2,
}
GEMMA4_IMAGES: Given = {
    "pixel_values": lambda rows: np.random.default_rng(1).uniform(0, 1, (rows, 1, 16, 48)).astype("float32"),
    "pixel_position_ids": lambda rows: np.tile(
        np.stack(np.meshgrid(np.arange(4), np.arange(4)), -1).reshape(1, 1, 16, 2).astype("int32"), (rows, 1, 1, 1)
    ),
}
ORDER: Given = {"position_ids": lambda rows: np.tile(np.arange(12, dtype="int32"), (rows, 1))}
VIT = {"image_shape": (16, 16, 3), "patch_size": 4, "num_layers": 2, "num_heads": 2}
DINO = {"num_layers": 2, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 16, "layer_scale_init_value": 1.0}

BACKBONES = {
    "AlbertBackbone": of(
        "AlbertBackbone", **BOUNDED, num_groups=1, num_inner_repetitions=1, embedding_dim=8, dropout=0.0
    ),
    "BASNetBackbone": Case(basnet, side=64),
    "BLIP2Backbone": Case(blip2, side=16),
    "BartBackbone": of("BartBackbone", **BOUNDED, dropout=0.0),
    "BertBackbone": of("BertBackbone", **BOUNDED, dropout=0.0),
    "BloomBackbone": of("BloomBackbone", **HEADS, dropout=0.0),
    "CLIPBackbone": Case(lambda: two_towers("CLIP"), side=16),
    "CSPNetBackbone": of(
        "CSPNetBackbone",
        stem_filters=8,
        stem_kernel_size=3,
        stem_strides=1,
        stackwise_strides=2,
        stackwise_depth=[1, 2],
        stackwise_num_filters=[8, 16],
        image_shape=(None, None, 3),
        down_growth=True,
        bottle_ratio=(0.5, 1.0),
        block_ratio=(1.0, 0.5),
        expand_ratio=(2.0, 1.0),
        block_type="dark_block",
        stage_type="csp",
        stem_padding="same",
    ),
    "DFineBackbone": Case(d_fine),
    "DINOV2Backbone": of(
        "DINOV2Backbone", side=28, patch_size=14, **DINO, num_register_tokens=0, image_shape=(28, 28, 3)
    ),
    "DINOV3Backbone": of("DINOV3Backbone", patch_size=16, **DINO, num_register_tokens=2, image_shape=(32, 32, 3)),
    "DebertaV3Backbone": of("DebertaV3Backbone", **BOUNDED, dropout=0.0),
    "DeepLabV3Backbone": Case(
        lambda: models.DeepLabV3Backbone(
            image_encoder=models.ResNetBackbone(**RESNET),
            low_level_feature_key="P2",
            spatial_pyramid_pooling_key="P4",
            dilation_rates=[1, 2, 3],
            upsampling_size=4,
            image_shape=(32, 32, 3),
        )
    ),
    "DeiTBackbone": of(
        "DeiTBackbone", side=16, **VIT, hidden_dim=8, intermediate_dim=16, use_mha_bias=True, dropout_rate=0.0
    ),
    "DenseNetBackbone": of(
        "DenseNetBackbone",
        stackwise_num_repeats=[1, 2, 1],
        compression_ratio=0.5,
        growth_rate=4,
        image_shape=(32, 32, 3),
    ),
    "DepthAnythingBackbone": Case(depth_anything, side=126),
    "DistilBertBackbone": of("DistilBertBackbone", **BOUNDED, dropout=0.0),
    "ESMBackbone": of("ESMBackbone", **HEADS, dropout=0.0),
    "EdRecBackbone": of(
        "EdRecBackbone",
        vocab_size=10,
        num_layers_enc=2,
        num_layers_dec=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        dropout=0.0,
    ),
    "EfficientNetBackbone": of(
        "EfficientNetBackbone",
        stackwise_kernel_sizes=[3, 3],
        stackwise_num_repeats=[1, 2],
        stackwise_input_filters=[8, 8],
        stackwise_output_filters=[8, 16],
        stackwise_expansion_ratios=[1, 4],
        stackwise_squeeze_and_excite_ratios=[0.0, 0.25],
        stackwise_strides=[1, 2],
        stackwise_block_types=["fused", "unfused"],
        stackwise_force_input_filters=[0, 0],
        stackwise_nores_option=[False, False],
        width_coefficient=1.0,
        depth_coefficient=1.0,
        dropout=0.0,
    ),
    "ElectraBackbone": of(
        "ElectraBackbone",
        vocab_size=10,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        embedding_dim=8,
        intermediate_dim=16,
        max_sequence_length=6,
        dropout=0.0,
    ),
    "FNetBackbone": of("FNetBackbone", **WIDTHS, max_sequence_length=6, dropout=0.0),
    "FalconBackbone": of(
        "FalconBackbone",
        **{**WIDTHS, "hidden_dim": 16},
        num_attention_heads=4,
        attention_dropout_rate=0.0,
        feedforward_dropout_rate=0.0,
    ),
    "FluxBackbone": of(
        "FluxBackbone",
        input_channels=8,
        hidden_size=64,
        mlp_ratio=2.0,
        num_heads=2,
        depth=1,
        depth_single_blocks=2,
        axes_dim=[8, 12, 12],
        theta=10_000,
        use_bias=True,
        guidance_embed=True,
        image_shape=(4, 8),
        text_shape=(4, 8),
        image_ids_shape=(4, 3),
        text_ids_shape=(4, 3),
        y_shape=(8,),
    ),
    "GPT2Backbone": of("GPT2Backbone", **BOUNDED, dropout=0.0),
    "GPTNeoXBackbone": of("GPTNeoXBackbone", **BOUNDED, rotary_percentage=0.5, dropout=0.0),
    "GemmaBackbone": of("GemmaBackbone", **{**GROUPED, "num_key_value_heads": 1}, head_dim=4, dropout=0.0),
    "Gemma3Backbone": Case(lambda: gemma3(vision=True), length=12, side=16, given=places(of_images=4)),
    "Gemma3Backbone, texts": Case(lambda: gemma3(vision=False), length=12),
    "Gemma3nBackbone": Case(lambda: gemma3n(several=True), length=8, side=16),
    "Gemma3nBackbone, texts": Case(lambda: gemma3n(several=False), length=8),
    "Gemma4Backbone": Case(
        lambda: gemma4(vision=True), length=12, given={**places(of_images=4), **GEMMA4_IMAGES, **ORDER}
    ),
    "Gemma4Backbone, texts": Case(lambda: gemma4(vision=False), length=12, given=ORDER),
    "GptOssBackbone": of("GptOssBackbone", **GROUPED, num_experts=2, top_k=2, sliding_window=2, dropout=0.0),
    "HGNetV2Backbone": Case(hgnet),
    "Llama3Backbone": of("Llama3Backbone", **GROUPED, dropout=0.0),
    "LlamaBackbone": of("LlamaBackbone", **GROUPED, dropout=0.0),
    "MetaCLIP2Backbone": Case(lambda: two_towers("MetaCLIP2"), side=16),
    "MiTBackbone": of("MiTBackbone", **MIT),
    "MistralBackbone": of("MistralBackbone", **GROUPED, sliding_window=2, dropout=0.0),
    "MixtralBackbone": of("MixtralBackbone", **GROUPED, num_experts=2, top_k=2, sliding_window=2, dropout=0.0),
    "MobileNetBackbone": of(
        "MobileNetBackbone",
        stackwise_expansion=[[8, 8], [16]],
        stackwise_num_blocks=[2, 1],
        stackwise_num_filters=[[8, 8], [16]],
        stackwise_kernel_size=[[3, 3], [5]],
        stackwise_num_strides=[[2, 1], [2]],
        stackwise_se_ratio=[[None, None], [0.25]],
        stackwise_activation=[["relu", "relu"], ["hard_swish"]],
        stackwise_padding=[[1, 1], [2]],
        output_num_filters=16,
        input_activation="hard_swish",
        output_activation="hard_swish",
        input_num_filters=8,
        image_shape=(32, 32, 3),
        depthwise_filters=8,
        depthwise_stride=2,
        depthwise_residual=False,
        squeeze_and_excite=0.5,
        last_layer_filter=16,
    ),
    "MobileNetV5Backbone": of("MobileNetV5Backbone", **MOBILE_V5, image_shape=(32, 32, 3), stem_size=8, use_msfa=False),
    "MoonshineBackbone": of(
        "MoonshineBackbone",
        given={
            "encoder_input_values": lambda rows: (
                np.random.default_rng(1).uniform(-1, 1, (rows, 1600, 1)).astype("float32")
            ),
            "encoder_padding_mask": lambda rows: np.ones((rows, 1600), bool),
        },
        vocabulary_size=10,
        filter_dim=16,
        encoder_num_layers=1,
        decoder_num_layers=1,
        hidden_dim=16,
        intermediate_dim=16,
        encoder_num_heads=2,
        decoder_num_heads=2,
        feedforward_expansion_factor=2,
        dropout=0.0,
        attention_dropout=0.0,
    ),
    "OPTBackbone": of("OPTBackbone", **BOUNDED, dropout=0.0),
    "PARSeqBackbone": Case(parseq, side=16),
    "PaliGemmaBackbone": of(
        "PaliGemmaBackbone",
        side=16,
        **GEMMA,
        vit_patch_size=4,
        vit_num_layers=2,
        vit_num_heads=2,
        vit_hidden_dim=8,
        vit_intermediate_dim=16,
        dropout=0.0,
    ),
    "Phi3Backbone": of("Phi3Backbone", **GROUPED, dropout=0.0),
    "QwenBackbone": of("QwenBackbone", **GROUPED, dropout=0.0),
    "Qwen3Backbone": of("Qwen3Backbone", **GROUPED, head_dim=2, dropout=0.0),
    "Qwen3MoeBackbone": of("Qwen3MoeBackbone", **EXPERTS, head_dim=2, dropout=0.0),
    "Qwen3_5Backbone": of("Qwen3_5Backbone", **{**GROUPED, "hidden_dim": 16}, **LINEAR),
    "Qwen3_5MoeBackbone": of(
        "Qwen3_5MoeBackbone",
        **{**EXPERTS, "hidden_dim": 16, "intermediate_dim": None},
        **LINEAR,
        shared_expert_intermediate_size=8,
    ),
    "QwenMoeBackbone": of("QwenMoeBackbone", **EXPERTS, head_dim=2, shared_expert_intermediate_dim=16, dropout=0.0),
    "RQVAEBackbone": Case(rqvae),
    "RWKV7Backbone": of(
        "RWKV7Backbone",
        length=16,
        vocabulary_size=10,
        hidden_size=16,
        num_layers=2,
        head_size=4,
        intermediate_dim=32,
        gate_lora=8,
        mv_lora=8,
        aaa_lora=8,
        decay_lora=8,
    ),
    "ResNetBackbone": of("ResNetBackbone", **RESNET),
    "RetinaNetBackbone": Case(retinanet, side=64),
    "RobertaBackbone": of("RobertaBackbone", **BOUNDED, dropout=0.0),
    "RoformerV2Backbone": of("RoformerV2Backbone", **HEADS, head_size=4, dropout=0.0),
    "SAMBackbone": Case(sam, side=16, given=PROMPTS),
    "SAM3PromptableConceptBackbone": Case(sam3, length=32, side=28, below=32, given=BOXES),
    "SegFormerBackbone": Case(
        lambda: models.SegFormerBackbone(projection_filters=8, image_encoder=models.MiTBackbone(**MIT))
    ),
    "SigLIPBackbone": Case(lambda: two_towers("SigLIP"), side=16),
    "SmolLM3Backbone": of(
        "SmolLM3Backbone",
        **WIDTHS,
        num_attention_heads=4,
        num_key_value_heads=2,
        attention_bias=False,
        attention_dropout=0.0,
        rope_layer_enabled_list=[True, True],
        layer_types=["attention", "attention"],
        mlp_bias=False,
        layer_norm_epsilon=1e-5,
        max_position_embeddings=16,
        rope_theta=10000.0,
        partial_rotary_factor=1.0,
    ),
    "StableDiffusion3Backbone": Case(stable_diffusion, given={"num_steps": for_all(2), "guidance_scale": for_all(7.5)}),
    "SwinTransformerBackbone": of(
        "SwinTransformerBackbone", image_shape=(32, 32, 3), embed_dim=8, depths=(1, 2), num_heads=(2, 4), window_size=4
    ),
    "T5Backbone": of("T5Backbone", **HEADS, dropout=0.0),
    "T5GemmaBackbone": of("T5GemmaBackbone", **T5GEMMA),
    "T5Gemma2Backbone": of("T5Gemma2Backbone", **T5GEMMA, use_query_key_norm=True),
    "VAEBackbone": Case(vae),
    "VGGBackbone": of(
        "VGGBackbone", stackwise_num_repeats=[1, 2], stackwise_num_filters=[8, 8], image_shape=(32, 32, 3)
    ),
    "ViTBackbone": of(
        "ViTBackbone", side=16, **{**VIT, "patch_size": (4, 4)}, hidden_dim=8, mlp_dim=16, use_mha_bias=True
    ),
    "ViTDetBackbone": of(
        "ViTDetBackbone",
        side=16,
        **VIT,
        hidden_size=8,
        global_attention_layer_indices=[1],
        intermediate_dim=16,
        num_output_channels=4,
        window_size=2,
    ),
    "VideoPrismBackbone": of(
        "VideoPrismBackbone",
        side=16,
        image_shape=(16, 16, 3),
        num_frames=2,
        patch_size=4,
        hidden_dim=8,
        intermediate_dim=16,
        num_heads=2,
        num_spatial_layers=1,
        num_temporal_layers=1,
        num_auxiliary_layers=1,
        vocabulary_size=0,
        num_text_layers=0,
    ),
    "WhisperBackbone": of(
        "WhisperBackbone", **HEADS, max_encoder_sequence_length=6, max_decoder_sequence_length=6, dropout=0.0
    ),
    "XLMRobertaBackbone": of("XLMRobertaBackbone", **BOUNDED, dropout=0.0),
    "XLNetBackbone": of("XLNetBackbone", **HEADS, dropout=0.0),
    "XceptionBackbone": of(
        "XceptionBackbone",
        side=48,
        stackwise_conv_filters=[[8, 8], [16, 16], [16, 16]],
        stackwise_pooling=[False, True, False],
        image_shape=(None, None, 3),
    ),
}
