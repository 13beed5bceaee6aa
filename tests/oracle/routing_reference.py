"""Routing and expert arithmetic of one MoE layer in numpy float64.

For GGUF cases this is the graph llama.cpp builds, hence where ids, weights and y come from. For
the other cases the tool's own module computes; here only the selection keys are recomputed, so
that near-ties can be rejected and ids be put in a defined order.
"""
import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Rule:
    """How logits become (ids, weights)."""

    top_k: int
    score: str = "softmax"  # over all experts: softmax, sigmoid, sqrtsoftplus, none; or sparsemixer
    post: str = "none"  # over the selected ones: none, softmax or sigmoid
    norm: bool = False
    scale: float = 1.0
    n_group: int = 1
    topk_group: int = 1
    group_score: str = "none"  # max or top2_sum


@dataclasses.dataclass
class Routed:
    ids: np.ndarray  # [T, k], selection key descending
    weights: np.ndarray  # [T, k]
    gap: float  # smallest distance of two keys (or group scores) that decides an id or its order


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def silu(z):
    return z * sigmoid(z)


def keep_groups(rule, keys):
    """-inf for every key outside the best groups; also the gap at the group cut."""
    tokens, experts = keys.shape
    grouped = keys.reshape(tokens, rule.n_group, -1)
    best = np.sort(grouped, axis=-1)[..., ::-1]
    score = best[..., 0] if rule.group_score == "max" else best[..., :2].sum(axis=-1)
    order = np.sort(score, axis=-1)[:, ::-1]
    cut = order[:, rule.topk_group - 1], order[:, rule.topk_group]
    kept = score >= cut[0][:, None]
    mask = np.repeat(kept, experts // rule.n_group, axis=1)
    return np.where(mask, keys, -np.inf), float((cut[0] - cut[1]).min())


def sqrt_softplus(z):
    return np.sqrt(np.logaddexp(0.0, z))


SCORES = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "sqrtsoftplus": sqrt_softplus,
    "none": lambda z: z,
}


def sparsemixer(logits, jitter=0.01):
    """Two experts; the second weight is a softmax without the first. The gap is that of the ids
    and of the thresholds."""
    ids, weights, gap = [], [], np.inf
    left = logits.copy()
    rows = np.arange(len(logits))
    for _ in range(2):
        best = left.argmax(axis=1)
        most = left[rows, best][:, None]
        distance = (most - logits) / np.maximum(np.abs(logits), most) - 2 * jitter
        kept = np.where(distance > 0, -np.inf, left)
        ranked = np.sort(left, axis=1)[:, ::-1]
        inside = np.isfinite(left)
        steps = ranked[:, 0] - ranked[:, 1]
        gap = min(gap, float(steps.min()), float(np.abs(distance[inside]).min()))
        ids.append(best)
        weights.append(softmax(kept)[rows, best])
        left[rows, best] = -np.inf
    return Routed(np.stack(ids, 1).astype(np.int32), np.stack(weights, 1), gap)


def route(rule, logits, selection_bias=None):
    if rule.score == "sparsemixer":
        return sparsemixer(logits)
    scores = SCORES[rule.score](logits)
    keys = scores if selection_bias is None else scores + selection_bias.astype(np.float64)
    gap = np.inf
    if rule.n_group > rule.topk_group:
        keys, gap = keep_groups(rule, keys)
    ids = np.argsort(-keys, axis=-1, kind="stable")
    ranked = np.take_along_axis(keys, ids, axis=-1)[:, : rule.top_k + 1]
    steps = ranked[:, :-1] - ranked[:, 1:]
    gap = min(gap, float(steps.min())) if steps.size else gap
    ids = ids[:, : rule.top_k]
    weights = np.take_along_axis(scores, ids, axis=-1)
    if rule.post == "softmax":
        weights = softmax(weights)
    if rule.post == "sigmoid":
        weights = sigmoid(weights)
    if rule.norm:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return Routed(ids.astype(np.int32), weights * rule.scale, gap)


def route_by_table(rule, logits, table):
    """Token t takes the experts of row t; the logits weigh them."""
    ids = table[: len(logits)]
    weights = np.take_along_axis(SCORES[rule.score](logits), ids, axis=-1)
    if rule.norm:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return Routed(ids, weights * rule.scale, np.inf)


def every_setting_matters(rule, logits, selection_bias, ids):
    """False if ids would be the same without the bias, without groups or with other groups."""
    variants = []
    if selection_bias is not None:
        variants.append((rule, None))
    if rule.n_group > rule.topk_group:
        other = "max" if rule.group_score == "top2_sum" else "top2_sum"
        variants.append((dataclasses.replace(rule, n_group=1, topk_group=1), selection_bias))
        variants.append((dataclasses.replace(rule, group_score=other), selection_bias))
    return not any(np.array_equal(route(r, logits, b).ids, ids) for r, b in variants)


def silu_glu(gate, up):
    return silu(gate) * up


def oai_swiglu(gate, up, alpha=1.702, limit=7.0):
    gate = np.minimum(gate, limit)
    up = np.clip(up, -limit, limit)
    return gate * sigmoid(alpha * gate) * (up + 1.0)


def limited(limit, before):
    """silu_glu whose gate is limited before or after the SiLU, and whose up is limited."""
    def activation(gate, up):
        gate = silu(np.minimum(gate, limit)) if before else np.minimum(silu(gate), limit)
        return gate * np.clip(up, -limit, limit)
    return activation


def gelu_tanh(z):
    return 0.5 * z * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (z + 0.044715 * z**3)))


def gelu_glu(gate, up):
    return gelu_tanh(gate) * up


def relu2(up):
    return np.maximum(up, 0.0) ** 2


def situ(beta, up_beta):
    return lambda gate, up: (
        beta * np.tanh(gate / beta) * sigmoid(gate) * up_beta * np.tanh(up / up_beta))


def rms(z, eps=1e-6):
    return z / np.sqrt((z**2).mean(axis=-1, keepdims=True) + eps)


def ffn(x, w, activation):
    """One expert: w has gate, up [I,H], down [H,I] and perhaps gate_bias, up_bias, down_bias.
    Without a gate the activation takes up alone."""
    if "gate" not in w:
        return activation(x @ w["up"].T) @ w["down"].T
    gate = x @ w["gate"].T + w.get("gate_bias", 0.0)
    up = x @ w["up"].T + w.get("up_bias", 0.0)
    return activation(gate, up) @ w["down"].T + w.get("down_bias", 0.0)


def moe_layer(
    x, routed, experts, activation, shared=None, shared_gate=None, weight_on_input=False
):
    """y[T,H] of the layer; experts is a list of the dictionaries that ffn takes."""
    y = np.zeros_like(x)
    for token, (ids, weights) in enumerate(zip(routed.ids, routed.weights)):
        for expert, weight in zip(ids, weights):
            before, after = (weight, 1.0) if weight_on_input else (1.0, weight)
            y[token] += after * ffn(before * x[token], experts[expert], activation)
    if shared is None:
        return y
    return y + shared_expert(x, shared, activation, shared_gate)


def shared_expert(x, shared, activation, shared_gate=None):
    out = ffn(x, shared, activation)
    return out if shared_gate is None else out * sigmoid(x @ shared_gate)[:, None]
