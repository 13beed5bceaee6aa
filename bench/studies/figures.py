"""The figure of each study, from the results of its cases. What failed to run is left out."""
import pathlib
import sys

import chart
import lists
import titles
import workload
from chart import COLORS, INK, SOFT, Axis, Panel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import kernel_names  # noqa: E402

STAGES = ("route", "dispatch", "experts", "combine", "finish")


class Results:
    def __init__(self, document):
        self.document = document
        self.by_name = {result["case"]: result for result in map(kernel_names.renewed, document["results"])}

    def find(self, *arguments, **more):
        """The result of a case, or None."""
        return self.by_name.get(lists.name_of(lists.case(*arguments, **more)))

    def series(self, tokens, value, *arguments, **more):
        """(tokens, value of the result) where there is one"""
        found = [(t, self.find(*arguments, t, **more)) for t in tokens]
        return [(t, value(result)) for t, result in found if result]


def us(result):
    return result["us"]


def stage_us(result, name):
    return next(stage["us"] for stage in result["stages"] if stage["stage"] == name)


def token_axis(tokens):
    return Axis("tokens of a call", tokens, log=True, ticks={t: str(t) for t in tokens})


def line_panels(title, x, label, lines, log=True, margin_below=1, every=()):
    """One panel of (points, color, dashed), its y axis as large as these and all of `every` want; none without points."""
    lines = [line for line in lines if line[0]]
    if not lines:
        return []
    heights = [y for points in (*(points for points, *_ in lines), every) for _, y in points]
    panel = Panel(title, x, Axis(label, [min(heights) / margin_below, *heights], log=log))
    for points, color, dashed in lines:
        panel.line(points, color, dashed)
    return [panel]


def fusion(results):
    panels, tokens = [], lists.BATCHES
    is_old = any(result.get("kernels") == lists.GENERIC for result in results.by_name.values())
    name, kernels = ("generic", lists.GENERIC) if is_old else ("portable", lists.PORTABLE)
    for model, format in lists.FUSION:
        whole = dict(results.series(tokens, us, model, format, "layer"))
        chain = results.series(tokens, lambda r: stage_us(r, "chain"), model, format, "layer")
        portable = results.series(tokens, us, model, format, "layer", kernels=kernels)
        unfused = results.series(tokens, us, model, format, "layer", unfused=True)
        lines = [([(t, time / whole[t]) for t, time in points if t in whole], COLORS[i], False)
                 for i, points in enumerate((whole.items(), chain, portable, unfused))]
        panels += line_panels(f"{model}, {format}", token_axis(tokens), "time / time of the layer", lines)
    names = ("moe_forward", "its stages one by one", f"moe_forward by the {name} kernels", "the same, unfused")
    return panels, [(name, COLORS[i], False) for i, name in enumerate(names)]


def experts(results):
    panels, counts, tokens = [], lists.EXPERT_COUNTS, (1, 32, 512, 8192)
    x = Axis("experts", counts, log=True, ticks={n: str(n) for n in counts})
    for format in ("bf16", "nvfp4"):
        lines = []
        for i, t in enumerate(tokens):
            found = [(n, results.find(f"experts-{n}", format, "layer", t)) for n in counts]
            for key, dashed in (("us", False), ("floor_us", True)):
                lines.append(([(n, r[key]) for n, r in found if r], COLORS[i], dashed))
        panels += line_panels(format, x, "us", lines)
    keys = [(f"T = {t}", COLORS[i], False) for i, t in enumerate(tokens)]
    return panels, [*keys, ("floor", SOFT, True)]


def skew(results):
    panels, tokens = [], (8, 32, 128, 512, 2048, 8192)
    for model in ("qwen3next", "qwen3-30b", "mixtral"):
        lines = []
        for i, format in enumerate(("bf16", "nvfp4")):
            even = dict(results.series(tokens, us, model, format, "ids", zipf=0.0))
            for zipf, dashed in ((1.2, False), (2.0, True)):
                points = results.series(tokens, us, model, format, "ids", zipf=zipf)
                lines.append(([(t, time / even[t]) for t, time in points if t in even], COLORS[i], dashed))
        panels += line_panels(model, token_axis(tokens), "time / time of uniform", lines, log=False)
    keys = [(f"{format}, Zipf {zipf}", COLORS[i], zipf == 2.0)
            for i, format in enumerate(("bf16", "nvfp4")) for zipf in (1.2, 2.0)]
    return panels, keys


def bits_of_weight(results, model, format):
    """From a call of one token, which reads just its experts; None where it failed."""
    one = results.find(model, format, "ids", 1)
    if not one:
        return None
    shape = one["shape"]
    return 8 * one["weight_bytes"] / (3 * shape["hidden"] * shape["intermediate"] * shape["top_k"])


def formats_by_bits(bits):
    """{bits: formats}: those that lie closer together than a label is wide share one."""
    groups = {}
    for format, width in sorted(bits.items(), key=lambda item: item[1]):
        near = next((known for known in groups if width / known < 1.1), width)
        groups.setdefault(near, []).append(format)
    return groups


def lowest_of_each(points, groups):
    """Of the points whose formats share their bits, or nearly so, the lowest: a line through all of them would go up and down at one x."""
    bounds = sorted(groups)
    by_group = {}
    for width, y in points:
        by_group.setdefault(max(bound for bound in bounds if bound <= width), []).append((y, width))
    return [(min(found)[1], min(found)[0]) for found in by_group.values()]


def bits(results):
    panels, tokens = [], lists.BATCHES
    for model in ("qwen3-30b", "mixtral"):
        known = {format: bits_of_weight(results, model, format) for format in lists.BITS}
        known = {format: width for format, width in known.items() if width}
        if not known:
            continue
        found = [[(width, results.find(model, format, "ids", t)) for format, width in known.items()] for t in tokens]
        points = [[(width, r["us"]) for width, r in series if r] for series in found]
        lines = [(lowest_of_each(series, formats_by_bits(known)), COLORS[i], False) for i, series in enumerate(points)]
        x = Axis("bits of a weight", known.values(), log=True,
                 ticks={value: str(value) for value in (2, 3, 4, 5, 6, 8, 12, 16)})
        panels += line_panels(model, x, "us", lines, margin_below=5, every=sum(points, []))
        for i, series in enumerate(points):
            panels[-1].dots(series, COLORS[i])
        for width, formats in formats_by_bits(known).items():
            panels[-1].note(width, min(us(results.find(model, format, "ids", 1)) for format in formats), formats)
    return panels, [*((f"T = {t}", COLORS[i], False) for i, t in enumerate(tokens)), ("through the fastest format of about as many bits", SOFT, False)]


def small_batch(results):
    panels, formats = [], lists.SMALL_BATCH_DRAWN
    for model in lists.MODELS:
        lines = []
        for i, format in enumerate(formats):
            together = dict(results.series(lists.SMALL_BATCH_TOKENS, us, model, format, "ids", kernels=lists.GROUPED_GEMM))
            points = results.series(lists.SMALL_BATCH_TOKENS, us, model, format, "ids", kernels=lists.GEMV)
            lines.append(([(t, time / together[t]) for t, time in points if t in together], COLORS[i], False))
        panels += line_panels(model, token_axis(lists.SMALL_BATCH_TOKENS), "time / time of the grouped kernels", lines, log=False)
    return panels, [(format, COLORS[i], False) for i, format in enumerate(formats)]


def roofs(document):
    """Bytes of a microsecond and flops of a microsecond; the latter None where it was not measured."""
    largest = document["read_floor"][-1]
    return largest["bytes"] / largest["us"], document["dense_tflops"] * 1e6 or None


def roofline_panel(title, results, found):
    bandwidth, compute = roofs(results.document)
    points = {name: [(stage["flops"] / stage["bytes"], stage["flops"] / stage["us"] / 1e6)
                     for result in found for stage in result["stages"] if stage["stage"] == name and stage["flops"]]
              for name in STAGES}
    every = [point for series in points.values() for point in series]
    if not every:
        return []
    low, high = min(x for x, _ in every), max(x for x, _ in every)
    knee = compute / bandwidth if compute else high
    roof = [(x, min(x * bandwidth, compute or x * bandwidth) / 1e6) for x in (low, min(max(low, knee), high), high)]
    panel = Panel(title, Axis("FLOP/byte", (low, high), log=True),
                  Axis("TFLOP/s", [y for _, y in [*every, *roof]], log=True))
    panel.line(roof, INK, dashed=True, dots=False)
    for i, name in enumerate(STAGES):
        if points[name]:
            panel.line(points[name], COLORS[i])
    return [panel]


def part_panel(title, tokens, found):
    """Times of the stages called alone, as parts of their total."""
    ticks = {i: str(t) for i, t in enumerate(tokens)}
    panel = Panel(title, Axis("tokens of a call", (-0.3, len(tokens) - 0.7), ticks=ticks),
                  Axis("part of the stages' time", (0, 1), from_zero=True))
    for result in found:
        stages = {stage["stage"]: stage["us"] for stage in result["stages"] if stage["stage"] != "chain"}
        total = sum(stages.values())
        panel.stack(tokens.index(result["n_tokens"]),
                    [(stages[name] / total, COLORS[i]) for i, name in enumerate(STAGES) if name in stages])
    return [panel] if found else []


def roofline(results):
    panels, tokens = [], lists.BATCHES
    for model in ("qwen3next", "mixtral"):
        for format in ("bf16", "nvfp4"):
            found = [result for _, result in results.series(tokens, lambda r: r, model, format, "layer")]
            panels += roofline_panel(f"{model}, {format}", results, found)
            panels += part_panel(f"{model}, {format}", tokens, found)
    keys = [(name, COLORS[i], False) for i, name in enumerate(STAGES)]
    return panels, [*keys, ("measured: reading 1 GB, dense GEMM", INK, True)]


def ratio_panel(counts, times):
    def spent(users, format):
        return sum(workload.time_by_regime(counts[users], times[format]).values())

    x = Axis("users", workload.USERS, log=True, ticks={n: str(n) for n in workload.USERS})
    lines = [([(n, spent(n, format) / spent(n, "bf16")) for n in workload.USERS], COLORS[i], False)
             for i, format in enumerate(lists.WORKLOAD) if format in times and "bf16" in times]
    return line_panels("time of the layer", x, "time / time of bf16", lines, log=False)


def regime_panel(counts, times, format):
    if format not in times:
        return []
    users = workload.USERS
    panel = Panel(f"where the time goes, {format}", Axis("users", (-0.3, len(users) - 0.7), ticks=dict(enumerate(map(str, users)))),
                  Axis("part of the time", (0, 1), from_zero=True))
    for i, n in enumerate(users):
        spent = list(workload.time_by_regime(counts[n], times[format]).values())
        panel.stack(i, [(part / sum(spent), REGIME_COLORS[j]) for j, part in enumerate(spent)])
    return [panel]


REGIME_COLORS = ("#08306b", "#2171b5", "#6baed6", "#c6dbef")


def workload_figure(results):
    tokens = lists.WORKLOAD_TOKENS
    times = {format: dict(results.series(tokens, us, "qwen3next", format, "layer")) for format in lists.WORKLOAD}
    # The simulation needs both ends of the curve.
    times = {format: curve for format, curve in times.items() if {tokens[0], tokens[-1]} <= set(curve)}
    lengths = workload.prompts(workload.TURNS, seed=1)
    counts = {n: workload.iterations(n, lengths) for n in workload.USERS}
    panels = ratio_panel(counts, times) + regime_panel(counts, times, "kbit4")
    keys = [(format, COLORS[i], False) for i, format in enumerate(lists.WORKLOAD)]
    keys += [(f"T: {name}", REGIME_COLORS[i], False) for i, (name, _) in enumerate(workload.REGIMES)]
    return panels, keys


FIGURES = {"fusion": fusion, "experts": experts, "skew": skew, "bits": bits, "small_batch": small_batch, "roofline": roofline,
           "workload": workload_figure}


def draw(name, document):
    results = Results(document)
    return chart.figure(titles.title(name, results), *FIGURES[name](results))
