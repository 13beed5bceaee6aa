"""The studies: what each measures, as a list of cases that moe-bench --cases reads."""

BATCHES = (1, 8, 64, 512, 8192)
ZIPF = (0.0, 1.2, 2.0)
# The kernels of every architecture, so that a plan with `unfused`, which has no others, is compared with its like.
PORTABLE = "experts:sm80_*_bf16_grouped_gemm_*,finish:sm80_*_bf16_grouped_gemm_*"
GENERIC = "experts:sm80_*_bf16_generic_*,finish:sm80_*_bf16_generic_*"  # in their place in results from before 3af2daf
FUSION = (("qwen3next", "nvfp4"), ("qwen3-30b", "bf16"), ("mixtral", "nvfp4"))
FUSION_VARIANTS = ({"stages": True}, {"kernels": PORTABLE}, {"unfused": True})
EXPERT_COUNTS = (8, 16, 32, 64, 128, 256, 512)
BITS = ("kbit2", "kbit3", "kbit4", "kbit5", "mxfp4", "nvfp4", "q4_k", "fp8_128x128", "q8_0", "bf16")
MODELS = ("qwen3next", "qwen3-30b", "mixtral", "dsv3", "gpt-oss-120b")
SMALL_BATCH_FORMATS = ("bf16", "fp8_128x128", "q8_0", "nvfp4", "mxfp4", "q4_k", "kbit2", "kbit3", "kbit4", "kbit5")
SMALL_BATCH_DRAWN = ("bf16", "fp8_128x128", "nvfp4", "q4_k", "kbit2", "kbit3", "kbit4")
SMALL_BATCH_TOKENS = (2, 8, 16)
GEMV, GROUPED_GEMM = "experts:sm90_*_bf16_gemv_*", "experts:sm90_*_bf16_grouped_gemm_*"
WORKLOAD = ("bf16", "fp8_128x128", "nvfp4", "kbit4", "kbit2")
WORKLOAD_TOKENS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 1536, 2048)


def case(model, format, mode, n_tokens, **more):
    return {"model": model, "format": format, "mode": mode, "n_tokens": n_tokens, **more}


def name_of(one):
    """As moe-bench names it."""
    skew = f"zipf{one['zipf']:.1f}" if one.get("zipf") else "uniform"
    name = f"{one['model']}/{one['format']}/{one['mode']}/T{one['n_tokens']}/{skew}"
    return name + ("/unfused" if one.get("unfused") else "") + (f"/{one['kernels']}" if one.get("kernels") else "")


def fusion():
    return {"cases": [case(model, format, "layer", t, **variant)
                      for model, format in FUSION for variant in FUSION_VARIANTS for t in BATCHES]}


def experts():
    """k and intermediate stay, so every token costs the same arithmetic whatever the number of experts."""
    models = [{"name": f"experts-{n}", "hidden": 2048, "intermediate": 1024, "n_experts": n, "top_k": 4}
              for n in EXPERT_COUNTS]
    return {"models": models,
            "cases": [case(model["name"], format, "layer", t)
                      for model in models for format in ("bf16", "nvfp4") for t in (1, 32, 512, 8192)]}


def skew():
    """From ids, so that the same work is done before and after the experts whatever the skew."""
    return {"cases": [case(model, format, "ids", t, zipf=zipf)
                      for model in ("qwen3next", "qwen3-30b", "mixtral") for format in ("bf16", "nvfp4")
                      for t in (8, 32, 128, 512, 2048, 8192) for zipf in ZIPF]}


def bits():
    return {"cases": [case(model, format, "ids", t)
                      for model in ("qwen3-30b", "mixtral") for format in BITS for t in BATCHES]}


def roofline():
    return {"cases": [case(model, format, "layer", t, stages=True)
                      for model in ("qwen3next", "mixtral") for format in ("bf16", "nvfp4") for t in BATCHES]}


def workload():
    return {"cases": [case("qwen3next", format, "layer", t) for format in WORKLOAD for t in WORKLOAD_TOKENS]}


def small_batch():
    """Both families of a small batch, whichever a plan takes; one token alone says how many bytes an expert has."""
    pairs = [(model, format) for model in MODELS for format in SMALL_BATCH_FORMATS if (model, format) != ("gpt-oss-120b", "q4_k")]
    return {"cases": [one for model, format in pairs
                      for one in [*(case(model, format, "ids", t, kernels=kernels)
                                    for t in SMALL_BATCH_TOKENS for kernels in (GEMV, GROUPED_GEMM)),
                                  case(model, format, "ids", 1)]]}


SUBJECTS = {
    "fusion": "What fusing the stages is worth",
    "experts": "More experts, the same arithmetic for every token",
    "skew": "Skewed routing against uniform",
    "bits": "Bits of a weight against time",
    "small_batch": "Small-batch kernels against grouped ones",
    "roofline": "The stages under the roof",
    "workload": "A server of coding assistants",
}
STUDIES = {study.__name__: study for study in (fusion, experts, skew, bits, small_batch, roofline, workload)}
