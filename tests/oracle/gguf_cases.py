"""GGUF files by the gguf package's writer; y in float64 from the values gguf.quants decodes.

The MoE tensors and the keys are those of a converted model; attention is a stub, so llama.cpp
itself would not run these files.
"""
import dataclasses
import importlib.metadata

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

import fixture_case
import routing_reference
from routing_reference import Rule

RANDOM_BLOCKS = {  # types gguf-py only decodes: (byte offset, meaning) of each fp16 scale field
    Type.Q2_K: {80: "d", 82: "dmin"},
    Type.Q3_K: {108: "d"},
    Type.Q4_K: {0: "d", 2: "dmin"},
    Type.Q5_K: {0: "d", 2: "dmin"},
    Type.Q6_K: {208: "d"},
    Type.IQ4_NL: {0: "d"},
    Type.IQ4_XS: {0: "d"},
    Type.IQ2_XXS: {0: "d"},
    Type.IQ2_XS: {0: "d"},
    Type.IQ3_XXS: {0: "d"},
    Type.IQ3_S: {0: "d"},
}


@dataclasses.dataclass
class Model:
    """Sizes, types and keys of one file with `layers` blocks, the first `dense` of them dense."""

    name: str
    arch: str
    hidden: int
    intermediate: int
    experts: int
    rule: Rule
    gate: Type
    up: Type
    down: Type
    layers: int = 1
    dense: int = 0
    dense_intermediate: int = 40
    shared_intermediate: int = 0
    shared_type: Type = Type.F32
    shared_gate: bool = False
    selection_bias: bool = False
    biases: bool = False  # router bias and expert biases
    activation: str = "silu_glu"
    weight_on_input: bool = False
    gain: float = 1.5
    down_gain: float = 1.5
    tokens: int = 7
    keys: dict = dataclasses.field(default_factory=dict)  # further GGUFWriter.add_<key>(value)
    alignment: int = 0
    notes: str = ""


def random_blocks(rng, shape, target, qtype):
    """Random valid block bytes whose decoded values have about the standard deviation target."""
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    count = int(np.prod(shape)) // block
    data = rng.integers(0, 256, (count, size), dtype=np.uint8)

    def put(offset, values):
        data[:, offset : offset + 2] = values.astype(np.float16).view(np.uint8).reshape(count, 2)

    spread = rng.uniform(0.7, 1.3, count)
    fields = RANDOM_BLOCKS[qtype]
    for offset in fields:
        put(offset, 0.01 * spread)
    sample = gguf.quants.dequantize(data, qtype)
    if "dmin" in fields.values():
        (low,) = (o for o, meaning in fields.items() if meaning == "dmin")
        put(low, np.zeros(count))
        high = gguf.quants.dequantize(data, qtype)
        ratio = high.mean() / (high - sample).mean()  # dmin = ratio * d makes the mean vanish
        put(low, 0.01 * spread * ratio)
        sample = gguf.quants.dequantize(data, qtype)
    factor = target / sample.std()
    for offset in fields:
        put(offset, data[:, offset : offset + 2].copy().view(np.float16)[:, 0] * factor)
    return data.reshape(*shape[:-1], -1)


def encode(rng, shape, gain, qtype):
    """(array for the writer, float64 values that the file then holds); fan in is the last size."""
    target = gain / np.sqrt(shape[-1])
    if qtype in RANDOM_BLOCKS:
        data = random_blocks(rng, shape, target, qtype)
    else:
        values = (target * rng.standard_normal(shape)).astype(np.float32)
        if qtype in (Type.F32, Type.F16):
            data = values.astype(np.float32 if qtype == Type.F32 else np.float16)
            return data, data.astype(np.float64)
        data = gguf.quants.quantize(values, qtype)
    return data, gguf.quants.dequantize(data, qtype).astype(np.float64).reshape(shape)


def nvfp4_blocks(rng, shape):
    """Random NVFP4 codes under block scales of 0.5 to 4; the decoded values still lack .scale."""
    count = int(np.prod(shape)) // 64
    scales = rng.integers(0x30, 0x48, (count, 4), dtype=np.uint8)
    codes = rng.integers(0, 256, (count, 32), dtype=np.uint8)
    data = np.concatenate([scales, codes], axis=1).reshape(*shape[:-1], -1)
    return data, gguf.quants.dequantize(data, Type.NVFP4).astype(np.float64).reshape(shape)


class LayerWriter:
    """Adds one block's tensors to a writer and remembers the decoded values by name."""

    def __init__(self, writer, rng, layer):
        self.writer, self.rng, self.layer = writer, rng, layer
        self.values = {}

    def matrix(self, name, shape, gain, qtype=Type.F32):
        data, values = encode(self.rng, shape, gain, qtype)
        self.writer.add_tensor(f"blk.{self.layer}.{name}", data, raw_dtype=qtype)
        self.values[name] = values

    def nvfp4(self, name, shape, gain):
        data, values = nvfp4_blocks(self.rng, shape)
        self.writer.add_tensor(f"blk.{self.layer}.{name}.weight", data, raw_dtype=Type.NVFP4)
        target = gain / np.sqrt(shape[-1]) / values.std()
        scale = (target * self.rng.uniform(0.7, 1.3, shape[0])).astype(np.float32)
        self.writer.add_tensor(f"blk.{self.layer}.{name}.scale", scale)
        self.values[f"{name}.weight"] = values * scale.astype(np.float64)[:, None, None]

    def experts(self, name, shape, gain, qtype):
        if qtype == Type.NVFP4:
            self.nvfp4(name, shape, gain)
        else:
            self.matrix(f"{name}.weight", shape, gain, qtype)

    def vector(self, name, shape, spread, offset=0.0):
        data = (offset + spread * self.rng.standard_normal(shape)).astype(np.float32)
        self.writer.add_tensor(f"blk.{self.layer}.{name}", data)
        self.values[name] = data.astype(np.float64)


def add_keys(writer, model):
    writer.add_name(model.name)
    writer.add_context_length(64)
    writer.add_embedding_length(model.hidden)
    writer.add_block_count(model.layers)
    writer.add_feed_forward_length(model.dense_intermediate)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(model.experts)
    writer.add_expert_used_count(model.rule.top_k)
    for key, value in model.keys.items():
        getattr(writer, f"add_{key}")(value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(32)])


def add_dense_layer(out, model):
    wide = model.dense_intermediate
    out.matrix("ffn_gate.weight", (wide, model.hidden), 1.0, Type.F16)
    out.matrix("ffn_down.weight", (model.hidden, wide), 1.0, Type.F16)
    out.matrix("ffn_up.weight", (wide, model.hidden), 1.0, Type.F16)


def add_moe_layer(out, model):
    h, i, e = model.hidden, model.intermediate, model.experts
    out.matrix("ffn_gate_inp.weight", (e, h), 2.0)
    out.experts("ffn_gate_exps", (e, i, h), model.gain, model.gate)
    out.experts("ffn_down_exps", (e, h, i), model.down_gain, model.down)
    out.experts("ffn_up_exps", (e, i, h), model.gain, model.up)
    if model.selection_bias:
        out.vector("exp_probs_b.bias", (e,), 0.3)
    if model.biases:
        out.vector("ffn_gate_inp.bias", (e,), 0.3)
        out.vector("ffn_gate_exps.bias", (e, i), 0.3)
        out.vector("ffn_up_exps.bias", (e, i), 0.3)
        out.vector("ffn_down_exps.bias", (e, h), 0.3)
    if model.shared_intermediate:
        s = model.shared_intermediate
        out.matrix("ffn_gate_shexp.weight", (s, h), 1.5, model.shared_type)
        out.matrix("ffn_up_shexp.weight", (s, h), 1.5, model.shared_type)
        out.matrix("ffn_down_shexp.weight", (h, s), 1.5, model.shared_type)
    if model.shared_gate:
        out.vector("ffn_gate_inp_shexp.weight", (h,), 2.0 / np.sqrt(h))


def write_model(folder, model, rng):
    """The file; returns the decoded values of its last block."""
    writer = gguf.GGUFWriter(folder / "model.gguf", model.arch)
    if model.alignment:
        writer.add_custom_alignment(model.alignment)
    add_keys(writer, model)
    embedding = rng.standard_normal((32, model.hidden)).astype(np.float16)
    writer.add_tensor("token_embd.weight", embedding)
    for layer in range(model.layers):
        out = LayerWriter(writer, rng, layer)
        out.vector("attn_norm.weight", (model.hidden,), 0.1, 1.0)
        out.matrix("attn_output.weight", (model.hidden, 32), 1.0, Type.F16)
        out.vector("ffn_norm.weight", (model.hidden,), 0.1, 1.0)
        (add_dense_layer if layer < model.dense else add_moe_layer)(out, model)
    writer.add_tensor("output_norm.weight", np.ones(model.hidden, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out.values


def expert_weights(values, expert):
    parts = ("gate", "up", "down")
    weights = {part: values[f"ffn_{part}_exps.weight"][expert] for part in parts}
    if "ffn_up_exps.bias" in values:
        weights |= {f"{part}_bias": values[f"ffn_{part}_exps.bias"][expert] for part in parts}
    return weights


def compute(model, values, x, routed):
    shared = None
    if model.shared_intermediate:
        shared = {part: values[f"ffn_{part}_shexp.weight"] for part in ("gate", "up", "down")}
    return routing_reference.moe_layer(
        x.astype(np.float64),
        routed,
        [expert_weights(values, expert) for expert in range(model.experts)],
        getattr(routing_reference, model.activation),
        shared,
        values.get("ffn_gate_inp_shexp.weight"),
        model.weight_on_input,
    )


def choose_input(model, values, rng):
    bias = values.get("exp_probs_b.bias")

    def acceptable(x):
        logits = x.astype(np.float64) @ values["ffn_gate_inp.weight"].T
        logits = logits + values.get("ffn_gate_inp.bias", 0.0)
        routed = routing_reference.route(model.rule, logits, bias)
        if routed.gap < fixture_case.MIN_GAP:
            return None
        matters = routing_reference.every_setting_matters(model.rule, logits, bias, routed.ids)
        return routed if matters else None

    return fixture_case.draw_input(rng, model.tokens, model.hidden, acceptable)


def make(model):
    rng = fixture_case.case_rng(model.name)
    folder = fixture_case.empty_folder(model.name)
    values = write_model(folder, model, rng)
    x, routed = choose_input(model, values, rng)
    y = compute(model, values, x, routed)
    types = "/".join(t.name.lower() for t in (model.gate, model.up, model.down))
    meta = {
        "layer": model.layers - 1,
        "family": model.arch,
        "tool": f"gguf {importlib.metadata.version('gguf')}",
        "y_from": "weights by gguf.quants.dequantize, then llama.cpp's graph of this architecture "
        "written out in numpy float64, rounded to float32 at the end",
        "dtype": "float32",
        "H": model.hidden,
        "I": model.intermediate,
        "E": model.experts,
        "k": model.rule.top_k,
        "format": f"gguf {types}",
        "routing": {
            **{k: v for k, v in dataclasses.asdict(model.rule).items() if k != "top_k"},
            "has_selection_bias": model.selection_bias,
            "has_router_bias": model.biases,
        },
        "notes": model.notes,
    }
    if model.shared_intermediate:
        meta["shared_I"] = model.shared_intermediate
    fixture_case.write_case(folder, meta, x, y, routed.ids, routed.weights)


NORM2 = Rule(2, norm=True)


def qwen3moe(name, gate, up, down, notes, **changes):
    sizes = dict(hidden=64, intermediate=32, experts=4, rule=NORM2)
    arguments = {**sizes, **changes}
    width = {"expert_feed_forward_length": arguments["intermediate"]}
    return Model(
        name, "qwen3moe", gate=gate, up=up, down=down, keys=width, notes=notes, **arguments
    )


def plain_models():
    """qwen3moe and llama: softmax, top-k, normalise; what varies is the types."""
    random = "random block bytes with sane fp16 scales: "
    return [
        qwen3moe("gguf_qwen3moe_f32", Type.F32, Type.F32, Type.F32, "one block"),
        qwen3moe(
            "gguf_qwen3moe_f16_bf16", Type.F16, Type.BF16, Type.F16,
            "general.alignment 64", experts=6, alignment=64, rule=Rule(3, norm=True),
        ),
        qwen3moe(
            "gguf_qwen3moe_q8_0", Type.Q8_0, Type.Q8_0, Type.Q8_0,
            "I is no multiple of 64", experts=5, intermediate=96, rule=Rule(3, norm=True),
        ),
        qwen3moe(
            "gguf_qwen3moe_q4_k", Type.Q4_K, Type.Q4_K, Type.Q4_K,
            random + "gguf-py does not encode K-quants", hidden=256, intermediate=256, tokens=5,
        ),
        Model(
            "gguf_llama_q8_0", "llama", 64, 96, 6, NORM2, Type.Q8_0, Type.Q8_0, Type.Q8_0,
            dense_intermediate=96, keys={"rope_dimension_count": 32},
            notes="mixtral: the expert width is feed_forward_length, there is no expert key for it",
        ),
        qwen3moe(
            "gguf_qwen3moe_mixed", Type.Q8_0, Type.F16, Type.Q4_K,
            "three types in one layer; " + random + "Q4_K", hidden=32, intermediate=256,
        ),
        qwen3moe(
            "gguf_qwen3moe_legacy", Type.Q4_0, Type.Q4_1, Type.Q5_0,
            "gate and up differ in type", intermediate=96,
        ),
        qwen3moe(
            "gguf_qwen3moe_q5_q6_iq4nl", Type.Q5_K, Type.Q6_K, Type.IQ4_NL,
            random + "all three", hidden=256,
        ),
        qwen3moe(
            "gguf_qwen3moe_q2_q3_q5_1", Type.Q2_K, Type.Q3_K, Type.Q5_1,
            random + "Q2_K, Q3_K", hidden=256,
        ),
        qwen3moe(
            "gguf_qwen3moe_nvfp4_iq4xs", Type.NVFP4, Type.IQ4_XS, Type.NVFP4,
            "ffn_*_exps.scale F32 [E] multiplies the NVFP4 values; " + random + "all three",
            hidden=256, intermediate=64, tokens=5,
        ),
        qwen3moe(
            "gguf_qwen3moe_iq2xxs_iq3s", Type.IQ2_XXS, Type.IQ3_S, Type.Q5_0,
            random + "IQ2_XXS, IQ3_S", hidden=256,
        ),
        qwen3moe(
            "gguf_qwen3moe_iq2xs_iq3xxs", Type.IQ2_XS, Type.IQ3_XXS, Type.Q4_1,
            random + "IQ2_XS, IQ3_XXS", hidden=256,
        ),
    ]


def qwen2moe(name="gguf_qwen2moe_shared"):
    return Model(
        name, "qwen2moe", 64, 48, 6, Rule(4), Type.F16, Type.F16, Type.F16,
        shared_intermediate=96, shared_type=Type.Q8_0, shared_gate=True,
        keys={"expert_feed_forward_length": 48, "expert_shared_feed_forward_length": 96},
        notes="softmax without normalisation (no key says so); shared expert times sigmoid(gate)",
    )


def deepseek2(name="gguf_deepseek2_groups"):
    rule = Rule(4, "sigmoid", norm=True, scale=2.5, n_group=4, topk_group=2, group_score="top2_sum")
    return Model(
        name, "deepseek2", 64, 32, 12, rule, Type.Q8_0, Type.Q8_0, Type.Q8_0, layers=2, dense=1,
        shared_intermediate=64, shared_type=Type.Q8_0, selection_bias=True,
        keys={
            "leading_dense_block_count": 1,
            "expert_feed_forward_length": 32,
            "expert_shared_count": 2,
            "expert_weights_scale": 2.5,
            "expert_weights_norm": True,
            "expert_gating_func": gguf.ExpertGatingFuncType.SIGMOID,
            "expert_group_count": 4,
            "expert_group_used_count": 2,
        },
        notes="exp_probs_b.bias only selects; two shared experts are one MLP of width 64",
    )


def gpt_oss(name="gguf_gpt_oss_mxfp4"):
    return Model(
        name, "gpt-oss", 64, 96, 8, Rule(4, "none", "softmax"), Type.MXFP4, Type.MXFP4, Type.MXFP4,
        biases=True, activation="oai_swiglu", gain=3.5, down_gain=0.2,
        keys={"expert_feed_forward_length": 96, "sliding_window": 16},
        notes="router bias, biases of all three matrices, alpha 1.702, clamps at 7 reached, up + 1",
    )


def all_models():
    return [*plain_models(), qwen2moe(), deepseek2(), gpt_oss()]


def gguf_files():
    for model in all_models():
        make(model)


CASES = [gguf_files]
