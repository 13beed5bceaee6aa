"""Small random transformers models: filled, saved, loaded again in fp32, one MoE block run."""
import numpy as np
import torch
import transformers

import fixture_case
import routing_reference

transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)  # the last bits of y depend on it

BF16_NOTE = "the file's bf16 weights widened to fp32, the module run in fp32 (eager experts)"
PARTS = ("gate", "up", "down")


def gain(name):
    """Times 1/sqrt(fan in): logits spread, gate and up that reach the clamps, y of order 1."""
    if name.endswith(("mlp.gate.weight", "router.weight", "shared_expert_gate.weight")):
        return 2.0
    return 1.5


def fill(model, rng, expert_gain=1.5, down_gain=1.5, transposed_experts=False):
    """Random values in every tensor; what is optional must not stay at its default of zero."""
    state = model.state_dict()
    for name in sorted(state):
        tensor = state[name]
        values = rng.standard_normal(tuple(tensor.shape))
        if name.endswith("norm.weight"):
            values = 1.0 + 0.1 * values
        elif tensor.dim() < 2 or name.endswith("_bias"):
            values = 0.3 * values
        else:
            expert = ".experts." in name
            fan_in = tensor.shape[-2 if expert and transposed_experts else -1]
            expert_gains = down_gain if "down_proj" in name else expert_gain
            values *= (expert_gains if expert else gain(name)) / np.sqrt(fan_in)
        tensor.copy_(torch.from_numpy(values.astype(np.float32)))


def new_model(config, rng, **fill_args):
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):  # from_config rounds it, from_pretrained not
            buffer.data = buffer.data.float()
    with torch.no_grad():
        fill(model, rng, **fill_args)
    return model


def load_fp32(folder, **args):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, experts_implementation="eager", **args
    )
    return model.eval()


def router_logits(block, x):
    """In float64, from the block's own router weights; (logits, selection bias or None)."""
    router = getattr(block, "gate", None) or block.router
    logits = x.astype(np.float64) @ router.weight.detach().double().numpy().T
    if getattr(router, "bias", None) is not None:
        logits = logits + router.bias.detach().double().numpy()
    bias = getattr(router, "e_score_correction_bias", None)
    return logits, None if bias is None else bias.numpy()


def choose_input(block, rule, rng, tokens, hidden):
    """An x without near-ties on which the bias and the groups, where there are any, matter."""

    def acceptable(x):
        logits, bias = router_logits(block, x)
        routed = routing_reference.route(rule, logits, bias)
        if routed.gap < fixture_case.MIN_GAP:
            return None
        matters = routing_reference.every_setting_matters(rule, logits, bias, routed.ids)
        return routed if matters else None

    return fixture_case.draw_input(rng, tokens, hidden, acceptable)


def run_block(block, x, expected):
    """(y, ids, weights) of the module; ids and weights are those its experts were called with."""
    seen = {}

    def record(_module, args):
        seen["ids"], seen["weights"] = args[1].numpy(), args[2].detach().numpy()

    handle = block.experts.register_forward_pre_hook(record)
    with torch.no_grad():
        y = block(torch.from_numpy(x)[None])
    handle.remove()
    y = (y[0] if isinstance(y, tuple) else y).reshape(x.shape).numpy()
    pairs = zip(seen["ids"].tolist(), expected.ids)
    position = np.array([[row.index(i) for i in want] for row, want in pairs])
    weights = np.take_along_axis(seen["weights"], position, axis=1)
    assert np.allclose(weights, expected.weights, rtol=1e-5), "the rule in the script is wrong"
    return y, expected.ids, weights


def mlp_weights(mlp):
    return {p: getattr(mlp, f"{p}_proj").weight.detach().double().numpy() for p in PARTS}


def expert_weights(experts):
    """The block's experts as the dictionaries of routing_reference.ffn."""
    tensors = {n: p.detach().double().numpy() for n, p in experts.named_parameters()}
    gate_up, down = tensors["gate_up_proj"], tensors["down_proj"]
    if "gate_up_proj_bias" not in tensors:
        return [dict(zip(PARTS, (*np.split(g, 2), d))) for g, d in zip(gate_up, down)]
    bias, down_bias = tensors["gate_up_proj_bias"], tensors["down_proj_bias"]
    names = (*PARTS, "gate_bias", "up_bias", "down_bias")
    return [
        dict(zip(names, (g[:, 0::2].T, g[:, 1::2].T, d.T, b[0::2], b[1::2], db)))
        for g, d, b, db in zip(gate_up, down, bias, down_bias)
    ]


def check_against_numpy(block, x, expected, y):
    """The module and the float64 arithmetic that the GGUF cases rest on must agree."""
    shared = getattr(block, "shared_expert", None) or getattr(block, "shared_experts", None)
    shared_gate = getattr(block, "shared_expert_gate", None)
    oai = hasattr(block.experts, "limit")
    want = routing_reference.moe_layer(
        x.astype(np.float64),
        expected,
        expert_weights(block.experts),
        routing_reference.oai_swiglu if oai else routing_reference.silu_glu,
        None if shared is None else mlp_weights(shared),
        None if shared_gate is None else shared_gate.weight.detach().double().numpy()[0],
    )
    error = np.linalg.norm(y - want, axis=1) / np.linalg.norm(want, axis=1)
    assert error.max() < 2e-6, f"module and numpy differ by {error.max():.1e}"


def routing_facts(block, rule):
    router = getattr(block, "gate", None) or block.router
    return {
        "score": rule.score,
        "post": rule.post,
        "norm": rule.norm,
        "scale": rule.scale,
        "n_group": rule.n_group,
        "topk_group": rule.topk_group,
        "group_score": rule.group_score,
        "has_selection_bias": hasattr(router, "e_score_correction_bias"),
        "has_router_bias": getattr(router, "bias", None) is not None,
    }


def finish_case(folder, model, layer, rule, rng, tokens, meta):
    """Run layer's block of an fp32 model on a chosen x and write the case."""
    block = model.model.layers[layer].mlp
    hidden = model.config.hidden_size
    x, expected = choose_input(block, rule, rng, tokens, hidden)
    y, ids, weights = run_block(block, x, expected)
    check_against_numpy(block, x, expected, y)
    sizes = {"H": hidden, "E": int(router_logits(block, x)[0].shape[1]), "k": rule.top_k}
    full = {
        "layer": layer,
        "tool": f"transformers {transformers.__version__}",
        "y_from": f"{type(block).__name__} of transformers: {BF16_NOTE}",
        "dtype": "float32",
        "family": model.config.model_type,
        **sizes,
        "routing": routing_facts(block, rule),
    }
    fixture_case.write_case(folder, {**full, **meta}, x, y, ids, weights)
