"""Families beside those of hf_cases.py: one small checkpoint each, as transformers saves it.

A case says how its block is found and how its logits become ids and weights; that rule only picks
an input without near-ties and puts the ids in order. y and the weights of the ids are the module's.
"""
import dataclasses

import numpy as np
import safetensors.torch
import torch
import transformers

import fixture_case
import hf_model
import routing_reference
from hf_cases import LATENT_ATTENTION, SMALL
from routing_reference import Rule

ROUTERS = (
    "gate.wg",
    "gate",
    "router.gate",
    "router.classifier",
    "router.layer",
    "router.proj",
    "router",
)
ROUTER_ENDS = (
    "gate.weight",
    "router.weight",
    "wg.weight",
    "classifier.weight",
    "router.layer.weight",
    "router.proj.weight",
)
BIASES = (
    "gate.e_score_correction_bias",
    "e_score_correction_bias",
    "router.e_score_correction_bias",
    "gate.moe_statics.e_score_correction_bias",
    "expert_bias",
)
SIZES = dict(intermediate_size=16, moe_intermediate_size=32)
ONE_LAYER = dict(num_hidden_layers=1)
ATTENTION = ("model.layers.0.self_attn", "model.layers.1.self_attn")


def find(block, names, attribute=None):
    for name in names:
        value = block
        for part in name.split("."):
            value = getattr(value, part, None)
        if attribute is not None and value is not None:
            value = getattr(value, attribute, None)
        if value is not None:
            return value.detach()
    return None


def logits_of(block, x, cap=0.0):
    weight = find(block, ROUTERS, "weight").double().numpy()
    bias = find(block, BIASES)
    z = x.astype(np.float64) @ weight.T
    router_bias = find(block, ("router",), "bias")
    if router_bias is not None:
        z = z + router_bias.double().numpy()
    if cap:
        z = cap * np.tanh(z / cap)
    return z, None if bias is None else bias.double().numpy().reshape(-1)


def save(name, config, model_class=None, down_gain=1.5):
    rng = fixture_case.case_rng(name)
    folder = fixture_case.empty_folder(name)
    model_class = model_class or transformers.AutoModelForCausalLM
    make = getattr(model_class, "_from_config", None) or model_class.from_config
    model = make(config, dtype=torch.bfloat16)
    for module in model.modules():  # these are float32 in released files
        for key, buffer in list(module._buffers.items()):
            if buffer is not None and "bias" in key:
                module._buffers[key] = buffer.float()
        for key in ("e_score_correction_bias", "expert_bias"):
            if key in module._parameters:
                module._parameters[key].data = module._parameters[key].data.float()
    with torch.no_grad():
        fill(model, rng, down_gain)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    loaded = model_class.from_pretrained(
        folder, dtype=torch.float32, experts_implementation="eager"
    )
    return folder, loaded.eval(), rng


def fill(model, rng, down_gain):
    state = model.state_dict()
    for name in sorted(state):
        tensor = state[name]
        if not tensor.is_floating_point():
            rows = [rng.permutation(5)[: tensor.shape[1]] for _ in range(tensor.shape[0])]
            tensor.copy_(torch.from_numpy(np.array(rows)))  # the hash table
            continue
        values = rng.standard_normal(tuple(tensor.shape))
        if name.endswith("_expert_norm.weight"):  # 1 + them is exact in bf16
            values = np.round(16 * values) / 64
        elif name.endswith(("norm.weight", "router.scale", "per_expert_scale", "global_scale")):
            values = 1.0 + 0.2 * values
        elif tensor.dim() < 2 or "bias" in name:
            values = 0.3 * values
        else:
            router = name.endswith(ROUTER_ENDS)
            transposed = "feed_forward.experts" in name and tensor.dim() == 3
            fan_in = tensor.shape[-2 if transposed else -1]
            last = "experts" in name and ("down_proj" in name or ".w2." in name)
            gain = 2.0 if router or "shared_expert_gate" in name else down_gain if last else 1.5
            values *= gain / np.sqrt(fan_in)
        tensor.copy_(torch.from_numpy(values.astype(np.float32)))


def pick_input(block, rule, rng, tokens, hidden, cap=0.0, before=lambda x: x):
    def acceptable(x):
        logits, bias = logits_of(block, before(x), cap)
        routed = routing_reference.route(rule, logits, bias)
        if routed.gap < fixture_case.MIN_GAP:
            return None
        plain = dataclasses.replace(rule, n_group=1, topk_group=1)
        if bias is not None and np.array_equal(
            routing_reference.route(rule, logits, None).ids, routed.ids
        ):
            return None
        if rule.n_group > rule.topk_group and np.array_equal(
            routing_reference.route(plain, logits, bias).ids, routed.ids
        ):
            return None
        return routed

    return fixture_case.draw_input(rng, tokens, hidden, acceptable)


def run(block, x, routed, forward=None):
    """The block's y; its own weights where its experts are called with them."""
    seen = {}

    def record(_module, args):
        if len(args) == 3:
            seen["ids"], seen["weights"] = args[1].numpy(), args[2].detach().numpy()

    handle = block.experts.register_forward_pre_hook(record)
    with torch.no_grad():
        y = (forward or block)(torch.from_numpy(x)[None])
    handle.remove()
    y = (y[0] if isinstance(y, tuple) else y).reshape(x.shape).numpy()
    if not seen:
        return y, routed.weights
    place = np.array([[r.index(i) for i in w] for r, w in zip(seen["ids"].tolist(), routed.ids)])
    return y, np.take_along_axis(seen["weights"], place, axis=1)


def drop(path, beginnings):
    """Without tensors that are large and of no part in the layer."""
    tensors = safetensors.torch.load_file(path)
    kept = {n: t for n, t in tensors.items() if not n.startswith(beginnings)}
    safetensors.torch.save_file(kept, path, metadata={"format": "pt"})


def case(name, config, rule, layer, meta, tokens=7, cap=0.0, scale_after=1.0, model_class=None,
         pick=None, before=lambda block: lambda x: x, forward=None, check=True, down_gain=1.5,
         dropped=()):
    folder, model, rng = save(name, config, model_class, down_gain)
    if dropped:
        drop(folder / "model.safetensors", dropped)
    block = pick(model) if pick else model.model.layers[layer].mlp
    hidden = 64
    x, routed = pick_input(block, rule, rng, tokens, hidden, cap, before(block))
    y, weights = run(block, x, routed, forward(block) if forward else None)
    weights = weights * scale_after  # families that scale the routed sum
    if check:
        assert np.allclose(weights, routed.weights, rtol=1e-5), "the rule in the script is wrong"
    logits, bias = logits_of(block, before(block)(x), cap)
    arrays = x, y, routed.ids, weights
    write(folder, model, layer, rule, arrays, logits.shape[1], bias, meta, block)


def write(folder, model, layer, rule, arrays, experts, bias, meta, block):
    config = model.config
    facts = {
        "score": rule.score,
        "post": rule.post,
        "norm": rule.norm,
        "scale": rule.scale,
        "n_group": rule.n_group,
        "topk_group": rule.topk_group,
        "group_score": rule.group_score,
        "has_selection_bias": bias is not None,
        "has_router_bias": find(block, ("router",), "bias") is not None,
    }
    full = {
        "layer": layer,
        "tool": f"transformers {transformers.__version__}",
        "y_from": f"{type(block).__name__} of transformers: {hf_model.BF16_NOTE}",
        "dtype": "float32",
        "family": config.model_type,
        "H": 64,
        "I": 32,
        "E": experts,
        "k": rule.top_k,
        "format": "bf16",
        "routing": facts,
    }
    fixture_case.write_case(folder, {**full, **meta}, *arrays)


def config_of(name, *parts, **more):
    values = {}
    for part in (SMALL, *parts, more):
        values.update(part)
    return getattr(transformers, name)(**values)


SIGMOID = dict(score="sigmoid", norm=True)


def qwen3_5_moe(name="qwen3_5_moe_bf16"):
    config = config_of("Qwen3_5MoeTextConfig", SIZES, ONE_LAYER, shared_expert_intermediate_size=48,
                       num_experts=5, num_experts_per_tok=3, head_dim=16, linear_key_head_dim=16,
                       linear_value_head_dim=16, linear_num_key_heads=1, linear_num_value_heads=2)
    case(name, config, Rule(3, norm=True), 0, dict(shared_I=48, notes="as Qwen3-Next"))


def qwen3_vl_moe(name="qwen3_vl_moe_bf16"):
    config = config_of("Qwen3VLMoeTextConfig", SIZES, ONE_LAYER, num_experts=5,
                       num_experts_per_tok=3, head_dim=16)
    notes = "the text model alone; merged tensors transposed by the script, as released; 2I = H"
    case(name, config, Rule(3, norm=True), 0, dict(notes=notes),
         model_class=transformers.Qwen3VLMoeTextModel, pick=lambda m: m.layers[0].mlp)
    path = fixture_case.FIXTURES / name / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    for key in tensors:
        if "experts." in key:
            tensors[key] = tensors[key].transpose(1, 2).contiguous()
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def qwen3_omni_moe(name="qwen3_omni_moe_bf16"):
    """The Thinker, in the names and the configuration of the whole model."""
    text = dict(SMALL, **SIZES, **ONE_LAYER, num_experts=5, num_experts_per_tok=3, head_dim=16)
    audio = dict(d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=16,
                 downsample_hidden_size=8, output_dim=64, num_mel_bins=8, max_source_positions=8)
    vision = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=64,
                  patch_size=4, num_position_embeddings=4, deepstack_visual_indexes=[0])
    thinker = dict(text_config=text, audio_config=audio, vision_config=vision)
    config = transformers.Qwen3OmniMoeConfig(thinker_config=thinker, enable_audio_output=False)
    notes = "thinker.model.layers, thinker_config.text_config; without audio, vision and Talker"
    case(name, config, Rule(3, norm=True), 0, dict(notes=notes),
         model_class=transformers.Qwen3OmniMoeForConditionalGeneration,
         pick=lambda m: m.thinker.model.language_model.layers[0].mlp,
         dropped=("thinker.audio_tower", "thinker.visual"))


def glm4_moe(name="glm4_moe_bf16"):
    config = config_of("Glm4MoeConfig", SIZES, n_routed_experts=5, num_experts_per_tok=3,
                       head_dim=16, first_k_dense_replace=1, routed_scaling_factor=2.5)
    case(name, config, Rule(3, scale=2.5, **SIGMOID), 1, dict(shared_I=32, notes="layer 0 dense"))


def glm4_moe_lite(name="glm4_moe_lite_bf16"):
    config = config_of("Glm4MoeLiteConfig", LATENT_ATTENTION, SIZES, n_routed_experts=4,
                       num_experts_per_tok=3, mlp_layer_types=["dense", "sparse"])
    notes = "scale of the configuration's default; layer 0 dense; without attention"
    case(name, config, Rule(3, scale=1.8, **SIGMOID), 1, dict(shared_I=32, notes=notes),
         dropped=ATTENTION)


def glm_moe_dsa(name="glm_moe_dsa_bf16"):
    config = config_of("GlmMoeDsaConfig", LATENT_ATTENTION, SIZES, n_routed_experts=4,
                       num_experts_per_tok=3, mlp_layer_types=["dense", "sparse"],
                       index_n_heads=1, index_head_dim=32)
    notes = "layer 0 dense, first_k_dense_replace: 3 all the same; without attention"
    case(name, config, Rule(3, scale=2.5, **SIGMOID), 1, dict(shared_I=32, notes=notes),
         dropped=ATTENTION)


def minimax(name="minimax_bf16"):
    config = config_of("MiniMaxConfig", ONE_LAYER, intermediate_size=32, num_local_experts=5,
                       num_experts_per_tok=3, head_dim=16, layer_types=["full_attention"])
    notes = "MiniMax-Text: as Mixtral; without attention"
    case(name, config, Rule(3, norm=True), 0, dict(notes=notes), dropped=ATTENTION)


def minimax_m2(name="minimax_m2_bf16"):
    config = config_of("MiniMaxM2Config", ONE_LAYER, intermediate_size=32, num_local_experts=5,
                       num_experts_per_tok=3, head_dim=16)
    notes = "the bias lies beside the gate, not under it; divided by the plain sum"
    case(name, config, Rule(3, **SIGMOID), 0, dict(notes=notes))


def minimax_m3(name="minimax_m3_bf16"):
    config = config_of("MiniMaxM3VLTextConfig", ONE_LAYER, intermediate_size=32,
                       dense_intermediate_size=80, shared_intermediate_size=48,
                       num_local_experts=5, num_experts_per_tok=3, head_dim=16)
    notes = "merged, the text model alone; OAI swiglu in routed and shared experts"
    case(name, config, Rule(3, scale=2.0, **SIGMOID), 0, dict(shared_I=48, notes=notes),
         scale_after=2.0)


def llama4(name="llama4_bf16"):
    config = config_of("Llama4TextConfig", ONE_LAYER, intermediate_size=32,
                       intermediate_size_mlp=48, num_local_experts=5, num_experts_per_tok=1,
                       head_dim=16)
    notes = "[E, in, out], 2I = H; the sigmoid multiplies the input; ids and weights by numpy"
    case(name, config, Rule(1, score="none", post="sigmoid"), 0,
         dict(shared_I=32, notes=notes), pick=lambda m: m.model.layers[0].feed_forward)


def hunyuan(name="hunyuan_v1_moe_bf16"):
    config = config_of("HunYuanMoEV1Config", ONE_LAYER, intermediate_size=32, num_experts=5,
                       moe_topk=3, head_dim=16)
    case(name, config, Rule(3, norm=True), 0, dict(shared_I=32, notes="router in float32"))


def hy_v3(name="hy_v3_bf16"):
    config = config_of("HYV3Config", SIZES, num_experts=5, num_experts_per_tok=3, head_dim=16)
    case(name, config, Rule(3, scale=2.826, **SIGMOID), 1,
         dict(shared_I=32, notes="expert_bias, router.gate, shared_mlp"))


def ernie(name="ernie4_5_moe_bf16"):
    config = config_of("Ernie4_5_MoeConfig", SIZES, moe_num_experts=4, moe_k=2,
                       moe_num_shared_experts=2)
    case(name, config, Rule(2, norm=True), 1,
         dict(shared_I=64, notes="softmax with a bias of shape [1, E]; layer 0 dense"))


def olmoe(name="olmoe_bf16"):
    config = config_of("OlmoeConfig", ONE_LAYER, intermediate_size=32, num_experts=5,
                       num_experts_per_tok=3)
    case(name, config, Rule(3), 0, dict(notes="softmax, not normalised"))


def flex_olmo(name="flex_olmo_bf16"):
    config = config_of("FlexOlmoConfig", ONE_LAYER, intermediate_size=32, num_experts=7,
                       num_experts_per_tok=5)
    notes = "softmax, not normalised; 5 of 7; without attention"
    case(name, config, Rule(5), 0, dict(notes=notes), dropped=ATTENTION)


def phimoe(name="phimoe_bf16"):
    config = config_of("PhimoeConfig", ONE_LAYER, intermediate_size=32, num_local_experts=5,
                       num_experts_per_tok=2)
    case(name, config, Rule(2, score="sparsemixer"), 0,
         dict(notes="sparsemixer; weights need not follow the ids' order"))


def jamba(name="jamba_bf16"):
    config = config_of("JambaConfig", intermediate_size=32, num_experts=4, num_experts_per_tok=2,
                       mamba_d_state=4, mamba_expand=1, use_mamba_kernels=False)
    case(name, config, Rule(2), 1, dict(notes="softmax, not normalised"),
         pick=lambda m: m.model.layers[1].feed_forward)


def dbrx(name="dbrx_bf16"):
    config = transformers.DbrxConfig(
        d_model=64, n_heads=2, n_layers=1, max_seq_len=64, vocab_size=32, pad_token_id=0,
        attn_config=dict(kv_n_heads=1, rope_theta=10000.0),
        ffn_config=dict(hidden_size=64, ffn_hidden_size=32, moe_num_experts=5, moe_top_k=3))
    case(name, config, Rule(3, norm=True), 0, dict(notes="stacks in two dimensions, w2 transposed"),
         pick=lambda m: m.transformer.blocks[0].ffn)


def granitemoe(name="granitemoeshared_bf16"):
    config = config_of("GraniteMoeSharedConfig", ONE_LAYER, intermediate_size=32,
                       shared_intermediate_size=48, num_local_experts=5, num_experts_per_tok=3)
    notes = "softmax of the k; shared_mlp lies beside the block; y is the sum that the layer forms"
    def forward(block):
        return lambda x: block(x) + block.beside(x)
    def pick(model):
        block = model.model.layers[0].block_sparse_moe
        object.__setattr__(block, "beside", model.model.layers[0].shared_mlp)
        return block
    case(name, config, Rule(3, score="none", post="softmax"), 0, dict(shared_I=48, notes=notes),
         pick=pick, forward=forward)


def dots1(name="dots1_bf16"):
    config = config_of("Dots1Config", SIZES, n_routed_experts=4, num_experts_per_tok=3,
                       n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=True,
                       routed_scaling_factor=2.5)
    case(name, config, Rule(3, scale=2.5, **SIGMOID), 1, dict(shared_I=64, notes="layer 0 dense"))


def deepseek_v4_config(kind):
    return config_of("DeepseekV4Config", ONE_LAYER, moe_intermediate_size=32, n_routed_experts=5,
                     num_experts_per_tok=3, head_dim=32, q_lora_rank=16, o_lora_rank=16, o_groups=2,
                     index_n_heads=1, index_head_dim=32, hc_mult=1, swiglu_limit=1.0,
                     mlp_layer_types=[kind])


DEEPSEEK_V4 = Rule(3, score="sqrtsoftplus", norm=True, scale=1.5)


def deepseek_v4(name="deepseek_v4_bf16"):
    notes = "sqrt(softplus), limits of 1 before the activation in routed and shared experts"
    case(name, deepseek_v4_config("moe"), DEEPSEEK_V4, 0, dict(shared_I=32, notes=notes))


def deepseek_v4_hash(name="deepseek_v4_hash_bf16"):
    """Ids are those of a table, by tokens.npy; their order is the table's."""
    folder, model, rng = save(name, deepseek_v4_config("hash_moe"))
    block = model.model.layers[0].mlp
    x = fixture_case.to_bf16(rng.standard_normal((7, 64)))
    tokens = rng.integers(0, SMALL["vocab_size"], 7)
    ids = block.gate.tid2eid.numpy()[tokens]
    with torch.no_grad():
        given = torch.from_numpy(x)[None], torch.from_numpy(tokens)[None]
        y = block(*given)[0].numpy()
        weights = block.gate(*given)[1].numpy()
    np.save(folder / "tokens.npy", tokens.astype(np.int32))
    notes = "the first layers of DeepSeek-V4: experts by token id, tid2eid"
    write(folder, model, 0, DEEPSEEK_V4, (x, y, ids, weights), 5, np.zeros(5),
          dict(shared_I=32, notes=notes), block)


def kimi_linear(name="kimi_linear_bf16"):
    config = config_of("KimiLinearConfig", LATENT_ATTENTION, SIZES, num_experts=4,
                       linear_head_dim=16, linear_num_heads=2, num_experts_per_token=3)
    case(name, config, Rule(3, scale=2.446, **SIGMOID), 1,
         dict(shared_I=32, notes="layer 0 is dense under block_sparse_moe as well"))


def bailing_config():
    return config_of("BailingHybridConfig", LATENT_ATTENTION, SIZES, num_experts=6,
                     num_experts_per_token=3, num_expert_group=3, topk_group=2,
                     first_k_dense_replace=0, num_hidden_layers=1, linear_head_dim=16,
                     linear_num_heads=2, mlp_layer_types=["sparse"])


BAILING = Rule(3, scale=2.5, n_group=3, topk_group=2, group_score="top2_sum", **SIGMOID)


def bailing_hybrid(name="bailing_hybrid_bf16"):
    notes = "expert_bias, groups by top-2 sum"
    case(name, bailing_config(), BAILING, 0, dict(shared_I=32, notes=notes))


def bailing_moe(name="bailing_moe_bf16"):
    """Ling 2, which transformers does not have: its block is that of the hybrid."""
    notes = "the hybrid's block under the configuration of Ling 2 as released; without attention"
    case(name, bailing_config(), BAILING, 0,
         dict(family="bailing_moe", shared_I=32, notes=notes),
         dropped=("model.layers.0.attention",))
    released = dict(architectures=["BailingMoeV2ForCausalLM"], model_type="bailing_moe",
                    hidden_size=64, intermediate_size=16, moe_intermediate_size=32,
                    moe_shared_expert_intermediate_size=32, num_experts=6, num_experts_per_tok=3,
                    num_shared_experts=1, n_group=3, topk_group=2, norm_topk_prob=True,
                    moe_router_enable_expert_bias=True, routed_scaling_factor=2.5,
                    score_function="sigmoid", first_k_dense_replace=0, hidden_act="silu")
    fixture_case.write_json(fixture_case.FIXTURES / name / "config.json", released)


def step(name="step3p7_bf16"):
    text = dict(SMALL, **SIZES, n_routed_experts=4, num_experts_per_tok=3, share_expert_dim=32,
                head_dim=16, moe_router_scaling_factor=3.0, swiglu_limits=[0.0, 1.0],
                swiglu_limits_shared=[0.0, 0.5], mlp_layer_types=["dense", "sparse"])
    vision = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                  image_size=28, patch_size=14, max_position_embeddings=4)
    config = transformers.Step3p7Config(text_config=text, vision_config=vision, pad_token_id=0)
    notes = "three stacks; limits after the activation, of this layer alone; without vision"
    case(name, config, Rule(3, scale=3.0, **SIGMOID), 1, dict(shared_I=32, notes=notes),
         scale_after=3.0, model_class=transformers.Step3p7ForConditionalGeneration,
         pick=lambda m: m.model.language_model.layers[1].mlp, dropped=("vision_model", "vit_"))


def mistral4(name="mistral4_bf16"):
    config = config_of("Mistral4Config", LATENT_ATTENTION, SIZES, ONE_LAYER, n_routed_experts=5,
                       num_experts_per_tok=3, n_shared_experts=1, first_k_dense_replace=0)
    case(name, config, Rule(3, norm=True), 0,
         dict(shared_I=32, notes="merged; the text model alone; softmax"),
         model_class=transformers.Mistral4Model, pick=lambda m: m.layers[0].mlp)


def nemotron_h(name="nemotron_h_bf16"):
    config = config_of("NemotronHConfig", SIZES, n_routed_experts=5, num_experts_per_tok=3,
                       moe_shared_expert_intermediate_size=48, head_dim=16, moe_latent_size=32,
                       layers_block_type=["moe", "attention"], routed_scaling_factor=2.5)
    notes = "no gate matrix, squared ReLU, a latent of 32"
    case(name, config, Rule(3, scale=2.5, **SIGMOID), 0, dict(shared_I=48, notes=notes),
         pick=lambda m: m.model.layers[0].mixer, down_gain=0.5)


def longcat(name="longcat_flash_bf16"):
    config = config_of("LongcatFlashConfig", LATENT_ATTENTION, ffn_hidden_size=16, num_layers=1,
                       expert_ffn_hidden_size=32, n_routed_experts=5, zero_expert_num=3, moe_topk=4)
    case(name, config, Rule(4, scale=6.0), 0,
         dict(notes="E counts three experts that return their input"), down_gain=0.5)


def gemma4(name="gemma4_bf16"):
    config = config_of("Gemma4TextConfig", SIZES, ONE_LAYER, enable_moe_block=True, num_experts=5,
                       top_k_experts=3, head_dim=16, global_head_dim=16,
                       hidden_size_per_layer_input=0, vocab_size_per_layer_input=32,
                       layer_types=["full_attention"])

    def before(block):
        scale = block.router.scale.detach().double().numpy()
        rms = lambda x: np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-6)
        return lambda x: x / rms(x) * scale / 8.0

    def forward(block):
        def run_both(x):
            _, weights, ids = block.router(x[0])
            return block.experts(x[0], ids, weights)
        return run_both

    notes = "router and experts on the same x; the weights include the scale of each expert"
    case(name, config, Rule(3, norm=True), 0, dict(notes=notes), before=before, forward=forward,
         pick=lambda m: m.model.layers[0], check=False)


def lfm2_moe(name="lfm2_moe_bf16"):
    config = config_of("Lfm2MoeConfig", SIZES, num_experts=5, num_experts_per_tok=3,
                       num_dense_layers=1, layer_types=["full_attention", "conv"])
    case(name, config, Rule(3, **SIGMOID), 1, dict(notes="the sum plus 1e-6"),
         pick=lambda m: m.model.layers[1].feed_forward)


def afmoe(name="afmoe_bf16"):
    config = config_of("AfmoeConfig", SIZES, num_experts=4, num_experts_per_tok=3, head_dim=16,
                       num_dense_layers=1, route_scale=2.826)
    case(name, config, Rule(3, scale=2.826, **SIGMOID), 1,
         dict(shared_I=64, notes="expert_bias and router.gate"))


def laguna(name="laguna_bf16"):
    config = config_of("LagunaConfig", SIZES, num_experts=5, num_experts_per_tok=3, head_dim=16,
                       shared_expert_intermediate_size=48, moe_routed_scaling_factor=2.5,
                       moe_router_logit_softcapping=1.5)
    notes = "logits capped at 1.5; the bias lies under the experts; no gate of the shared expert"
    case(name, config, Rule(3, scale=2.5, **SIGMOID), 1, dict(shared_I=48, notes=notes), cap=1.5,
         scale_after=2.5)


def cohere2_moe(name="cohere2_moe_bf16"):
    config = config_of("Cohere2MoeConfig", ONE_LAYER, intermediate_size=32, num_experts=5,
                       num_experts_per_tok=3, num_shared_experts=1,
                       expert_selection_fn="sigmoid", head_dim=16)
    rule = Rule(3, score="none", post="sigmoid", norm=True)
    case(name, config, rule, 0,
         dict(shared_I=32, notes="sigmoid of the k, normalised; the mean of routed and shared"))


def exaone_moe(name="exaone_moe_bf16"):
    config = config_of("ExaoneMoeConfig", SIZES, num_experts=4, num_experts_per_tok=3)
    case(name, config, Rule(3, scale=2.5, **SIGMOID), 1, dict(shared_I=32, notes="layer 0 dense"))


def mimo_v2_flash(name="mimo_v2_flash_bf16"):
    config = config_of("MiMoV2FlashConfig", SIZES, n_routed_experts=5, num_experts_per_tok=3,
                       head_dim=16, v_head_dim=16)
    case(name, config, Rule(3, **SIGMOID), 1, dict(notes="no shared expert"))


CASES = [
    qwen3_5_moe,
    qwen3_vl_moe,
    qwen3_omni_moe,
    glm4_moe,
    glm4_moe_lite,
    glm_moe_dsa,
    minimax,
    minimax_m2,
    minimax_m3,
    llama4,
    hunyuan,
    hy_v3,
    ernie,
    olmoe,
    flex_olmo,
    phimoe,
    jamba,
    dbrx,
    granitemoe,
    dots1,
    deepseek_v4,
    deepseek_v4_hash,
    kimi_linear,
    bailing_hybrid,
    bailing_moe,
    step,
    mistral4,
    nemotron_h,
    longcat,
    gemma4,
    lfm2_moe,
    afmoe,
    laguna,
    cohere2_moe,
    exaone_moe,
    mimo_v2_flash,
]
