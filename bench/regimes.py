"""The tables of the regimes in docs/performance.md: every model and format, from ids, with even routing."""
MAIN = "h100"  # the results of the list hopper that the tables have
FORMATS = ("bf16", "fp8_128x128", "q8_0", "nvfp4", "mxfp4", "q4_k", "kbit5", "kbit4", "kbit3", "kbit2")


def label(main, what):
    return (f"{what} {main['device']['name']}, commit {main['commit']}, {main['date'][:10]}, from ids, even routing: "
            f"[results](../bench/results/{MAIN}.json).")


def us_and_floor(case):
    us = f"{case['us']:.1f}" if case["us"] < 100 else f"{case['us']:.0f}"
    return f"{us} ({case['times_floor']:.2f})"


def tflops(case):
    return f"{case['tflops']:.0f}"


def rows(sources, models, tokens, cell):
    """A row for each format that has a case; several numbers of tokens stand in one cell."""
    for form in FORMATS:
        cases = [[sources.cases.get(f"{model}/{form}/ids/T{t}/uniform") for t in tokens] for model in models]
        cells = [", ".join(cell(case) for case in found if case) or "-" for found in cases]
        if set(cells) != {"-"}:
            yield f"| {form} | {' | '.join(cells)} |"


def heading(models, first):
    yield f"| {first} | {' | '.join(models.values())} |"
    yield "|--" * (1 + len(models)) + "|"


def table(sources, models, tokens, what, cell):
    yield label(sources.main, what)
    yield ""
    yield from heading(models, " and ".join(f"T = {t}" for t in tokens))
    yield from rows(sources, models, tokens, cell)


def one_token(sources, models):
    return table(sources, models, (1,), "Microseconds, and time over floor.", us_and_floor)


def small_batch(sources, models):
    return table(sources, models, (8,), "Microseconds, and time over floor.", us_and_floor)


def middle(sources, models):
    return table(sources, models, (32, 512), "Microseconds, and time over floor.", us_and_floor)


def deepgemm_rates(sources, models):
    """TFLOP/s on an H200: the arithmetic of libmoe's case over DeepGEMM's time."""
    cases = [(sources.cases.get(f"{model}/bf16/ids/T8192/uniform"), sources.beside_deepgemm(model, "bf16")) for model in models]
    return [f"{case['flops'] / pair[1] / 1e6:.0f}" if case and pair else "-" for case, pair in cases]


def prompt(sources, models):
    yield from table(sources, models, (8192,), "TFLOP/s.", tflops)
    yield f"| DeepGEMM bf16, two GEMMs alone, another run, on an H200 | {' | '.join(deepgemm_rates(sources, models))} |"
    yield ""
    hot, cold = sources.main["dense_tflops"], sources.outside["dense_cold_tflops"]
    yield (f"A dense bfloat16 GEMM of cuBLASLt reached {hot:.0f} TFLOP/s in the same run, at the power limit. On a card that was idle before it reached "
           f"{cold} TFLOP/s in another run. The floors use the rate at the power limit.")


REGIMES = {"one token": one_token, "small batches": small_batch, "the middle": middle, "prompts": prompt}


def marks(name):
    return f"<!-- {name}: written by bench/readme_table.py . --write -->\n", f"<!-- end of {name} -->\n"
