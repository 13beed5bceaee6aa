"""Small models with random weights, as GGUF files that llama.cpp loads.

    python3 models.py FILE.gguf      one of three layers in float32, with a tokenizer
"""
import sys

import numpy as np

import gguf_file

N_VOCABULARY = 288
# Weights that a type number stands for; ggml quantizes them.
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "q4_K": 12, "q5_K": 13, "q6_K": 14, "iq4_nl": 20, "bf16": 30, "mxfp4": 39,
         "nvfp4": 40}


class Maker:
    """Keys and tensors of a model. Matrices are [rows, columns]; experts' are [experts, rows, columns], of the type that
    is given for their role, and rounded to it also where they are then written in float32. Other matrices but the router's
    are of the type that is given for "dense"."""

    def __init__(self, arch, quantize, formats, as_f32, seed=1):
        self.arch, self.quantize, self.formats, self.as_f32 = arch, quantize, formats, as_f32
        self.random = np.random.default_rng(seed)
        self.keys = {"general.architecture": arch, "tokenizer.ggml.model": "no_vocab"}
        self.tensors = {}
        self.key(vocab_size=N_VOCABULARY)

    def tokenizer(self):
        """For programs that want one: three special tokens, the bytes, and characters."""
        n_characters = N_VOCABULARY - 3 - 256
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)),
                  *(chr(ord("a") + i) for i in range(n_characters))]
        # Types: unknown, control, byte, normal.
        self.keys |= {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
                      "tokenizer.ggml.scores": [0.0] * N_VOCABULARY,
                      "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * n_characters}

    def key(self, **values):
        self.keys |= {f"{self.arch}.{name.replace('__', '.')}": value for name, value in values.items()}

    def norm(self, name, n):
        self.tensors[name] = gguf_file.float_tensor(1 + 0.1 * self.random.standard_normal(n))

    def vector(self, name, *shape, scale=0.1):
        self.tensors[name] = gguf_file.float_tensor(scale * self.random.standard_normal(shape))

    def positive(self, name, n):
        self.tensors[name] = gguf_file.float_tensor(np.exp(0.3 * self.random.standard_normal(n)))

    def matrix(self, name, *shape, scale=1.0):
        values = scale * self.random.standard_normal(shape) / np.sqrt(shape[-1])
        kind = "f32" if "ffn_gate_inp" in name else self.formats.get("dense", "f32")
        self.store(name, kind, values.astype(np.float32))

    def store(self, name, kind, values):
        data, rounded = self.quantize(kind, values)
        is_float = self.as_f32 or kind == "f32"
        self.tensors[name] = gguf_file.float_tensor(rounded) if is_float else (TYPES[kind], values.shape[::-1], data)

    def experts(self, name, role, *shape):
        values = (self.random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        self.store(name, self.formats.get(role, self.formats.get("all", "f32")), values)

    def ends(self, hidden):
        self.matrix("token_embd.weight", N_VOCABULARY, hidden, scale=np.sqrt(hidden))
        self.norm("output_norm.weight", hidden)
        self.matrix("output.weight", N_VOCABULARY, hidden)

    def attention(self, i, hidden, heads, kv_heads, head):
        self.norm(f"blk.{i}.attn_norm.weight", hidden)
        self.matrix(f"blk.{i}.attn_q.weight", heads * head, hidden)
        self.matrix(f"blk.{i}.attn_k.weight", kv_heads * head, hidden)
        self.matrix(f"blk.{i}.attn_v.weight", kv_heads * head, hidden)
        self.matrix(f"blk.{i}.attn_output.weight", hidden, heads * head)

    def sizes(self, layers, hidden, intermediate, heads, kv_heads, head, experts, top_k):
        self.key(block_count=layers, context_length=512, embedding_length=hidden, feed_forward_length=intermediate,
                 attention__head_count=heads, attention__head_count_kv=kv_heads, attention__layer_norm_rms_epsilon=1e-6,
                 rope__freq_base=10000.0, rope__dimension_count=head, expert_count=experts, expert_used_count=top_k)

    # Routing scores that are far from each other.
    def router(self, i, hidden, experts):
        self.matrix(f"blk.{i}.ffn_gate_inp.weight", experts, hidden, scale=2.0)

    def gate_up_down(self, i, hidden, intermediate, experts):
        self.experts(f"blk.{i}.ffn_gate_exps.weight", "gate", experts, intermediate, hidden)
        self.experts(f"blk.{i}.ffn_up_exps.weight", "up", experts, intermediate, hidden)
        self.experts(f"blk.{i}.ffn_down_exps.weight", "down", experts, hidden, intermediate)

    def block(self, i, hidden, intermediate, experts, heads=4, kv_heads=2, head=64):
        """A layer of attention and experts."""
        self.attention(i, hidden, heads, kv_heads, head)
        self.norm(f"blk.{i}.ffn_norm.weight", hidden)
        self.router(i, hidden, experts)
        self.gate_up_down(i, hidden, intermediate, experts)

    def write(self, path):
        gguf_file.write(path, self.keys, self.tensors)


def qwen3moe(m, layers=3, hidden=256, intermediate=256, experts=8, top_k=3, heads=4, kv_heads=2, head=64, has_scales=False):
    m.sizes(layers, hidden, intermediate, heads, kv_heads, head, experts, top_k)
    m.key(expert_feed_forward_length=intermediate, attention__key_length=head, attention__value_length=head)
    m.ends(hidden)
    for i in range(layers):
        m.block(i, hidden, intermediate, experts, heads, kv_heads, head)
        m.norm(f"blk.{i}.attn_q_norm.weight", head)
        m.norm(f"blk.{i}.attn_k_norm.weight", head)
        for role in ("gate", "up", "down") if has_scales else ():
            m.positive(f"blk.{i}.ffn_{role}_exps.scale", experts)
    return layers


def mixtral(m, layers=3, hidden=256, intermediate=512, experts=8, top_k=2):
    m.sizes(layers, hidden, intermediate, 4, 2, 64, experts, top_k)
    m.ends(hidden)
    for i in range(layers):
        m.block(i, hidden, intermediate, experts)
    return layers


def gpt_oss(m, layers=3, hidden=256, intermediate=256, experts=8, top_k=4, heads=4, kv_heads=2):
    m.sizes(layers, hidden, intermediate, heads, kv_heads, 64, experts, top_k)
    m.key(expert_feed_forward_length=intermediate, attention__sliding_window=128, attention__key_length=64,
          attention__value_length=64)
    m.ends(hidden)
    for i in range(layers):
        m.attention(i, hidden, heads, kv_heads, 64)
        m.norm(f"blk.{i}.post_attention_norm.weight", hidden)
        for name, n in (("attn_q", 64 * heads), ("attn_k", 64 * kv_heads), ("attn_v", 64 * kv_heads), ("attn_output", hidden)):
            m.vector(f"blk.{i}.{name}.bias", n)
        m.vector(f"blk.{i}.attn_sinks.weight", heads)
        m.router(i, hidden, experts)
        m.vector(f"blk.{i}.ffn_gate_inp.bias", experts)
        m.gate_up_down(i, hidden, intermediate, experts)
        m.vector(f"blk.{i}.ffn_gate_exps.bias", experts, intermediate)
        m.vector(f"blk.{i}.ffn_up_exps.bias", experts, intermediate)
        m.vector(f"blk.{i}.ffn_down_exps.bias", experts, hidden)
    return layers


def deepseek2(m, layers=4, hidden=256, intermediate=256, experts=16, top_k=4, is_merged=False):
    """A dense layer first, a shared expert, sigmoid scores with a selection bias, latent attention."""
    heads, latent, rope, nope, value, q_latent = 4, 64, 32, 64, 64, 96
    m.sizes(layers, hidden, 512, heads, 1, rope, experts, top_k)
    m.key(expert_feed_forward_length=intermediate, leading_dense_block_count=1, expert_shared_count=1,
          expert_weights_scale=1.5, expert_weights_norm=True, expert_gating_func=2, attention__q_lora_rank=q_latent,
          attention__kv_lora_rank=latent, attention__key_length=latent + rope, attention__value_length=latent,
          attention__key_length_mla=nope + rope, attention__value_length_mla=value)
    m.ends(hidden)
    for i in range(layers):
        m.norm(f"blk.{i}.attn_norm.weight", hidden)
        m.norm(f"blk.{i}.attn_q_a_norm.weight", q_latent)
        m.norm(f"blk.{i}.attn_kv_a_norm.weight", latent)
        m.matrix(f"blk.{i}.attn_q_a.weight", q_latent, hidden)
        m.matrix(f"blk.{i}.attn_q_b.weight", heads * (nope + rope), q_latent)
        m.matrix(f"blk.{i}.attn_kv_a_mqa.weight", latent + rope, hidden)
        m.matrix(f"blk.{i}.attn_k_b.weight", heads, latent, nope)
        m.matrix(f"blk.{i}.attn_v_b.weight", heads, value, latent)
        m.matrix(f"blk.{i}.attn_output.weight", hidden, heads * value)
        m.norm(f"blk.{i}.ffn_norm.weight", hidden)
        shared = "" if i == 0 else "_shexp"
        width = 512 if i == 0 else intermediate
        m.matrix(f"blk.{i}.ffn_gate{shared}.weight", width, hidden)
        m.matrix(f"blk.{i}.ffn_up{shared}.weight", width, hidden)
        m.matrix(f"blk.{i}.ffn_down{shared}.weight", hidden, width)
        if i == 0:
            continue
        m.router(i, hidden, experts)
        m.vector(f"blk.{i}.exp_probs_b.bias", experts)
        if is_merged:
            m.experts(f"blk.{i}.ffn_gate_up_exps.weight", "gate", experts, 2 * intermediate, hidden)
            m.experts(f"blk.{i}.ffn_down_exps.weight", "down", experts, hidden, intermediate)
        else:
            m.gate_up_down(i, hidden, intermediate, experts)
    return layers - 1


def llama4(m, layers=4, hidden=256, intermediate=256, experts=8):
    """One expert for a token, whose weight multiplies its input; a shared expert. Every fourth layer has no positions."""
    m.sizes(layers, hidden, intermediate, 4, 2, 64, experts, 1)
    m.key(expert_feed_forward_length=intermediate, interleave_moe_layer_step=1, attention__key_length=64,
          attention__value_length=64)
    m.ends(hidden)
    for i in range(layers):
        m.block(i, hidden, intermediate, experts)
        m.matrix(f"blk.{i}.ffn_gate_shexp.weight", intermediate, hidden)
        m.matrix(f"blk.{i}.ffn_up_shexp.weight", intermediate, hidden)
        m.matrix(f"blk.{i}.ffn_down_shexp.weight", hidden, intermediate)
    return layers


ARCHITECTURES = {"qwen3moe": (qwen3moe, "qwen3moe"), "mixtral": (mixtral, "llama"), "gpt-oss": (gpt_oss, "gpt-oss"),
                 "deepseek2": (deepseek2, "deepseek2"), "llama4": (llama4, "llama4")}


def make(path, name, quantize, formats, as_f32=False, has_tokenizer=False, **sizes):
    """Writes a model; answers how many of its layers have experts."""
    build, arch = ARCHITECTURES[name]
    maker = Maker(arch, quantize, formats, as_f32)
    if has_tokenizer:
        maker.tokenizer()
    n_layers = build(maker, **sizes)
    maker.write(path)
    return n_layers


if __name__ == "__main__":
    make(sys.argv[1], "qwen3moe", lambda kind, values: (values.tobytes(), values), {}, has_tokenizer=True)
