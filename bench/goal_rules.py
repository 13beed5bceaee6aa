"""A goal is a time that a case must not exceed, made of what the device did in the same run. Here: the results of a run, and the goals of
the models and formats of the list hopper. list_goals.py has those of the other lists."""
import math
import statistics
import sys
from typing import Callable, NamedTuple

LARGE_BYTES, SMALL_US, LARGE_US = 100e6, 2.0, 3.0  # b: below so many bytes of weights, and from there on
UNION, ROUTER_US = 1.15, 3.5  # more than one token; a whole layer
SMALL_BATCH_OVER_ONE = 1.1  # T = 2 to 4: time over floor, relative to one token
SKEW_LIMIT, DENSE_SHARE, BITS_GAIN = 1.02, 0.85, 1.5
LEAST_SKEWED = 8  # tokens: with fewer, popular experts hardly meet


class Group(NamedTuple):
    name: str
    formats: tuple
    factor: float  # a
    read_shares: tuple  # of the read rate, T = 17 to 64 and T = 65 to 512


GROUPS = (
    Group("16 and 8 bits", ("bf16", "fp8_128x128", "q8_0"), 1.05, (0.92, 0.92)),
    Group("4 bits", ("nvfp4", "mxfp4", "q4_k"), 1.15, (0.75, 0.65)),
    Group("kbit3 to kbit5", ("kbit3", "kbit4", "kbit5"), 1.3, (0.65, 0.65)),
    Group("kbit2", ("kbit2",), 1.4, (0.65, 0.65)),
)
FOUR_BITS = GROUPS[1]
FORMATS = [form for group in GROUPS for form in group.formats]
SMALL_BATCHES = ((1, 1), (2, 16))
MIDDLE = ((17, 64), (65, 512))
MODES = {"ids": "from ids", "layer": "whole layer"}
TYPES = (("x", "x_type"), ("intermediate", "intermediate_type"))  # named where they are not bf16
GEMV_LAUNCHES, MOST_LAUNCHES, LAYER_LAUNCHES = 2, 5, 2


class NotMeasured(Exception):
    """What a case is compared with has failed in that run."""


def name_of(r):
    """As moe-bench names it."""
    skew = f"zipf{r['zipf']:.1f}" if r["zipf"] > 0 else "uniform"
    name = f"{r['model']}/{r['format']}/{r['mode']}/T{r['n_tokens']}/{skew}" + ("/unfused" if r.get("unfused") else "")
    for what, key in TYPES:
        name += f"/{what}_{r[key]}" if r.get(key, "bf16") != "bf16" else ""
    name += f"/activations_{r['activation_quantization']}" if "activation_quantization" in r else ""
    return name + (f"/{r['kernels']}" if r.get("kernels") else "")


def is_plain(r):
    """A plan without wishes, in bfloat16."""
    return not r.get("unfused") and not r.get("kernels") and "activation_quantization" not in r and all(r.get(key, "bf16") == "bf16" for _, key in TYPES)


class Run:
    """The results of one file by name, and what the device reached in that run. Of the list hopper plain plans in formats that have a goal;
    of other lists all."""

    def __init__(self, document, source, is_hopper=True):
        self.source = source
        self.failed = {failure.split(": ")[0] for failure in document["failures"]}
        self.points = [(p["bytes"], p["us"]) for p in document["read_floor"]]
        self.dense = document["dense_tflops"] * 1e6  # flops a microsecond
        self.results = {r["case"]: r for r in document["results"] if not is_hopper or is_plain(r)}
        for name, r in self.results.items():
            if is_hopper and r["format"] not in FORMATS:
                sys.exit(f"{source}: {name} is in a format that no goal is for")
            floor_us = max(self.read_us(r), self.multiply_us(r))
            if abs(r["floor_us"] - floor_us) > 1e-6 * floor_us:
                sys.exit(f"{source}: {name} has the floor {r['floor_us']:.3f}, by the rates of the file it is {floor_us:.3f}")

    def read_us(self, r):
        """As read_floor_us of floors.cu."""
        size = r["weight_bytes"]
        if size <= self.points[0][0]:
            return self.points[0][1]
        for (low, low_us), (high, high_us) in zip(self.points, self.points[1:]):
            if size <= high:
                return low_us + (size - low) / (high - low) * (high_us - low_us)
        return self.points[-1][1] * size / self.points[-1][0]

    def multiply_us(self, r):
        return r["flops"] / self.dense if self.dense else 0.0

    def is_memory_bound(self, r):
        return self.read_us(r) >= self.multiply_us(r)

    def like(self, r, **changed):
        """The case that this one is compared with."""
        name = name_of({**r, **changed})
        if name in self.failed:
            raise NotMeasured(name)
        if name not in self.results:
            sys.exit(f"{self.source} lacks {name}, which {r['case']} is compared with")
        return self.results[name]


class Goal(NamedTuple):
    regime: str
    formats: str
    formula: str
    holds_for: Callable  # run, result
    us: Callable  # run, result
    time: Callable = lambda r: r["us"]

    def ratios(self, run):
        found = {}
        for name, r in run.results.items():
            try:
                if self.holds_for(run, r):
                    found[name] = self.time(r) / self.us(run, r)
            except NotMeasured:
                pass
        return found

    def row(self, run):
        ratios = self.ratios(run)
        cells = f"| {self.regime} | {self.formats} | {self.formula} | {len(ratios)} |"
        if not ratios:
            return f"{cells} - | - | - |"
        met, worst = sum(ratio <= 1 for ratio in ratios.values()), max(ratios, key=ratios.get)
        return f"{cells} {met} | {statistics.median(ratios.values()):.2f} | `{worst}` {ratios[worst]:.2f} |"


def fixed_us(r):
    """b."""
    return SMALL_US if r["weight_bytes"] < LARGE_BYTES else LARGE_US


def small_batch_goal(group, least, most, mode):
    def holds_for(run, r):
        return r["mode"] == mode and least <= r["n_tokens"] <= most and r["format"] in group.formats

    factors = [UNION, group.factor] if most > 1 else [group.factor]
    router_us = ROUTER_US if mode == "layer" else 0.0

    def us(run, r):
        return math.prod(factors) * r["floor_us"] + fixed_us(r) + router_us

    tokens = "1" if most == 1 else f"{least} to {most}"
    formula = " x ".join([*map(str, factors), "floor"]) + " + b" + (f" + {router_us} us" if router_us else "")
    return Goal(f"T = {tokens}, {MODES[mode]}", group.name, formula, holds_for, us)


def small_batch_goals():
    return [small_batch_goal(group, *tokens, mode) for tokens in SMALL_BATCHES for mode in MODES for group in GROUPS]


def over_one_token_goal(group):
    """Two to four tokens lie as near to their floor as one token does to its own."""
    def holds_for(run, r):
        return 2 <= r["n_tokens"] <= 4 and r["format"] in group.formats

    def us(run, r):
        one = run.like(r, n_tokens=1)
        return SMALL_BATCH_OVER_ONE * one["us"] / one["floor_us"] * r["floor_us"]

    return Goal("T = 2 to 4, against T = 1", group.name, f"{SMALL_BATCH_OVER_ONE} x time / floor at T = 1", holds_for, us)


def reading_goal(group, least, most, share):
    def holds_for(run, r):
        return least <= r["n_tokens"] <= most and r["format"] in group.formats and run.is_memory_bound(r)

    return Goal(f"T = {least} to {most}, memory-bound", group.name, f"{share:.0%} of the read rate", holds_for,
                lambda run, r: r["floor_us"] / share)


def reading_goals():
    return [reading_goal(group, *tokens, share) for group in GROUPS for tokens, share in zip(MIDDLE, group.read_shares)]


def skew_goal(group, zipf):
    def holds_for(run, r):
        return r["zipf"] == zipf and r["n_tokens"] >= LEAST_SKEWED and r["format"] in group.formats

    return Goal(f"Zipf {zipf}, T from {LEAST_SKEWED}", group.name, f"{SKEW_LIMIT} x uniform", holds_for,
                lambda run, r: SKEW_LIMIT * run.like(r, zipf=0.0)["us"])


def other_goals():
    """Of a prompt, and of the bits of kbit."""
    def is_mixtral(r, form, n_tokens):
        return (r["model"], r["format"], r["n_tokens"]) == ("mixtral", form, n_tokens)

    yield Goal("prompt, Mixtral, T = 8192", "bf16", f"{DENSE_SHARE:.0%} of the dense rate",
               lambda run, r: is_mixtral(r, "bf16", 8192) and run.dense > 0,
               lambda run, r: r["flops"] / (DENSE_SHARE * run.dense))
    yield Goal("prompt, T above 512", FOUR_BITS.name, "the rate of bf16",
               lambda run, r: r["n_tokens"] > 512 and r["format"] in FOUR_BITS.formats,
               lambda run, r: r["flops"] / run.like(r, format="bf16")["tflops"] / 1e6)
    yield Goal("bits, Mixtral, T = 1", "kbit2", f"kbit4 / {BITS_GAIN}", lambda run, r: is_mixtral(r, "kbit2", 1),
               lambda run, r: run.like(r, format="kbit4")["us"] / BITS_GAIN)


def all_goals():
    return [*small_batch_goals(), *map(over_one_token_goal, GROUPS), *reading_goals(), *other_goals(),
            *(skew_goal(group, 1.2) for group in GROUPS)]


def launches_goal(mode):
    """Two launches where the tokens go one by one, five at any number; a whole layer may have two more."""
    more = LAYER_LAUNCHES if mode == "layer" else 0

    def most(run, r):
        return (GEMV_LAUNCHES if "_gemv_" in r["kernel"] else MOST_LAUNCHES) + more

    formula = f"{GEMV_LAUNCHES + more} by gemv kernels, else {MOST_LAUNCHES + more}"
    return Goal(f"launches, {MODES[mode]}", "all", formula, lambda run, r: r["mode"] == mode and "n_launches" in r, most,
                lambda r: r["n_launches"])


def launches_goals(run):
    """Results of earlier schemas count no launches."""
    return [goal for goal in map(launches_goal, MODES) if goal.ratios(run)]
