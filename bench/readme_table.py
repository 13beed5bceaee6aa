"""Holds the speeds in README.md and docs/performance.md to the results.

usage: readme_table.py <root of the repository> [--write]
README.md gets libmoe next to the best peer; docs/performance.md the times over the floor, how much faster libmoe is than
the best peer, DeepGEMM in one run with libmoe, and a table for each regime and list. The tables are of h100.json; peers ran on an H200, so that
libmoe beside them is of peers.json and h200.json. The other sources are peers-deepgemm-h200.json, outside.json and the results of the lists.
With --write the blocks are written, without it a difference fails.
"""
import json
import pathlib
import sys
import textwrap

sys.dont_write_bytecode = True
import list_tables  # noqa: E402
import marked_block  # noqa: E402
import regimes  # noqa: E402
from goals_table import same_run_ratios  # noqa: E402
from peers_table import in_words  # noqa: E402

PAGE = "docs/performance.md"
END = "<!-- end of speeds -->\n"
MARKS = ("<!-- speeds: written by bench/readme_table.py . --write -->\n", END)
SUMMARY_MARKS = ("<!-- peer summary: written by bench/readme_table.py . --write -->\n", "<!-- end of peer summary -->\n")
BESIDE_MARKS = ("<!-- beside DeepGEMM: written by bench/readme_table.py . --write -->\n", "<!-- end of beside DeepGEMM -->\n")
BESIDE = "bench/results/peers-deepgemm-h200.json"
MODELS = {
    "qwen3next": "Qwen3-Next",
    "qwen3-30b": "Qwen3-30B",
    "mixtral": "Mixtral",
    "dsv3": "DeepSeek-V3",
    "gpt-oss-120b": "gpt-oss-120b",
}
FORMATS = {"bf16": "bf16", "nvfp4": "NVFP4"}
TOKENS = (1, 32, 512, 8192)
MOST = 5.0  # times the floor; what takes longer is named
PEER_TOKENS, PROMPT = (1, 16), 8192  # in README.md: from peers.json, and from peers-deepgemm-h200.json or outside.json
SUMMARY_FORMATS = {**FORMATS, "mxfp4": "MXFP4", "q4_k": "q4_k"}
SUMMARY_TOKENS = (1, 2, 8, 16)


class Sources:
    def __init__(self, root):
        self.main, self.prompts, self.peers = (
            json.loads((root / f"bench/results/{name}.json").read_text()) for name in (regimes.MAIN, "h200", "peers"))
        self.outside = json.loads((root / "bench/outside.json").read_text())
        self.cases = {r["case"]: r for r in self.main["results"]}
        self.beside_peers = {r["case"]: r for r in self.prompts["results"]}
        self.root = root

    def read_if_there(self, path):
        found = self.root / path
        return json.loads(found.read_text()) if found.exists() else None

    def beside_deepgemm(self, model, form):
        """us of libmoe and of DeepGEMM for a prompt, in one run; None where they are not there."""
        document = self.read_if_there(BESIDE) or {"results": []}
        found = {r["peer"]: r["us"] for r in document["results"] if key(r) == (model, form, PROMPT)}
        theirs = [us for peer, us in found.items() if peer != "libmoe"]
        return (found["libmoe"], *theirs) if len(found) == 2 else None

    def pair(self, model, form, n_tokens):
        """(us of libmoe, us of the best peer, its name) of a layer's experts from ids, or None."""
        if n_tokens == PROMPT and (one_run := self.beside_deepgemm(model, form)):
            return (*one_run, "DeepGEMM GEMMs")
        if n_tokens == PROMPT:
            ours = self.beside_peers.get(f"{model}/{form}/ids/T{n_tokens}/uniform")
            others, mine = self.outside["results"], ours["us"] if ours else None
        else:
            others = [r for r in self.peers["results"] if r["peer"] != "libmoe"]
            found = [r for r in self.peers["results"] if (r["peer"], *key(r)) == ("libmoe", model, form, n_tokens)]
            mine = found[0]["us"] if found else None
        others = [r for r in others if key(r) == (model, form, n_tokens)]
        if mine is None or not others:
            return None
        best = min(others, key=lambda r: r["us"])
        return mine, best["us"], short(best["peer"])


def short(peer):
    """The peers' names in a narrow cell; GEMMs: it timed nothing else."""
    name = in_words(peer)
    return {"DeepGEMM bf16": "DeepGEMM GEMMs", "Humming, GEMMs only": "Humming GEMMs", "Humming NVFP4 x bf16": "Humming GEMMs"}.get(name, name)


def key(r):
    return r["model"], r["format"], r["n_tokens"]


def told(us):
    return f"{us:.1f}" if us < 100 else f"{us:.0f}"


def peer_cell(pair):
    if pair is None:
        return "-"
    mine, best, peer = pair
    ours, theirs = told(mine), f"{peer} {told(best)}"
    return f"**{ours}**, {theirs}" if mine <= best else f"{ours}, **{theirs}**"


def peer_block(sources):
    distinct = list(dict.fromkeys([sources.peers["commit"], sources.prompts["commit"]]))
    commits = f"commit{'s' if len(distinct) > 1 else ''} {' and '.join(distinct)}"
    yield textwrap.fill(f"One MoE layer from expert ids on one {sources.prompts['device']['name']} at {commits}, even routing, cold "
                        "weights: microseconds of libmoe, then of the fastest peer. The faster one is bold.", 140)
    yield ""
    yield "| us of a layer | " + " | ".join(f"T = {t}" for t in (*PEER_TOKENS, PROMPT)) + " |"
    yield "|--" * (2 + len(PEER_TOKENS)) + "|"
    for model, name in MODELS.items():
        for form, words in FORMATS.items():
            cells = [peer_cell(sources.pair(model, form, t)) for t in (*PEER_TOKENS, PROMPT)]
            if set(cells) != {"-"}:
                yield f"| {name}, {words} | {' | '.join(cells)} |"
    yield ""
    yield textwrap.fill(
        "T = 1 and 16 are from [peers.json](bench/results/peers.json), T = 8192 beside DeepGEMM from one run ([peers-deepgemm-h200.json](bench/results/peers-deepgemm-h200.json)), "
        "else of libmoe from [h200.json](bench/results/h200.json). The other peers ran in runs of their own on the same kind of card; those of T = 8192 left no result "
        "file and are noted in [outside.json](bench/outside.json). "
        "\"GEMMs\" means that the peer timed its two GEMMs alone; libmoe times everything from ids to the sum. vLLM's align is not counted.", 140, break_on_hyphens=False, break_long_words=False)


def gains(sources, form, n_tokens):
    """How many times as fast as the best peer: over the models, lowest and highest."""
    pairs = [sources.pair(model, form, n_tokens) for model in MODELS]
    ratios = sorted(best / mine for mine, best, _ in filter(None, pairs))
    names = sorted({peer for *_, peer in filter(None, pairs)})
    if not ratios:
        return "-"
    low, high = f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}"
    return f"{low}{'' if low == high else f' to {high}'} ({'; '.join(names)})"


def summary_block(sources):
    tokens = (*SUMMARY_TOKENS, PROMPT)
    yield "| time of the best peer / time of libmoe | " + " | ".join(f"T = {t}" for t in tokens) + " |"
    yield "|--" * (1 + len(tokens)) + "|"
    for form, words in SUMMARY_FORMATS.items():
        yield f"| {words} | {' | '.join(gains(sources, form, t) for t in tokens)} |"


def beside_block(sources):
    """The numbers of tokens that every model of the file has, which has one format for each kind of activations."""
    document = sources.read_if_there(BESIDE)
    if document is None:
        yield "Not measured: no result file."
        return
    models = list(dict.fromkeys(r["model"] for r in document["results"]))
    yield (f"Time of libmoe over time of DeepGEMM. {document['device']['name']}, commit {document['commit']}, {document['date'][:10]}, from ids, even routing: "
           f"[results](../{BESIDE}).")
    yield ""
    yield f"| activations | T | {' | '.join(MODELS.get(model, model) for model in models)} |"
    yield "|--" * (2 + len(models)) + "|"
    for (activations, n_tokens), ratios in same_run_ratios(document).items():
        of_models = {case.split("/")[0]: ratio for case, ratio in ratios.items()}
        if of_models.keys() == set(models):
            yield f"| {activations} | {n_tokens} | {' | '.join(f'{of_models[model]:.2f}' for model in models)} |"


def table(results):
    heads = [f"{name}, T = {TOKENS[0]}" if t == TOKENS[0] else str(t) for name in FORMATS.values() for t in TOKENS]
    lines = [f"| time / floor | {' | '.join(heads)} |", "|--" * (1 + len(heads)) + "|"]
    for model, name in MODELS.items():
        cases = [results.get(f"{model}/{f}/layer/T{t}/uniform") for f in FORMATS for t in TOKENS]
        cells = [f"{case['times_floor']:.2f}" if case else "-" for case in cases]
        lines.append(f"| {name} layer | {' | '.join(cells)} |")
    return lines


def slowest(results):
    beyond = [r for r in results.values() if r["times_floor"] > MOST]
    if beyond:
        named = ", ".join(f"`{r['case']}` {r['times_floor']:.2f}" for r in beyond)
        return f"Of the {len(results)} cases, {len(beyond)} take more than {MOST:.0f} times their floor: {named}."
    worst = max(results.values(), key=lambda r: r["times_floor"])
    return (
        f"None of the {len(results)} cases takes {MOST:.0f} times its floor; the furthest is "
        f"`{worst['case']}` with {worst['times_floor']:.2f}."
    )


def not_run(failures):
    if not failures:
        return []
    found = ", ".join(sorted({"/".join(failure.split("/")[:2]) for failure in failures}))
    return [f"{len(failures)} cases have no time in that run (of {found})."]


def sentences(results):
    token = results["qwen3next/nvfp4/ids/T1/uniform"]
    long = results["mixtral/nvfp4/layer/T8192/uniform"]
    rates = [long["flops"] / long[key] / 1e6 for key in ("us", "us_highest", "us_lowest")]
    return [
        slowest(results),
        f"One token from ids through Qwen3-Next's experts in NVFP4 takes {token['us']:.1f} us (samples from "
        f"{token['us_lowest']:.1f} to {token['us_highest']:.1f}); reading its {token['weight_bytes'] / 1e6:.1f} MB "
        f"takes at least {token['floor_us']:.1f} us.",
        "Long cases vary with the clock, which the power limit of the card lowers: a layer of Mixtral in NVFP4 at "
        f"T = 8192 has a median of {rates[0]:.0f} TFLOP/s, and its samples lie between {rates[1]:.0f} and {rates[2]:.0f}.",
    ]


def floor_block(sources):
    main = sources.main
    yield (f"{main['device']['name']}, commit {main['commit']}, {main['date'][:10]}: [results](../bench/results/{regimes.MAIN}.json). Time of a whole layer over its "
           "floor, even routing; 1 is the limit of the card.")
    yield ""
    yield from table(sources.cases)
    yield ""
    words = " ".join(sentences(sources.cases) + not_run(main["failures"]))
    yield from textwrap.wrap(words, 140, break_on_hyphens=False, break_long_words=False)


def main():
    root, is_written = pathlib.Path(sys.argv[1]), "--write" in sys.argv[2:]
    sources = Sources(root)
    blocks = [("README.md", MARKS, peer_block(sources)), (PAGE, MARKS, floor_block(sources)), (PAGE, SUMMARY_MARKS, summary_block(sources)),
              (PAGE, BESIDE_MARKS, beside_block(sources))]
    blocks += [(PAGE, regimes.marks(name), made(sources, MODELS)) for name, made in regimes.REGIMES.items()]
    blocks += [(PAGE, regimes.marks(name), list_tables.block(name, sources.read_if_there)) for name in list_tables.TABLES]
    for page, marks, lines in blocks:
        marked_block.put(root / page, marks, "\n".join(lines) + "\n", "bench/results", is_written)


if __name__ == "__main__":
    main()
