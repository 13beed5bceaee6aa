"""The title of each figure: what it shows, with the numbers of the results. Without them it is the subject of the study."""
import lists
import workload


def spread(values, digits=2):
    """Lowest to highest, in words."""
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def ratios(results, upper, lower):
    """us of one over us of another, for pairs of arguments of find; pairs that lack a result are left out."""
    found = [(results.find(*a[0], **a[1]), results.find(*b[0], **b[1])) for a, b in zip(upper, lower)]
    return [a["us"] / b["us"] for a, b in found if a and b]


def fusion(results):
    def chains(n_tokens):
        found = [results.find(model, form, "layer", n_tokens, stages=True) for model, form in lists.FUSION]
        return [next(s["us"] for s in r["stages"] if s["stage"] == "chain") / r["us"] for r in found if r]

    return f"Stages called one by one take {spread(chains(1))} times as long at T = 1, {spread(chains(8192))} at T = 8192"


def experts(results):
    def growth(n_tokens):
        few, many = ([((f"experts-{n}", form, "layer", n_tokens), {}) for form in ("bf16", "nvfp4")]
                     for n in (lists.EXPERT_COUNTS[0], lists.EXPERT_COUNTS[-1]))
        return spread(ratios(results, many, few))

    return f"512 experts instead of 8: one token takes {growth(1)} times as long, T = 8192 {growth(8192)}"


def skew(results):
    def over_uniform(n_tokens):
        cases = [(model, form) for model in ("qwen3next", "qwen3-30b", "mixtral") for form in ("bf16", "nvfp4")]
        skewed = [((*case, "ids", n_tokens), {"zipf": zipf}) for case in cases for zipf in (1.2, 2.0)]
        uniform = [((*case, "ids", n_tokens), {"zipf": 0.0}) for case in cases for _ in (1.2, 2.0)]
        return spread(ratios(results, skewed, uniform))

    return f"Skewed routing takes {over_uniform(8)} times as long as uniform at T = 8, {over_uniform(8192)} at T = 8192"


def bits(results):
    def bf16_over_kbit2(n_tokens):
        wide, narrow = ([((model, form, "ids", n_tokens), {}) for model in ("qwen3-30b", "mixtral")] for form in ("bf16", "kbit2"))
        return spread(ratios(results, wide, narrow))

    return f"bf16 takes {bf16_over_kbit2(1)} times as long as kbit2 at T = 1, {bf16_over_kbit2(8192)} at T = 8192"


def few(results):
    def gemv_over_grouped(n_tokens):
        cases = [(model, form, "ids", n_tokens) for model in lists.MODELS for form in lists.FEW_DRAWN]
        gemv, grouped = ([(case, {"kernels": kernels}) for case in cases] for kernels in (lists.ONE_BY_ONE, lists.SORTED))
        return spread(ratios(results, gemv, grouped))

    return f"Small-batch kernels take {gemv_over_grouped(2)} times as long as grouped ones at T = 2, {gemv_over_grouped(16)} at T = 16"


def roofline(results):
    def part_of_experts(n_tokens):
        found = [results.find(model, form, "layer", n_tokens, stages=True) for model in ("qwen3next", "mixtral") for form in ("bf16", "nvfp4")]
        times = [{s["stage"]: s["us"] for s in r["stages"] if s["stage"] != "chain"} for r in found if r]
        return spread([100 * stages["experts"] / sum(stages.values()) for stages in times], 0)

    return f"The experts take {part_of_experts(1)} % of the stages' time at T = 1, {part_of_experts(8192)} % at T = 8192"


def workload_title(results):
    lengths = workload.prompts(workload.TURNS, seed=1)
    times = {form: {t: r["us"] for t in lists.WORKLOAD_TOKENS if (r := results.find("qwen3next", form, "layer", t))}
             for form in ("bf16", "nvfp4")}

    def spent(counts, form):
        return sum(workload.time_by_regime(counts, times[form]).values())

    counts = [workload.iterations(users, lengths) for users in workload.USERS]
    return f"A server of coding assistants: NVFP4 takes {spread([spent(c, 'nvfp4') / spent(c, 'bf16') for c in counts])} times as long as bf16"


TITLES = {"fusion": fusion, "experts": experts, "skew": skew, "bits": bits, "few": few, "roofline": roofline, "workload": workload_title}


def title(name, results):
    try:
        return TITLES[name](results)
    except (ValueError, LookupError):  # a case that the numbers need has failed
        return lists.SUBJECTS[name]
