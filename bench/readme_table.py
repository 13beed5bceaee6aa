"""Holds the speeds in README.md to bench/results/h200.json.

usage: readme_table.py <root of the repository> [--write]
The block between the marks is made of the results; with --write it is put there, without it a difference fails.
"""
import json
import pathlib
import sys
import textwrap

sys.dont_write_bytecode = True
import marked_block  # noqa: E402

MARKS = ("<!-- speeds: written by bench/readme_table.py . --write -->\n", "<!-- end of speeds -->\n")
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


def table(results):
    heads = [f"{name}, T = {TOKENS[0]}" if t == TOKENS[0] else str(t) for name in FORMATS.values() for t in TOKENS]
    lines = [f"| times the floor | {' | '.join(heads)} |", "|--" * (1 + len(heads)) + "|"]
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
        f"{token['us_lowest']:.1f} to {token['us_highest']:.1f}), {token['weight_bytes'] / 1e6:.1f} MB "
        f"in {token['floor_us']:.1f} us at best.",
        "Long cases vary with the clock, which the card's power limit lowers (bench/notes.md): of Mixtral in NVFP4 at "
        f"T = 8192 the median is {rates[0]:.0f} TFLOP/s, the samples lie between {rates[1]:.0f} and {rates[2]:.0f}.",
    ]


def main():
    root = pathlib.Path(sys.argv[1])
    document = json.loads((root / "bench/results/h200.json").read_text())
    results = {r["case"]: r for r in document["results"]}
    lines = textwrap.wrap(" ".join(sentences(results) + not_run(document["failures"])), 120, break_on_hyphens=False, break_long_words=False)
    block = "\n".join([*table(results), "", *lines]) + "\n"
    marked_block.put(root / "README.md", MARKS, block, "bench/results/h200.json", "--write" in sys.argv[2:])


main()
