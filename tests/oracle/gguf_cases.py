"""GGUF files by the gguf package's writer; y in float64 from the values gguf.quants decodes.

The MoE tensors and the keys are those of a converted model; attention is a stub, so llama.cpp
itself would not run these files.
"""
import dataclasses
import importlib.metadata
from collections.abc import Callable

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
    bias_name: str = "exp_probs_b.bias"
    activation: str | Callable = "silu_glu"
    shared_activation: str | Callable | None = None  # None: as the experts
    gated: bool = True
    merged: bool = False  # gate above up in one stack of experts
    shared_merged: bool = False
    latent: int = 0
    latent_names: tuple = ()  # in, out and the norm between them, or two
    expert_scale: bool = False  # a factor for what every expert gives
    expert_types: tuple = ()  # of files with a tensor for each expert, in turn
    router_norm: bool = False  # the router sees an RMS norm of x, over sqrt(hidden)
    mean: bool = False  # of the experts and the shared expert
    vocabulary: int = 0  # experts by a table of token ids
    blocks: int = 0  # block_count, where the file has fewer
    weight_on_input: bool = False
    gain: float = 1.5
    down_gain: float = 1.5
    tokens: int = 7
    keys: dict = dataclasses.field(default_factory=dict)  # further GGUFWriter.add_<key>(value)
    plain: dict = dataclasses.field(default_factory=dict)  # keys that the writer has no method for
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
    writer.add_block_count(model.blocks or model.layers)
    writer.add_feed_forward_length(model.dense_intermediate)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(model.experts)
    if "expert_used_count" not in model.plain:
        writer.add_expert_used_count(model.rule.top_k)
    for key, value in model.keys.items():
        getattr(writer, f"add_{key}")(value)
    adders = {int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}
    for key, value in model.plain.items():
        adders[type(value)](f"{model.arch}.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(32)])


def add_dense_layer(out, model):
    wide = model.dense_intermediate
    out.matrix("ffn_gate.weight", (wide, model.hidden), 1.0, Type.F16)
    out.matrix("ffn_down.weight", (model.hidden, wide), 1.0, Type.F16)
    out.matrix("ffn_up.weight", (wide, model.hidden), 1.0, Type.F16)


def add_parts(out, model):
    """What few architectures have."""
    if model.latent:
        enter, leave, *norm = model.latent_names
        out.matrix(f"{enter}.weight", (model.latent, model.hidden), 1.0, model.up)
        out.matrix(f"{leave}.weight", (model.hidden, model.latent), 1.5, model.up)
        for name in norm:
            out.vector(f"{name}.weight", (model.latent,), 0.2, 1.0)
    if model.expert_scale:
        out.vector("ffn_down_exps.scale", (model.experts,), 0.2, 1.0)
    if model.router_norm:
        out.vector("ffn_gate_inp.scale", (model.hidden,), 0.2, 1.0)
    if model.vocabulary:
        ids = [out.rng.permutation(model.experts) for _ in range(model.vocabulary)]
        table = np.array(ids)[:, : model.rule.top_k].astype(np.int32)
        out.writer.add_tensor(f"blk.{out.layer}.ffn_gate_tid2eid.weight", table)
        out.values["table"] = table


def add_stacks(out, model):
    i, e, f = model.intermediate, model.experts, model.latent or model.hidden
    if model.gated and not model.merged:
        out.experts("ffn_gate_exps", (e, i, f), model.gain, model.gate)
    out.experts("ffn_down_exps", (e, f, i), model.down_gain, model.down)
    up, rows = ("ffn_gate_up_exps", 2 * i) if model.merged else ("ffn_up_exps", i)
    out.experts(up, (e, rows, f), model.gain, model.up)


def add_single_experts(out, model):
    """As files of 2023 have them; gate, up and down of an expert differ in type, too."""
    h, i = model.hidden, model.intermediate
    for turn, (part, shape) in enumerate({"gate": (i, h), "up": (i, h), "down": (h, i)}.items()):
        names = [f"ffn_{part}.{expert}.weight" for expert in range(model.experts)]
        gain = model.down_gain if part == "down" else model.gain
        for expert, name in enumerate(names):
            kind = model.expert_types[(expert + turn) % len(model.expert_types)]
            out.matrix(name, shape, gain, kind)
        out.values[f"ffn_{part}_exps.weight"] = np.stack([out.values[name] for name in names])


def add_moe_layer(out, model):
    h, i, e = model.hidden, model.intermediate, model.experts
    out.matrix("ffn_gate_inp.weight", (e, h), 2.0 * (np.sqrt(h) if model.router_norm else 1.0))
    (add_single_experts if model.expert_types else add_stacks)(out, model)
    add_parts(out, model)
    if model.selection_bias:
        out.vector(model.bias_name, (e,), 0.3)
    if model.biases:
        out.vector("ffn_gate_inp.bias", (e,), 0.3)
        out.vector("ffn_gate_exps.bias", (e, i), 0.3)
        out.vector("ffn_up_exps.bias", (e, i), 0.3)
        out.vector("ffn_down_exps.bias", (e, h), 0.3)
    if model.shared_intermediate:
        s = model.shared_intermediate
        if model.gated and not model.shared_merged:
            out.matrix("ffn_gate_shexp.weight", (s, h), 1.5, model.shared_type)
        rows = 2 * s if model.shared_merged else s
        out.matrix("ffn_up_shexp.weight", (rows, h), 1.5, model.shared_type)
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


PARTS = ("gate", "up", "down")


def mlp(values, names):
    """The matrices of gate, up and down under their names; gate and up may be one, gate absent."""
    gate_up, gate, up, down = (values.get(name) for name in names)
    if gate_up is not None:
        gate, up = np.split(gate_up, 2, axis=-2)
    found = {"gate": gate, "up": up, "down": down}
    return {part: value for part, value in found.items() if value is not None}


def expert_weights(values):
    """One dictionary for each expert."""
    names = [f"ffn_{part}_exps" for part in ("gate_up", *PARTS)]
    stacks = mlp(values, [f"{name}.weight" for name in names])
    if "ffn_up_exps.bias" in values:
        stacks |= {f"{part}_bias": values[f"ffn_{part}_exps.bias"] for part in PARTS}
    return [dict(zip(stacks, parts)) for parts in zip(*stacks.values())]


def shared_weights(model, values):
    merged = "ffn_up_shexp.weight" if model.shared_merged else None
    up = None if model.shared_merged else "ffn_up_shexp.weight"
    return mlp(values, [merged, "ffn_gate_shexp.weight", up, "ffn_down_shexp.weight"])


def activation_of(name):
    return name if callable(name) else getattr(routing_reference, name)


def compute(model, values, x, routed):
    x = x.astype(np.float64)
    experts, activation = expert_weights(values), activation_of(model.activation)
    inner = x
    if model.latent:
        inner = x @ values[f"{model.latent_names[0]}.weight"].T
    y = routing_reference.moe_layer(
        inner, routed, experts, activation, weight_on_input=model.weight_on_input)
    if model.latent:
        for name in model.latent_names[2:]:
            y = routing_reference.rms(y) * values[f"{name}.weight"]
        y = y @ values[f"{model.latent_names[1]}.weight"].T
    if not model.shared_intermediate:
        return y
    own = activation_of(model.shared_activation or model.activation)
    y = y + routing_reference.shared_expert(
        x, shared_weights(model, values), own, values.get("ffn_gate_inp_shexp.weight"))
    return y / 2 if model.mean else y


def choose_input(model, values, rng):
    bias = values.get(model.bias_name)

    def acceptable(x):
        seen = x.astype(np.float64)
        if model.router_norm:
            seen = routing_reference.rms(seen) * values["ffn_gate_inp.scale"]
            seen /= np.sqrt(model.hidden)
        logits = seen @ values["ffn_gate_inp.weight"].T
        logits = logits + values.get("ffn_gate_inp.bias", 0.0)
        if "table" in values:
            return routing_reference.route_by_table(model.rule, logits, values["table"])
        routed = routing_reference.route(model.rule, logits, bias)
        if routed.gap < fixture_case.MIN_GAP:
            return None
        matters = routing_reference.every_setting_matters(model.rule, logits, bias, routed.ids)
        if model.expert_scale:
            routed.weights *= values["ffn_down_exps.scale"][routed.ids]
        return routed if matters else None

    return fixture_case.draw_input(rng, model.tokens, model.hidden, acceptable)


def make(model):
    rng = fixture_case.case_rng(model.name)
    folder = fixture_case.empty_folder(model.name)
    values = write_model(folder, model, rng)
    x, routed = choose_input(model, values, rng)
    y = compute(model, values, x, routed)
    types = "/".join(t.name.lower() for t in (model.gate, model.up, model.down))
    if model.expert_types:
        types = "mixed " + "/".join(t.name.lower() for t in model.expert_types)
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
            # The table's order is not that of the weights either.
            "has_selection_bias": model.selection_bias or bool(model.vocabulary),
            "has_router_bias": model.biases,
        },
        "notes": model.notes,
    }
    if model.shared_intermediate:
        meta["shared_I"] = model.shared_intermediate
    fixture_case.write_case(folder, meta, x, y, routed.ids, routed.weights)
    if model.vocabulary:  # token t has the id t
        np.save(folder / "tokens.npy", np.arange(model.tokens, dtype=np.int32))


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
