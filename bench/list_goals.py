"""The goals of the lists of moe-bench other than hopper: which of their cases have one, and what it is. bench/goals.md explains them."""
import sys
from typing import Callable, NamedTuple

from goal_rules import FOUR_BITS, GROUPS, MIDDLE, UNION, Goal, NotMeasured, all_goals, fixed_us, skew_goal

SMALL_BATCH, ANY_MIDDLE, PROMPT = 16, (17, 512), 8192
FACTOR, READ_SHARE, PROMPT_SHARE = 1.3, 0.65, 0.75  # of every packed format
IQ_FACTOR, IQ_PROMPT_SHARE = 2.0, 0.6
MIXED_US, MIXED_FACTOR, LEAST_MIXED = 2.0, 1.15, 64  # gate and up of different formats: one token; from so many tokens on
GRID, SHAPE_FACTOR = 64, 1.15
SIZES = {"intermediate": "intermediate", "hidden": "hidden", "shared_intermediate": "shared expert"}
FP16_FACTOR = 1.03
PORTABLE_FACTOR = 1.15
NEW_MODELS = ("mixtral-8x22b", "qwen2-57b")
KINDS = {
    "GGUF": ("q2_k", "q3_k", "q5_k", "q6_k", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "iq4_xs"),
    "int4, int8, GPTQ, AWQ": ("int4_g32", "int4_g64", "int4_g128", "int4_row", "int8_g32", "int8_g128", "int8_row", "gptq4", "gptq4_g32",
                              "gptq4_row", "gptq8", "awq", "awq_g64"),
    "NF4, FP4": ("nf4", "bnb_fp4"),
    "fp8_tensor, fp8_row, MXFP8": ("fp8_tensor", "fp8_row", "mxfp8"),
    "act-order, `pre_quant_scale`": ("gptq4_any_order", "nvfp4_pre_quant"),
}
MIXES, IQ, DIFFERENT = "mixes by role", "iq2, iq3", "gate and up differ"


def kind_of(form):
    """Which goals a format of the list formats has; None for those that others are compared with."""
    parts = form.split("+")
    if len(parts) == 3:
        return DIFFERENT
    if any(part.startswith(("iq2", "iq3")) for part in parts):
        return IQ
    if len(parts) == 2:
        return MIXES
    return next((kind for kind, forms in KINDS.items() if form in forms), None)


def is_tokens(r, least, most):
    return least <= r["n_tokens"] <= most


def packed_goals(kind, factor, read_share, prompt_share):
    def one(run, r):
        return factor * r["floor_us"] + fixed_us(r)

    def like_bf16(run, r):
        return run.like(r, format="bf16")["us"] / prompt_share

    def goal(regime, formula, holds_for, us):
        return Goal(regime, kind, formula, lambda run, r: kind_of(r["format"]) == kind and holds_for(run, r), us)

    yield goal("T = 1", f"{factor} x floor + b", lambda run, r: r["n_tokens"] == 1, one)
    if read_share:
        yield goal("T = 2 to 16", f"{UNION} x ({factor} x floor + b)", lambda run, r: is_tokens(r, 2, SMALL_BATCH),
                   lambda run, r: UNION * one(run, r))
        yield goal("T = 17 to 512, memory-bound", f"{read_share:.0%} of the read rate",
                   lambda run, r: is_tokens(r, *ANY_MIDDLE) and run.is_memory_bound(r), lambda run, r: r["floor_us"] / read_share)
    yield goal("T = 8192", f"{prompt_share:.0%} of bf16's speed", lambda run, r: r["n_tokens"] == PROMPT, like_bf16)


def fused_us(run, r):
    """The mean of the two cases in which gate and up have one format: together they read as many bytes."""
    gate, up, down = r["format"].split("+")
    names = [one if one == down else f"{one}+{down}" for one in (gate, up)]
    return sum(run.like(r, format=name)["us"] for name in names) / len(names)


def mixed_goals():
    def differs(r):
        return kind_of(r["format"]) == DIFFERENT

    yield Goal("T = 1", DIFFERENT, f"the mean of both fused + {MIXED_US} us", lambda run, r: differs(r) and r["n_tokens"] == 1,
               lambda run, r: fused_us(run, r) + MIXED_US)
    yield Goal(f"T from {LEAST_MIXED}", DIFFERENT, f"{MIXED_FACTOR} x the mean of both fused",
               lambda run, r: differs(r) and r["n_tokens"] >= LEAST_MIXED, lambda run, r: MIXED_FACTOR * fused_us(run, r))


def formats_goals(run):
    for kind in (*KINDS, MIXES):
        yield from packed_goals(kind, FACTOR, READ_SHARE, PROMPT_SHARE)
    yield from packed_goals(IQ, IQ_FACTOR, None, IQ_PROMPT_SHARE)
    yield from mixed_goals()


def next_on_grid(run, r, size):
    """The same case in the layer whose size is rounded up to the grid."""
    wanted = {**r["shape"], size: -(-r["shape"][size] // GRID) * GRID}
    keys = ("format", "mode", "n_tokens", "zipf", "kernels")
    for other in run.results.values():
        if other["shape"] == wanted and all(other[key] == r[key] for key in keys):
            return other
    if not run.failed:
        sys.exit(f"{run.source} lacks the layer whose {size} is {wanted[size]}, which {r['case']} is compared with")
    raise NotMeasured(r["case"])


def shape_goal(size, least, most):
    def is_compared(run, r):
        return r["shape"][size] % GRID != 0 and is_tokens(r, least, most)

    return Goal(f"{SIZES[size]} off the grid of {GRID}, T = {least} to {most}", "all", f"{SHAPE_FACTOR} x the next size on it", is_compared,
                lambda run, r: SHAPE_FACTOR * next_on_grid(run, r, size)["us"])


def of_new_models(goal):
    return goal._replace(regime=f"{' and '.join(NEW_MODELS)}: {goal.regime}",
                         holds_for=lambda run, r: r["model"] in NEW_MODELS and goal.holds_for(run, r))


def with_cases(run, goals):
    """Of goals that belong to another list."""
    return [goal for goal in goals if goal.ratios(run)]


def shapes_goals(run):
    for size in SIZES:
        for tokens in ((1, SMALL_BATCH), (SMALL_BATCH + 1, PROMPT)):
            yield shape_goal(size, *tokens)
    packed = [goal for kind in (*KINDS, MIXES) for goal in packed_goals(kind, FACTOR, READ_SHARE, PROMPT_SHARE)]
    yield from with_cases(run, (of_new_models(goal) for goal in (*all_goals(), *packed)))


def fp16_goals(run):
    for intermediate in ("bf16", "f16"):
        for least, most in ((1, SMALL_BATCH), (SMALL_BATCH + 1, PROMPT)):
            yield Goal(f"float16 x, {intermediate} intermediate, T = {least} to {most}", "all", f"{FP16_FACTOR} x bf16's time",
                       lambda run, r, i=intermediate, t=(least, most): (r["x_type"], r["intermediate_type"]) == ("f16", i) and is_tokens(r, *t),
                       lambda run, r: FP16_FACTOR * run.like(r, x_type="bf16", intermediate_type="bf16")["us"])


def tokens_goals(run):
    return with_cases(run, (*all_goals(), *(skew_goal(group, 2.0) for group in GROUPS[:2])))


class PortableGroup(NamedTuple):
    name: str
    formats: tuple
    read_share: float
    dense_shares: dict  # of a prompt, by model


PORTABLE_GROUPS = (
    PortableGroup("16 bits", ("bf16", "f16"), 0.85, {"mixtral": 0.52, "qwen3-30b": 0.48}),
    PortableGroup("8 bits", ("fp8_128x128", "q8_0"), 0.85, {}),
    PortableGroup("4 bits", (*FOUR_BITS.formats, "q4_k+q6_k", "awq"), 0.7, {"mixtral": 0.5, "qwen3-30b": 0.45}),
)


def experts_us(r):
    """The stage alone: from x and ids to a row for every slot."""
    return next(stage["us"] for stage in r["stages"] if stage["stage"] == "experts")


def portable_goal(group, regime, formula, holds_for, us, **more):
    def is_portable(run, r):
        return bool(r["kernels"]) and r["format"] in group.formats and holds_for(run, r)

    return Goal(regime, group.name, formula, is_portable, us, **more)


def portable_goals(run):
    for group in PORTABLE_GROUPS:
        yield portable_goal(group, "T = 1 to 16", f"{PORTABLE_FACTOR} x Hopper's own kernels", lambda run, r: is_tokens(r, 1, SMALL_BATCH),
                            lambda run, r: PORTABLE_FACTOR * run.like(r, kernels="")["us"])
    for group in PORTABLE_GROUPS:
        yield portable_goal(group, "T = 17 to 512, memory-bound", f"{group.read_share:.0%} of the read rate",
                            lambda run, r: is_tokens(r, *ANY_MIDDLE) and run.is_memory_bound(r),
                            lambda run, r, share=group.read_share: r["floor_us"] / share)
    for group in PORTABLE_GROUPS:
        for model, share in group.dense_shares.items():
            yield portable_goal(group, f"T = 8192, {model}, experts alone", f"{share:.0%} of the dense rate",
                                lambda run, r, model=model: r["model"] == model and r["n_tokens"] == PROMPT and run.dense > 0,
                                lambda run, r, share=share: r["flops"] / (share * run.dense), time=experts_us)


def is_quantized(r):
    return "activation_quantization" in r


def as_given(run, r):
    """The same case with activations as they are given."""
    return run.like({key: value for key, value in r.items() if key != "activation_quantization"}, kernels="")


def fp8_goals(run):
    for name, formats in (("fp8_128x128", ("fp8_128x128",)), ("4 bits", ("nvfp4", "mxfp4", "awq"))):
        for least, most in (*MIDDLE, (513, PROMPT)):
            yield Goal(f"activations in E4M3, T = {least} to {most}", name, "activations as given",
                       lambda run, r, f=formats, t=(least, most): is_quantized(r) and r["format"] in f and is_tokens(r, *t),
                       lambda run, r: as_given(run, r)["us"])
        yield Goal("prompt, activations in E4M3, T = 8192, mixtral", name, "the dense rate of bf16",
                   lambda run, r, f=formats: is_quantized(r) and r["format"] in f and r["model"] == "mixtral" and r["n_tokens"] == PROMPT and run.dense > 0,
                   lambda run, r: r["flops"] / run.dense)


class ListGoals(NamedTuple):
    title: str
    goals: Callable  # run
    not_measured: tuple  # regime, formats, goal: the rows of goals without a result, while there is none


LISTS = {
    "formats": ListGoals("Formats and mixes", formats_goals, (
        ("every packed format, T = 1 and 2 to 16", "GGUF, int4 and int8, nf4, mxfp8, mixes by role", "1.3 x floor + b; 1.15 times that"),
        ("the same, T = 17 to 512 and T = 8192", "GGUF, int4 and int8, nf4, mxfp8", "65% of the read rate; 75% of bf16's speed"),
        ("iq2 and iq3, T = 1 and T = 8192", "iq2, iq3", "2 x floor + b; 60% of bf16's speed"),
        ("gate and up of different formats", "mixes", "T = 1: 2 us more; T from 64: 1.15 x the fused case"))),
    "shapes": ListGoals("Shapes", shapes_goals, (("shapes: I, H and S off the grid of 64", "all", "1.15 x the next size on it"),)),
    "fp16": ListGoals("Activations in float16", fp16_goals, (("fp16 activations", "all", "time within 3% of bf16's"),)),
    "tokens": ListGoals("More numbers of tokens", tokens_goals, (
        ("T = 64, 128, 256, 1024, 2048 and 4096", "all", "as above, and Zipf 2.0"),)),
    "fp8": ListGoals("Activations in E4M3", fp8_goals, (
        ("activations in E4M3, T = 17 to 8192", "fp8_128x128, 4 bits", "activations as given; Mixtral, T = 8192: the dense rate of bf16"),)),
    "portable": ListGoals("Portable kernels on Hopper", portable_goals, (
        ("portable kernels on Hopper, T = 1 to 16", "all", "1.15 x Hopper's own kernels"),
        ("portable kernels on Hopper, T = 17 to 8192", "16, 8 and 4 bits", "85% and 70% of the read rate; 45 to 52% of the dense rate"))),
}
