"""Puts into bench/goals.md how the results stand against the goals, or holds the page to them.

usage: goals_table.py <root of the repository> [--write]
A goal is a time that a case must not exceed. The page has a row for every regime and group of formats, one for every peer that was measured
in another run, a table for every peer that ran beside libmoe in one, and a row for every goal that has no result; then one and two tokens, case by
case. Zipf 2.0 is from study-skew.json.
"""
import json
import pathlib
import statistics
import sys
from typing import NamedTuple

sys.dont_write_bytecode = True
import marked_block  # noqa: E402
from goal_rules import FORMATS, GROUPS, MODES, Run, all_goals, launches_goals, skew_goal, small_batch_goals  # noqa: E402
from list_goals import LISTS, is_quantized  # noqa: E402

PAGE, RESULTS = "bench/goals.md", "bench/results/h200.json"
SKEW, PEERS, OUTSIDE = "bench/results/study-skew.json", "bench/results/peers.json", "bench/outside.json"
MARKS = ("<!-- goals: written by bench/goals_table.py . --write -->\n", "<!-- end of goals -->\n")
OTHER_CARD = "bench/results/h100.json"
OTHER_MARKS = ("<!-- other card: written by bench/goals_table.py . --write -->\n", "<!-- end of other card -->\n")
QUANTIZED = "_fp8"  # behind a format of the files of peers where activations are E4M3, as peers/torch_peer.py has it


class SameRun(NamedTuple):
    """A peer in one run with libmoe."""
    path: str  # of a card
    peer: str
    text: str  # what is compared
    goal: tuple  # regime, formats, goal: the row of a card without that file


HUMMING_FP8 = "bench/results/peers-humming-fp8-{}.json"
SAME_RUNS = (
    SameRun("bench/results/peers-ggml-{}.json", "ggml CUDA",
            "Every format of GGUF that both have, qwen3-30b and mixtral, from ids.\nggml quantizes x to 8 bits. The goal is to be no slower.",
            ("T = 1 to 512", "GGUF", "no slower than ggml CUDA")),
    SameRun("bench/results/peers-humming-{}.json", "Humming",
            "Its two GEMMs of a layer alone, without activation, sum and align, beside\nlibmoe's whole call from ids. The goal is to be no slower.",
            ("T = 1 to 8192", "nvfp4, mxfp4, int4_g128, awq", "no slower than Humming's two GEMMs")),
    SameRun("bench/results/peers-humming-given-{}.json", "Humming",
            "The same, of the list fp8's cases with activations as given.",
            ("T = 64 to 8192, qwen3-30b and mixtral", "nvfp4, mxfp4, awq", "no slower than Humming's two GEMMs")),
    SameRun(HUMMING_FP8, "Humming",
            "Weights of four bits, activations in E4M3, which Humming makes in its call: its two\nGEMMs alone, without activation, sum and align, beside "
            "libmoe's whole call from ids, whose kernels for E4M3 are\nforced. The goal is to be no slower.",
            ("4-bit x fp8, T = 64 to 512 and prompts", "4 bits", "no slower than Humming's two GEMMs")),
    SameRun("bench/results/peers-deepgemm-{}.json", "DeepGEMM",
            "Its two grouped GEMMs of a layer alone, of rows that are\nsorted, and for E4M3 quantized, before the time begins, without activation and sum, "
            "beside libmoe's whole call from ids. The\ngoal is to be no slower for prompts of 2048 and 8192 tokens.",
            ("prompt, T = 2048 and 8192", "bf16; fp8 x fp8", "no slower than DeepGEMM's two GEMMs")),
)
LAUNCHES = ("launches", "all", "from ids 2 at T <= 16, 5 at any T; a whole layer 2 more", "no result file that counts them")
NOT_MEASURED = (
    ("T = 17 to 512", "bf16", "no slower than vLLM's Triton kernel with its align and router", "the peer's align and router were not timed"),
    ("shapes: L off the grid of 64", "all", "1.15 x the next size on it", "no case"),
    ("memory", "all", "packed bytes 1.02 x the format's own + 1 MB; load peak one expert more", "the benchmark records none"),
    ("load", "all", "70% of the slower of file read and copy to the device", "no result file; [load.md](notes/load.md) has figures"),
    ("CPU, T = 1 to 512", "all", "faster than ik_llama.cpp", "it was not there; beside ggml: [performance](../docs/performance.md#on-the-cpu)"),
)
MOST_FAILURES = 8  # by name


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
    same_run: str = ""  # of SAME_RUNS: where the card has this file, its table has the goal

    def ratios(self, cases, others):
        for r in others:
            case = cases.get(f"{r['model']}/{r['format']}/ids/T{r['n_tokens']}/uniform")
            is_asked = r["peer"] in self.peers and r["format"] in self.formats and self.tokens[0] <= r["n_tokens"] <= self.tokens[1]
            if is_asked and case:
                yield f"{case['case']}", case["us"] / r["us"]

    def row(self, cases, others):
        ratios, words = dict(self.ratios(cases, others)), ", ".join(self.formats)
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
    PeerGoal("prompt, T = 2048 and 8192", ("Humming NVFP4 x bf16",), ("nvfp4",), (2048, 8192)),
    PeerGoal("T = 17 to 512, activations in E4M3", ("Humming MXFP4 x fp8",), ("mxfp4_fp8",), (17, 512), HUMMING_FP8),
    PeerGoal("prompt, activations in E4M3, T = 2048 and 8192", ("Humming MXFP4 x fp8",), ("mxfp4_fp8",), (2048, 8192), HUMMING_FP8),
)


def cases_by_peers_names(run, lists):
    """With those of the list fp8 whose activations are E4M3."""
    cases = dict(run.results)
    for r in lists.get("fp8", {"results": []})["results"]:
        if is_quantized(r):
            cases[f"{r['model']}/{r['format']}{QUANTIZED}/ids/T{r['n_tokens']}/uniform"] = r
    return cases


def peers_table(cases, others, beside):
    yield "| regime | formats | peer | cases | libmoe is faster in | median of time / peer's time | worst case |"
    yield "|--" * 7 + "|"
    yield from (goal.row(cases, others) for goal in PEER_GOALS if goal.same_run not in (about.path for _, _, about in beside))


def skewed_rows(document):
    """Zipf 2.0, of the study: its plans and its even cases are its own."""
    goals = [skew_goal(group, 2.0) for group in GROUPS[:2]]
    if document is None:
        return [f"| {goal.regime} | {goal.formats} | {goal.formula} | 0 | not measured | - | - |" for goal in goals]
    run = Run(document, SKEW)
    return [goal.row(run) for goal in goals]


def not_beside(beside):
    """Rows of peers that have not run beside libmoe on a card."""
    measured = [about for _, _, about in beside]
    return [(*about.goal, "no result file of this card") for about in SAME_RUNS if about not in measured]


def not_measured(documents, lists):
    """Rows of goals: those of a list as long as it has no result file of any card."""
    yield from NOT_MEASURED
    for name, about in LISTS.items():
        if name not in lists:
            yield from ((*row, "no result file") for row in about.not_measured)
    if not any("n_launches" in r for document in documents for r in document["results"]):
        yield LAUNCHES


def not_measured_table(rows):
    yield "| regime | formats | goal | result |"
    yield "|--" * 4 + "|"
    yield from (f"| {regime} | {formats} | {goal} | not measured: {reason} |" for regime, formats, goal, reason in rows)


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
    """Launches are counted where the results have them, and are in no summary: they are no times."""
    yield "| regime | formats | goal | cases | met | median of time / goal | worst case |"
    yield "|--" * 7 + "|"
    yield from (goal.row(run) for goal in (*goals, *launches_goals(run)))


def failures(document):
    failed = [f"`{failure.split(': ')[0]}`" for failure in document["failures"]]
    if not failed:
        return ""
    more = f" and {len(failed) - MOST_FAILURES} more" if len(failed) > MOST_FAILURES else ""
    return f" Not measured: {', '.join(failed[:MOST_FAILURES])}{more}."


def list_tables(lists, card):
    """Of each list that has results, with the floors of its own run."""
    for name, document in lists.items():
        path = list_path(name, card)
        run = Run(document, path, is_hopper=False)
        goals = list(LISTS[name].goals(run))
        yield ""
        yield f"**{LISTS[name].title}.** {heading(document, path)}{summary(run, goals)}{failures(document)}"
        yield dense_sentence(document, None)
        yield ""
        yield from regimes_table(run, goals)


def same_run_ratios(document):
    """{(activations, tokens): {case: time of libmoe / time of the peer}} of the cases that both have; as given before E4M3, few tokens before many."""
    pairs, ratios = {}, {}
    for r in document["results"]:
        group = "E4M3" if r["format"].endswith(QUANTIZED) else "as given", r["n_tokens"]
        pairs.setdefault((group, f"{r['model']}/{r['format']}"), {})["ours" if r["peer"] == "libmoe" else "theirs"] = r["us"]
    for (group, case), pair in pairs.items():
        if len(pair) == 2:
            ratios.setdefault(group, {})[case] = pair["ours"] / pair["theirs"]
    return dict(sorted(ratios.items(), key=lambda item: (item[0][0] != "as given", item[0][1])))


def same_run_table(document, path, about):
    """libmoe beside a peer in one run, by the number of tokens, and by activations where the file has both."""
    yield ""
    left_out = len(document.get("failures", ()))
    yield f"**Beside {about.peer}, in one run.** {heading(document, path)}{about.text}" + (f" {left_out} cases were not measured." if left_out else "")
    yield ""
    groups = same_run_ratios(document)
    is_both = len({activations for activations, _ in groups}) > 1
    heads = ["T", "cases", "libmoe is no slower in", f"median of time / {about.peer}'s", "worst case"]
    heads[:0] = ["activations"] if is_both else []
    yield f"| {' | '.join(heads)} |"
    yield "|--" * len(heads) + "|"
    for (activations, n_tokens), ratios in groups.items():
        worst = max(ratios, key=ratios.get)
        no_slower = sum(ratio <= 1 for ratio in ratios.values())
        yield (f"| {f'{activations} | ' if is_both else ''}{n_tokens} | {len(ratios)} | {no_slower} | {statistics.median(ratios.values()):.2f} | "
               f"`{worst}` {ratios[worst]:.2f} |")


def other_card_block(document, lists=None, beside=()):
    """A run on another card: its own floors and its own dense rate; peers where they ran beside it."""
    run, goals = Run(document, OTHER_CARD), all_goals()
    lines = [f"{heading(document, OTHER_CARD)}{summary(run, goals)}", dense_sentence(document, None), "", *regimes_table(run, goals)]
    lines += list_tables(lists or {}, "h100")
    for one in beside:
        lines += same_run_table(*one)
    if missing := not_beside(beside):
        lines += ["", "Peers without a result on this card:", "", *not_measured_table(missing)]
    return "\n".join(lines) + "\n"


def block(document, skew=None, peers=None, outside=None, lists=None, elsewhere=None, beside=()):
    """lists, beside: results of lists, and of peers in one run, on this card; elsewhere: lists on another one."""
    run, goals, lists = Run(document, RESULTS), all_goals(), lists or {}
    everywhere = {**(elsewhere or {}), **lists}
    others = [r for r in [*(peers or {"results": []})["results"], *(outside or {"results": []})["results"]] if r["peer"] != "libmoe"]
    lines = [f"{heading(document, RESULTS)}{summary(run, goals)}", dense_sentence(document, outside), "", *regimes_table(run, goals)]
    lines += skewed_rows(skew)
    lines += ["", "Peers that were measured in runs of their own, on the same kind of card:", "", *peers_table(cases_by_peers_names(run, lists), others, beside)]
    lines += list_tables(lists, "h200")
    for one in beside:
        lines += same_run_table(*one)
    rows = [*not_measured([document, *everywhere.values()], everywhere), *not_beside(beside)]
    lines += ["", "Goals without a result:", "", *not_measured_table(rows)]
    for n_tokens in (1, 2):
        lines += ["", *small_batch_table(run, n_tokens)]
    return "\n".join(lines) + "\n"


def read_if_there(path):
    return json.loads(path.read_text()) if path.exists() else None


def list_path(name, card):
    return f"bench/results/{name}-{card}.json"


def read_lists(root, card):
    documents = {name: read_if_there(root / list_path(name, card)) for name in LISTS}
    return {name: document for name, document in documents.items() if document}


def same_runs(root, card):
    """(document, path, about) of those that the card has."""
    found = [(read_if_there(root / about.path.format(card)), about.path.format(card), about) for about in SAME_RUNS]
    return [one for one in found if one[0]]


def main():
    root = pathlib.Path(sys.argv[1])
    document = json.loads((root / RESULTS).read_text())
    made = block(document, *(read_if_there(root / name) for name in (SKEW, PEERS, OUTSIDE)), read_lists(root, "h200"),
                 read_lists(root, "h100"), same_runs(root, "h200"))
    marked_block.put(root / PAGE, MARKS, made, RESULTS, "--write" in sys.argv[2:])
    if other := read_if_there(root / OTHER_CARD):
        made = other_card_block(other, read_lists(root, "h100"), same_runs(root, "h100"))
        marked_block.put(root / PAGE, OTHER_MARKS, made, OTHER_CARD, "--write" in sys.argv[2:])


if __name__ == "__main__":
    main()
