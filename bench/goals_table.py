"""Puts into docs/performance.md how bench/results/h200.json stands against the goals, or holds the page to it.

usage: goals_table.py <root of the repository> [--write]
A goal is a time that a case must not exceed. Of every regime and group of formats a row; then one and two tokens, case by case.
"""
import json
import math
import pathlib
import statistics
import sys
from typing import Callable, NamedTuple

sys.dont_write_bytecode = True
import marked_block  # noqa: E402

RESULTS = "bench/results/h200.json"
MARKS = ("<!-- goals: written by bench/goals_table.py . --write -->\n", "<!-- end of goals -->\n")
LARGE_BYTES, SMALL_US, LARGE_US = 100e6, 2.0, 3.0  # b: below so many bytes of weights, and from there on
UNION, ROUTER_US = 1.15, 3.5  # more than one token; a whole layer
NOISE, DENSE_SHARE, BITS_GAIN = 1.03, 0.85, 1.5
LEAST_SKEWED = 8  # tokens: with fewer, popular experts hardly meet


class Group(NamedTuple):
    name: str
    formats: tuple
    factor: float  # a
    read_share: float


GROUPS = (
    Group("16 and 8 bits", ("bf16", "fp8_128x128", "q8_0"), 1.05, 0.92),
    Group("4 bits", ("nvfp4", "mxfp4", "q4_k"), 1.15, 0.85),
    Group("kbit3 to kbit5", ("kbit3", "kbit4", "kbit5"), 1.3, 0.65),
    Group("kbit2", ("kbit2",), 1.4, 0.65),
)
FOUR_BITS = GROUPS[1]
FORMATS = [form for group in GROUPS for form in group.formats]
FEW = ((1, 1), (2, 16))
MODES = {"ids": "from ids", "layer": "whole layer"}


def name_of(r):
    skew = f"zipf{r['zipf']:.1f}" if r["zipf"] > 0 else "uniform"
    return f"{r['model']}/{r['format']}/{r['mode']}/T{r['n_tokens']}/{skew}"


class Run:
    """The results of one file: plans without wishes, by name; and what the device reached in that run."""

    def __init__(self, document):
        self.points = [(p["bytes"], p["us"]) for p in document["read_floor"]]
        self.dense = document["dense_tflops"] * 1e6  # flops a microsecond
        self.results = {r["case"]: r for r in document["results"] if not r.get("unfused") and not r.get("kernels")}
        for name, r in self.results.items():
            if r["format"] not in FORMATS:
                sys.exit(f"{RESULTS}: {name} is in a format that no goal is for")
            floor_us = max(self.read_us(r), self.multiply_us(r))
            if abs(r["floor_us"] - floor_us) > 1e-6 * floor_us:
                sys.exit(f"{RESULTS}: {name} has the floor {r['floor_us']:.3f}, by the rates of the file it is {floor_us:.3f}")

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
        if name not in self.results:
            sys.exit(f"{RESULTS} lacks {name}, which {r['case']} is compared with")
        return self.results[name]


class Goal(NamedTuple):
    regime: str
    formats: str
    formula: str
    holds_for: Callable  # run, result
    us: Callable  # run, result

    def ratios(self, run):
        return {name: r["us"] / self.us(run, r) for name, r in run.results.items() if self.holds_for(run, r)}

    def row(self, run):
        ratios = self.ratios(run)
        head = f"| {self.regime} | {self.formats} | {self.formula} | {len(ratios)} |"
        if not ratios:
            return f"{head} - | - | - |"
        met, worst = sum(ratio <= 1 for ratio in ratios.values()), max(ratios, key=ratios.get)
        return f"{head} {met} | {statistics.median(ratios.values()):.2f} | `{worst}` {ratios[worst]:.2f} |"


def few_tokens_goal(group, least, most, mode):
    def holds_for(run, r):
        return r["mode"] == mode and least <= r["n_tokens"] <= most and r["format"] in group.formats

    factors = [UNION, group.factor] if most > 1 else [group.factor]
    router_us = ROUTER_US if mode == "layer" else 0.0

    def us(run, r):
        b = SMALL_US if r["weight_bytes"] < LARGE_BYTES else LARGE_US
        return math.prod(factors) * r["floor_us"] + b + router_us

    tokens = "1" if most == 1 else f"{least} to {most}"
    formula = " x ".join([*map(str, factors), "floor"]) + " + b" + (f" + {router_us} us" if router_us else "")
    return Goal(f"T = {tokens}, {MODES[mode]}", group.name, formula, holds_for, us)


def few_tokens_goals():
    return [few_tokens_goal(group, *tokens, mode) for tokens in FEW for mode in MODES for group in GROUPS]


def reading_goal(group):
    def holds_for(run, r):
        return 17 <= r["n_tokens"] <= 512 and r["format"] in group.formats and run.is_memory_bound(r)

    formula = f"{group.read_share:.0%} of the read rate"
    return Goal("T = 17 to 512, memory-bound", group.name, formula, holds_for, lambda run, r: r["floor_us"] / group.read_share)


def skew_goal(group):
    def holds_for(run, r):
        return r["zipf"] > 0 and r["n_tokens"] >= LEAST_SKEWED and r["format"] in group.formats

    return Goal(f"Zipf, T from {LEAST_SKEWED}", group.name, f"{NOISE} x uniform", holds_for,
                lambda run, r: NOISE * run.like(r, zipf=0.0)["us"])


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
    return [*few_tokens_goals(), *map(reading_goal, GROUPS), *other_goals(), *map(skew_goal, GROUPS)]


def summary(run, goals):
    worst = {}
    for goal in goals:
        for name, ratio in goal.ratios(run).items():
            worst[name] = max(worst.get(name, 0.0), ratio)
    met = sum(ratio <= 1 for ratio in worst.values())
    return f"Of {len(run.results)} cases {len(worst)} have a goal, and {met} meet all of theirs."


def bold_if_met(ratio):
    return f"**{ratio:.2f}**" if ratio <= 1 else f"{ratio:.2f}"


def few_tokens_table(run, n_tokens):
    ratios = {name: ratio for goal in few_tokens_goals() for name, ratio in goal.ratios(run).items()}
    models = list(dict.fromkeys(r["model"] for r in run.results.values()))
    yield f"| T = {n_tokens}: from ids, whole layer | {' | '.join(models)} |"
    yield "|--" * (1 + len(models)) + "|"
    for form in FORMATS:
        names = [[f"{model}/{form}/{mode}/T{n_tokens}/uniform" for mode in MODES] for model in models]
        cells = [", ".join(bold_if_met(ratios[name]) for name in pair if name in ratios) or "-" for pair in names]
        if set(cells) != {"-"}:
            yield f"| {form} | {' | '.join(cells)} |"


def block(document):
    run, goals = Run(document), all_goals()
    lines = [f"{document['device']['name']}, commit {document['commit']}, {document['date'][:10]}: [results](../{RESULTS}). "
             f"{summary(run, goals)}", "",
             "| regime | formats | goal | cases | met | median of time / goal | worst case |", "|--" * 7 + "|"]
    lines += [goal.row(run) for goal in goals]
    for n_tokens in (1, 2):
        lines += ["", *few_tokens_table(run, n_tokens)]
    return "\n".join(lines) + "\n"


def main():
    root = pathlib.Path(sys.argv[1])
    document = json.loads((root / RESULTS).read_text())
    marked_block.put(root / "docs/performance.md", MARKS, block(document), RESULTS, "--write" in sys.argv[2:])


if __name__ == "__main__":
    main()
