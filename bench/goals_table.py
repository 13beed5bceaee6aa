"""Puts into bench/goals.md how the results stand against the goals, or holds the page to them.

usage: goals_table.py <root of the repository> [--write]
A goal is a time that a case must not exceed. The page has a row for every regime and group of formats, one for every peer that was measured
in another run, and one for every goal that has no result; then one and two tokens, case by case. Zipf 2.0 is from study-skew.json.
"""
import json
import math
import pathlib
import statistics
import sys
from typing import Callable, NamedTuple

sys.dont_write_bytecode = True
import marked_block  # noqa: E402

PAGE, RESULTS = "bench/goals.md", "bench/results/h200.json"
SKEW, PEERS, OUTSIDE = "bench/results/study-skew.json", "bench/results/peers.json", "bench/outside.json"
MARKS = ("<!-- goals: written by bench/goals_table.py . --write -->\n", "<!-- end of goals -->\n")
OTHER_CARD = "bench/results/h100.json"
OTHER_MARKS = ("<!-- other card: written by bench/goals_table.py . --write -->\n", "<!-- end of other card -->\n")
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
NOT_MEASURED = (
    ("T = 17 to 512", "bf16", "no slower than vLLM's Triton kernel with its align and router", "the peer's align and router were not timed"),
    ("T = 17 to 512, fp8 activations", "4 bits", "no slower than Humming MXFP4 x fp8", "libmoe has no fp8 activations"),
    ("prompt, fp8 x fp8, T = 2048 and 8192", "fp8", "no slower than DeepGEMM fp8's two GEMMs", "libmoe has no fp8 activations"),
    ("prompt, 4-bit x fp8", "4 bits", "no slower than Humming MXFP4 x fp8", "libmoe has no fp8 activations"),
    ("fp16 activations", "all", "time within 3% of bf16's", "no case"),
    ("every packed format, T = 1 and 2 to 16", "GGUF, int4 and int8, nf4, mxfp8, mixes by role", "1.3 x floor + b; 1.15 times that", "no case"),
    ("the same, T = 17 to 512 and T = 8192", "GGUF, int4 and int8, nf4, mxfp8", "65% of the read rate; 75% of bf16's speed", "no case"),
    ("iq2 and iq3, T = 1 and T = 8192", "iq2, iq3", "2 x floor + b; 60% of bf16's speed", "no case"),
    ("gate and up of different formats", "mixes", "T = 1: 2 us more; T from 64: 1.15 x the fused case", "no case"),
    ("shapes: every legal I, H, S, L", "all", "1.15 x the next size on the 64 grid", "no case"),
    ("portable kernels on Hopper, T = 1 to 16", "all", "1.15 x Hopper's own kernels", "no case"),
    ("portable kernels on Hopper, T = 17 to 8192", "16, 8 and 4 bits", "85% and 70% of the read rate; 45 to 52% of the dense rate", "no case"),
    ("launches", "all", "from ids 2 at T <= 16, 5 at any T; a whole layer 2 more", "the benchmark counts none"),
    ("memory", "all", "packed bytes 1.02 x the format's own + 1 MB; load peak one expert more", "the benchmark records none"),
    ("load", "all", "70% of the slower of file read and copy to the device", "no result file; [load.md](notes/load.md) has figures"),
    ("CPU, T = 1 to 512, and inside llama.cpp", "all", "faster than ggml and ik_llama.cpp", "no result file"),
)


def name_of(r):
    skew = f"zipf{r['zipf']:.1f}" if r["zipf"] > 0 else "uniform"
    return f"{r['model']}/{r['format']}/{r['mode']}/T{r['n_tokens']}/{skew}"


class Run:
    """The results of one file: plans without wishes, by name; and what the device reached in that run."""

    def __init__(self, document, source=RESULTS):
        self.source = source
        self.points = [(p["bytes"], p["us"]) for p in document["read_floor"]]
        self.dense = document["dense_tflops"] * 1e6  # flops a microsecond
        self.results = {r["case"]: r for r in document["results"] if not r.get("unfused") and not r.get("kernels")}
        for name, r in self.results.items():
            if r["format"] not in FORMATS:
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
        if name not in self.results:
            sys.exit(f"{self.source} lacks {name}, which {r['case']} is compared with")
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
        cells = f"| {self.regime} | {self.formats} | {self.formula} | {len(ratios)} |"
        if not ratios:
            return f"{cells} - | - | - |"
        met, worst = sum(ratio <= 1 for ratio in ratios.values()), max(ratios, key=ratios.get)
        return f"{cells} {met} | {statistics.median(ratios.values()):.2f} | `{worst}` {ratios[worst]:.2f} |"


def small_batch_goal(group, least, most, mode):
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


def summary(run, goals):
    worst = {}
    for goal in goals:
        for name, ratio in goal.ratios(run).items():
            worst[name] = max(worst.get(name, 0.0), ratio)
    met = sum(ratio <= 1 for ratio in worst.values())
    return f"Of {len(run.results)} cases {len(worst)} have a goal, and {met} meet all of theirs."


class PeerGoal(NamedTuple):
    """Of a peer that ran in another run: it is shown, and never counts as met."""
    regime: str
    peers: tuple
    formats: tuple
    tokens: tuple  # least, most

    def ratios(self, run, others):
        for r in others:
            case = run.results.get(f"{r['model']}/{r['format']}/ids/T{r['n_tokens']}/uniform")
            is_asked = r["peer"] in self.peers and r["format"] in self.formats and self.tokens[0] <= r["n_tokens"] <= self.tokens[1]
            if is_asked and case:
                yield f"{case['case']}", case["us"] / r["us"]

    def row(self, run, others):
        ratios, words = dict(self.ratios(run, others)), ", ".join(self.formats)
        if not ratios:
            return f"| {self.regime} | {words} | {self.peers[0]} | 0 | - | not measured | - |"
        worst, faster = max(ratios, key=ratios.get), sum(ratio <= 1 for ratio in ratios.values())
        return (f"| {self.regime} | {words} | {self.peers[0]} | {len(ratios)} | {faster} | {statistics.median(ratios.values()):.2f} | "
                f"`{worst}` {ratios[worst]:.2f} |")


PEER_GOALS = (
    PeerGoal("T = 1", ("ggml CUDA",), ("nvfp4", "mxfp4", "q4_k"), (1, 1)),
    PeerGoal("T = 2 to 16", ("ggml CUDA",), ("nvfp4", "mxfp4", "q4_k"), (2, 16)),
    PeerGoal("T = 2 to 16", ("vLLM Triton",), ("bf16",), (2, 16)),
    PeerGoal("T = 17 to 512", ("Humming NVFP4 x bf16",), ("nvfp4",), (17, 512)),
    PeerGoal("prompt, T = 2048 and 8192", ("DeepGEMM bf16",), ("bf16",), (2048, 8192)),
    PeerGoal("prompt, T = 2048 and 8192", ("Humming NVFP4 x bf16",), ("nvfp4",), (2048, 8192)),
)


def peers_table(run, others):
    yield "| regime | formats | peer | cases | libmoe is faster in | median of time / peer's time | worst case |"
    yield "|--" * 7 + "|"
    yield from (goal.row(run, others) for goal in PEER_GOALS)


def skewed_rows(document):
    """Zipf 2.0, of the study: its plans and its even cases are its own."""
    goals = [skew_goal(group, 2.0) for group in GROUPS[:2]]
    if document is None:
        return [f"| {goal.regime} | {goal.formats} | {goal.formula} | 0 | not measured | - | - |" for goal in goals]
    run = Run(document, SKEW)
    return [goal.row(run) for goal in goals]


def not_measured_table():
    yield "| regime | formats | goal | result |"
    yield "|--" * 4 + "|"
    yield from (f"| {regime} | {formats} | {goal} | not measured: {reason} |" for regime, formats, goal, reason in NOT_MEASURED)


def dense_sentence(document, outside):
    hot = f"The dense rate of this run is {document['dense_tflops']:.0f} TFLOP/s at the power limit"
    if not outside:
        return f"{hot}; the cold rate was not measured."
    return (f"{hot}. Cold, on a card that was idle before, another run had {outside['dense_cold_tflops']} TFLOP/s; goals use the rate at the "
            "power limit.")


def bold_if_met(ratio):
    return f"**{ratio:.2f}**" if ratio <= 1 else f"{ratio:.2f}"


def small_batch_table(run, n_tokens):
    ratios = {name: ratio for goal in small_batch_goals() for name, ratio in goal.ratios(run).items()}
    models = list(dict.fromkeys(r["model"] for r in run.results.values()))
    yield f"| T = {n_tokens}: from ids, whole layer | {' | '.join(models)} |"
    yield "|--" * (1 + len(models)) + "|"
    for form in FORMATS:
        names = [[f"{model}/{form}/{mode}/T{n_tokens}/uniform" for mode in MODES] for model in models]
        cells = [", ".join(bold_if_met(ratios[name]) for name in pair if name in ratios) or "-" for pair in names]
        if set(cells) != {"-"}:
            yield f"| {form} | {' | '.join(cells)} |"


def heading(document, path):
    return f"{document['device']['name']}, commit {document['commit']}, {document['date'][:10]}: [results]({path.removeprefix('bench/')}). "


def regimes_table(run, goals):
    yield "| regime | formats | goal | cases | met | median of time / goal | worst case |"
    yield "|--" * 7 + "|"
    yield from (goal.row(run) for goal in goals)


def other_card_block(document):
    """A run on another card: its own floors and its own dense rate, no peers."""
    run, goals = Run(document), all_goals()
    lines = [f"{heading(document, OTHER_CARD)}{summary(run, goals)}", dense_sentence(document, None), "", *regimes_table(run, goals)]
    return "\n".join(lines) + "\n"


def block(document, skew=None, peers=None, outside=None):
    run, goals = Run(document), all_goals()
    others = [r for r in [*(peers or {"results": []})["results"], *(outside or {"results": []})["results"]] if r["peer"] != "libmoe"]
    lines = [f"{heading(document, RESULTS)}{summary(run, goals)}", dense_sentence(document, outside), "", *regimes_table(run, goals)]
    lines += skewed_rows(skew)
    lines += ["", "Peers that were measured in runs of their own, on the same kind of card:", "", *peers_table(run, others)]
    lines += ["", "Goals without a result:", "", *not_measured_table()]
    for n_tokens in (1, 2):
        lines += ["", *small_batch_table(run, n_tokens)]
    return "\n".join(lines) + "\n"


def read_if_there(path):
    return json.loads(path.read_text()) if path.exists() else None


def main():
    root = pathlib.Path(sys.argv[1])
    document = json.loads((root / RESULTS).read_text())
    made = block(document, *(read_if_there(root / name) for name in (SKEW, PEERS, OUTSIDE)))
    marked_block.put(root / PAGE, MARKS, made, RESULTS, "--write" in sys.argv[2:])
    if other := read_if_there(root / OTHER_CARD):
        marked_block.put(root / PAGE, OTHER_MARKS, other_card_block(other), OTHER_CARD, "--write" in sys.argv[2:])


if __name__ == "__main__":
    main()
