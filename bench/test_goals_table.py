"""The tables of goals, of made-up results: a device that reads 1 MB and multiplies 500 Mflop in a microsecond."""
import json
import sys
import unittest

sys.dont_write_bytecode = True
import check_results  # noqa: E402
import goals_table  # noqa: E402
import page_test  # noqa: E402


def result(model, form, mode, n_tokens, zipf, us, mb, multiply_us=0.5):
    floor_us, flops = float(max(mb, multiply_us)), 5e8 * multiply_us
    skew = f"zipf{zipf}" if zipf else "uniform"
    return {**check_results.SAMPLE["results"][0], "case": f"{model}/{form}/{mode}/T{n_tokens}/{skew}", "model": model, "format": form,
            "mode": mode, "n_tokens": n_tokens, "zipf": zipf, "unfused": False, "kernels": "", "us": us, "us_lowest": us,
            "us_highest": us, "floor_us": floor_us, "times_floor": us / floor_us, "weight_bytes": mb * 1e6, "tb_per_s": mb / us,
            "flops": flops, "tflops": flops / us / 1e6, "n_launches": launches_of(mode, n_tokens), "stages": []}


def launches_of(mode, n_tokens):
    """As many as the kernel of the sample may have, and one more at T = 512."""
    return (5.0 if mode == "ids" else 7.0) + (n_tokens == 512)


# Behind each: its goals.
RESULTS = [
    result("a", "bf16", "ids", 1, 0.0, 49.05, 50),  # 1.05 x 50 + 2 = 54.5
    result("a", "bf16", "layer", 1, 0.0, 66.7, 50),  # 58
    result("a", "bf16", "layer", 1, 1.2, 63.22, 50),  # 58; skew: none, one token
    result("a", "nvfp4", "ids", 1, 0.0, 279.6, 200),  # 1.15 x 200 + 3 = 233
    result("mixtral", "kbit4", "ids", 1, 0.0, 133.0, 100),  # 1.3 x 100 + 3 = 133
    result("mixtral", "kbit2", "ids", 1, 0.0, 144.0, 50),  # 1.4 x 50 + 2 = 72; 133 / 1.5 = 88.667
    result("a", "q8_0", "ids", 1, 0.0, 12.0, 10),  # 1.05 x 10 + 2 = 12.5
    result("a", "q8_0", "ids", 2, 0.0, 25.0, 10),  # 1.15 x 1.05 x 10 + 2 = 14.075; 1.1 x 12 = 13.2
    result("a", "q8_0", "ids", 8, 0.0, 40.0, 40),  # 1.15 x 1.05 x 40 + 2 = 50.3
    result("a", "q8_0", "ids", 8, 1.2, 42.0, 20),  # 1.15 x 1.05 x 20 + 2 = 26.15; 1.02 x 40 = 40.8
    result("a", "kbit2", "layer", 16, 0.0, 166.75, 100),  # 1.15 x 1.4 x 100 + 3 + 3.5 = 167.5
    result("a", "bf16", "ids", 32, 0.0, 100.0, 80, 80.0),  # 80 / 0.92 = 86.957
    result("a", "bf16", "layer", 512, 0.0, 100.0, 80, 80.1),  # none: the floor is of flops
    result("a", "nvfp4", "ids", 64, 0.0, 120.0, 100),  # 100 / 0.75 = 133.333
    result("a", "nvfp4", "ids", 512, 0.0, 160.0, 100),  # 100 / 0.65 = 153.846
    result("a", "kbit3", "ids", 17, 0.0, 1500.0, 2000),  # 2000 / 0.65 = 3076.9
    result("mixtral", "bf16", "ids", 8192, 0.0, 110.0, 20, 85.0),  # 85 / 0.85 = 100
    result("mixtral", "mxfp4", "ids", 8192, 0.0, 99.0, 10, 85.0),  # 110
    result("a", "bf16", "ids", 8192, 0.0, 200.0, 20, 85.0),  # none: no prompt of Mixtral
]
DOCUMENT = {**check_results.SAMPLE, "read_floor": [{"bytes": 1e6, "us": 1.0}, {"bytes": 1e9, "us": 1000.0}], "results": RESULTS}
# 103.02 of 102 and 51 of 102; one token has no goal of skew.
SKEW = {**DOCUMENT, "results": [
    result("a", "nvfp4", "ids", 8, 0.0, 100.0, 80), result("a", "nvfp4", "ids", 8, 2.0, 103.02, 40),
    result("a", "nvfp4", "ids", 32, 0.0, 100.0, 80), result("a", "nvfp4", "ids", 32, 2.0, 51.0, 40),
    result("a", "bf16", "ids", 1, 0.0, 50.0, 50), result("a", "bf16", "ids", 1, 2.0, 60.0, 50)]}
PEERS = {"results": [{"peer": "libmoe", "model": "a", "format": "nvfp4", "n_tokens": 1, "us": 1.0},
                     {"peer": "ggml CUDA", "model": "a", "format": "nvfp4", "n_tokens": 1, "us": 400.0},
                     {"peer": "ggml CUDA", "model": "none of ours", "format": "nvfp4", "n_tokens": 1, "us": 1.0}]}
OUTSIDE = {"dense_cold_tflops": 600, "results": [
    {"peer": "Humming NVFP4 x bf16", "model": "a", "format": "nvfp4", "n_tokens": 64, "us": 96.0},
    {"peer": "Humming NVFP4 x bf16", "model": "a", "format": "nvfp4", "n_tokens": 512, "us": 200.0},
    {"peer": "Humming MXFP4 x fp8", "model": "mixtral", "format": "mxfp4_fp8", "n_tokens": 8192, "us": 50.0}]}
GOALS = """\
Of 19 cases 17 have a goal, and 8 meet all of theirs.
The dense rate of this run is 500 TFLOP/s at the power limit. Cold, on a card that was idle before, another run had 600 TFLOP/s; \
goals use the rate at the power limit.

| regime | formats | goal | cases | met | median of time / goal | worst case |
|--|--|--|--|--|--|--|
| T = 1, from ids | 16 and 8 bits | 1.05 x floor + b | 2 | 2 | 0.93 | `a/q8_0/ids/T1/uniform` 0.96 |
| T = 1, from ids | 4 bits | 1.15 x floor + b | 1 | 0 | 1.20 | `a/nvfp4/ids/T1/uniform` 1.20 |
| T = 1, from ids | kbit3 to kbit5 | 1.3 x floor + b | 1 | 1 | 1.00 | `mixtral/kbit4/ids/T1/uniform` 1.00 |
| T = 1, from ids | kbit2 | 1.4 x floor + b | 1 | 0 | 2.00 | `mixtral/kbit2/ids/T1/uniform` 2.00 |
| T = 1, whole layer | 16 and 8 bits | 1.05 x floor + b + 3.5 us | 2 | 0 | 1.12 | `a/bf16/layer/T1/uniform` 1.15 |
| T = 1, whole layer | 4 bits | 1.15 x floor + b + 3.5 us | 0 | - | - | - |
| T = 1, whole layer | kbit3 to kbit5 | 1.3 x floor + b + 3.5 us | 0 | - | - | - |
| T = 1, whole layer | kbit2 | 1.4 x floor + b + 3.5 us | 0 | - | - | - |
| T = 2 to 16, from ids | 16 and 8 bits | 1.15 x 1.05 x floor + b | 3 | 1 | 1.61 | `a/q8_0/ids/T2/uniform` 1.78 |
| T = 2 to 16, from ids | 4 bits | 1.15 x 1.15 x floor + b | 0 | - | - | - |
| T = 2 to 16, from ids | kbit3 to kbit5 | 1.15 x 1.3 x floor + b | 0 | - | - | - |
| T = 2 to 16, from ids | kbit2 | 1.15 x 1.4 x floor + b | 0 | - | - | - |
| T = 2 to 16, whole layer | 16 and 8 bits | 1.15 x 1.05 x floor + b + 3.5 us | 0 | - | - | - |
| T = 2 to 16, whole layer | 4 bits | 1.15 x 1.15 x floor + b + 3.5 us | 0 | - | - | - |
| T = 2 to 16, whole layer | kbit3 to kbit5 | 1.15 x 1.3 x floor + b + 3.5 us | 0 | - | - | - |
| T = 2 to 16, whole layer | kbit2 | 1.15 x 1.4 x floor + b + 3.5 us | 1 | 1 | 1.00 | `a/kbit2/layer/T16/uniform` 1.00 |
| T = 2 to 4, against T = 1 | 16 and 8 bits | 1.1 x time / floor at T = 1 | 1 | 0 | 1.89 | `a/q8_0/ids/T2/uniform` 1.89 |
| T = 2 to 4, against T = 1 | 4 bits | 1.1 x time / floor at T = 1 | 0 | - | - | - |
| T = 2 to 4, against T = 1 | kbit3 to kbit5 | 1.1 x time / floor at T = 1 | 0 | - | - | - |
| T = 2 to 4, against T = 1 | kbit2 | 1.1 x time / floor at T = 1 | 0 | - | - | - |
| T = 17 to 64, memory-bound | 16 and 8 bits | 92% of the read rate | 1 | 0 | 1.15 | `a/bf16/ids/T32/uniform` 1.15 |
| T = 65 to 512, memory-bound | 16 and 8 bits | 92% of the read rate | 0 | - | - | - |
| T = 17 to 64, memory-bound | 4 bits | 75% of the read rate | 1 | 1 | 0.90 | `a/nvfp4/ids/T64/uniform` 0.90 |
| T = 65 to 512, memory-bound | 4 bits | 65% of the read rate | 1 | 0 | 1.04 | `a/nvfp4/ids/T512/uniform` 1.04 |
| T = 17 to 64, memory-bound | kbit3 to kbit5 | 65% of the read rate | 1 | 1 | 0.49 | `a/kbit3/ids/T17/uniform` 0.49 |
| T = 65 to 512, memory-bound | kbit3 to kbit5 | 65% of the read rate | 0 | - | - | - |
| T = 17 to 64, memory-bound | kbit2 | 65% of the read rate | 0 | - | - | - |
| T = 65 to 512, memory-bound | kbit2 | 65% of the read rate | 0 | - | - | - |
| prompt, Mixtral, T = 8192 | bf16 | 85% of the dense rate | 1 | 0 | 1.10 | `mixtral/bf16/ids/T8192/uniform` 1.10 |
| prompt, T above 512 | 4 bits | the rate of bf16 | 1 | 1 | 0.90 | `mixtral/mxfp4/ids/T8192/uniform` 0.90 |
| bits, Mixtral, T = 1 | kbit2 | kbit4 / 1.5 | 1 | 0 | 1.62 | `mixtral/kbit2/ids/T1/uniform` 1.62 |
| Zipf 1.2, T from 8 | 16 and 8 bits | 1.02 x uniform | 1 | 0 | 1.03 | `a/q8_0/ids/T8/zipf1.2` 1.03 |
| Zipf 1.2, T from 8 | 4 bits | 1.02 x uniform | 0 | - | - | - |
| Zipf 1.2, T from 8 | kbit3 to kbit5 | 1.02 x uniform | 0 | - | - | - |
| Zipf 1.2, T from 8 | kbit2 | 1.02 x uniform | 0 | - | - | - |
| launches, from ids | all | 2 by gemv kernels, else 5 | 15 | 14 | 1.00 | `a/nvfp4/ids/T512/uniform` 1.20 |
| launches, whole layer | all | 4 by gemv kernels, else 7 | 4 | 3 | 1.00 | `a/bf16/layer/T512/uniform` 1.14 |
"""
SKEWED = """\
| Zipf 2.0, T from 8 | 16 and 8 bits | 1.02 x uniform | 0 | - | - | - |
| Zipf 2.0, T from 8 | 4 bits | 1.02 x uniform | 2 | 1 | 0.76 | `a/nvfp4/ids/T8/zipf2.0` 1.01 |
"""
NOT_SKEWED = """\
| Zipf 2.0, T from 8 | 16 and 8 bits | 1.02 x uniform | 0 | not measured | - | - |
| Zipf 2.0, T from 8 | 4 bits | 1.02 x uniform | 0 | not measured | - | - |
"""
PEER_ROWS = """\
| regime | formats | peer | cases | libmoe is faster in | median of time / peer's time | worst case |
|--|--|--|--|--|--|--|
| T = 1 | nvfp4, mxfp4, q4_k | ggml CUDA | 1 | 1 | 0.70 | `a/nvfp4/ids/T1/uniform` 0.70 |
| T = 2 to 16 | nvfp4, mxfp4, q4_k | ggml CUDA | 0 | - | not measured | - |
| T = 2 to 16 | bf16 | vLLM Triton | 0 | - | not measured | - |
| T = 17 to 512 | nvfp4 | Humming NVFP4 x bf16 | 2 | 1 | 1.02 | `a/nvfp4/ids/T64/uniform` 1.25 |
| prompt, T = 2048 and 8192 | nvfp4 | Humming NVFP4 x bf16 | 0 | - | not measured | - |
"""
FP8_PEER_ROWS = """| T = 17 to 512, activations in E4M3 | mxfp4_fp8 | Humming MXFP4 x fp8 | 0 | - | not measured | - |
| prompt, activations in E4M3, T = 2048 and 8192 | mxfp4_fp8 | Humming MXFP4 x fp8 | 1 | 0 | 2.00 | \
`mixtral/mxfp4/ids/T8192/uniform/activations_fp8/forced` 2.00 |
"""
SAME_RUN = """| activations | T | cases | libmoe is no slower in | median of time / Peer's | worst case |
|--|--|--|--|--|--|
| as given | 8192 | 1 | 0 | 1.30 | `mixtral/bf16` 1.30 |
| E4M3 | 64 | 2 | 1 | 1.20 | `mixtral/fp8_128x128_fp8` 1.50 |
| E4M3 | 8192 | 1 | 1 | 0.80 | `mixtral/fp8_128x128_fp8` 0.80 |
"""
ONE_AND_TWO = """\
| T = 1: from ids, whole layer | a | mixtral |
|--|--|--|
| bf16 | **0.90**, 1.15 | - |
| q8_0 | **0.96** | - |
| nvfp4 | 1.20 | - |
| kbit4 | - | **1.00** |
| kbit2 | - | 2.00 |

| T = 2: from ids, whole layer | a | mixtral |
|--|--|--|
| q8_0 | 1.78 | - |
"""


ABOUT = goals_table.SameRun("a/{}.json", "Peer", "What.", ("T", "all", "no slower"))


def beside(about, *cases):
    """Format, tokens, microseconds of libmoe and of the peer, or None where it has not run."""
    results = [{"peer": peer, "model": "mixtral", "format": form, "n_tokens": n_tokens, "us": us}
               for form, n_tokens, *both in cases for peer, us in zip(("libmoe", "theirs"), both) if us]
    return {**DOCUMENT, "results": results}, about.path, about


def document_with(*results):
    return {**DOCUMENT, "results": [*RESULTS, *results]}


class Tables(unittest.TestCase):
    def test_by_hand(self):
        self.maxDiff = None
        device, date = DOCUMENT["device"]["name"], DOCUMENT["date"][:10]
        heading = f"{device}, commit {DOCUMENT['commit']}, {date}: [results](results/h200.json). "
        made = goals_table.block(DOCUMENT, SKEW, PEERS, OUTSIDE)
        self.assertTrue(made.startswith(heading + GOALS + SKEWED), made)
        self.assertIn(PEER_ROWS, made)
        self.assertTrue(made.endswith(ONE_AND_TWO))

    def test_another_card_has_its_own_regimes_and_no_peers(self):
        made = goals_table.other_card_block(DOCUMENT)
        self.assertIn("(results/h100.json)", made)
        self.assertIn(GOALS[GOALS.index("| regime"):] + "\nPeers without a result on this card:\n", made)
        self.assertNotIn("| peer |", made)

    def test_a_peer_of_the_same_run_is_compared_where_both_ran(self):
        made = "\n".join(goals_table.same_run_table(*beside(
            ABOUT, ("nvfp4", 32, 90.0, 100.0), ("awq", 32, 150.0, 100.0), ("mxfp4", 32, 80.0, None), ("mxfp4", 64, None, 80.0))))
        self.assertTrue(made.endswith("\n| 32 | 2 | 1 | 1.20 | `mixtral/awq` 1.50 |"), made)
        self.assertIn("**Beside Peer, in one run.** ", made)
        self.assertIn("\n| T | cases | libmoe is no slower in |", made)

    def test_activations_of_both_kinds_have_rows_of_their_own(self):
        made = "\n".join(goals_table.same_run_table(*beside(
            ABOUT, ("fp8_128x128_fp8", 8192, 80.0, 100.0), ("fp8_128x128_fp8", 64, 150.0, 100.0), ("nvfp4_fp8", 64, 90.0, 100.0),
            ("bf16", 8192, 130.0, 100.0))))
        self.assertTrue(f"{made}\n".endswith("\n\n" + SAME_RUN), made)

    def test_a_peer_may_have_several_files(self):
        several = [beside(about, ("nvfp4", 64, 90.0, 100.0)) for about in goals_table.SAME_RUNS]
        made = goals_table.other_card_block(DOCUMENT, None, several)
        self.assertEqual(made.count("**Beside Humming, in one run.**"), sum(about.peer == "Humming" for about in goals_table.SAME_RUNS))
        for about in goals_table.SAME_RUNS:
            self.assertIn(f"[results](results/{about.path.removeprefix('bench/results/')}). {about.text}\n", made)

    def test_a_peer_that_has_no_file_of_the_card_says_so(self):
        for block in (goals_table.block, goals_table.other_card_block):
            for about in goals_table.SAME_RUNS:
                row = f"| {' | '.join(about.goal)} | not measured: no result file of this card |\n"
                self.assertIn(row, block(DOCUMENT))
                self.assertNotIn(row, block(DOCUMENT, beside=[beside(about, ("nvfp4", 64, 90.0, 100.0))]))
        everything = [beside(about, ("nvfp4", 64, 90.0, 100.0)) for about in goals_table.SAME_RUNS]
        self.assertNotIn("Peers without a result", goals_table.other_card_block(DOCUMENT, beside=everything))

    def test_a_row_of_another_run_gives_way_to_a_file_of_one_run(self):
        forced = {**result("mixtral", "mxfp4", "ids", 8192, 0.0, 100.0, 10, 85.0), "activation_quantization": "fp8", "kernels": "forced",
                  "case": "mixtral/mxfp4/ids/T8192/uniform/activations_fp8/forced"}
        given = result("mixtral", "mxfp4", "ids", 8192, 0.0, 110.0, 10, 85.0)
        lists = {"fp8": {**DOCUMENT, "results": [given, forced]}}
        same_run = next(about for about in goals_table.SAME_RUNS if about.path == goals_table.HUMMING_FP8)
        self.assertIn(PEER_ROWS + FP8_PEER_ROWS, goals_table.block(DOCUMENT, SKEW, PEERS, OUTSIDE, lists))
        made = goals_table.block(DOCUMENT, SKEW, PEERS, OUTSIDE, lists, beside=[beside(same_run, ("mxfp4_fp8", 64, 90.0, 100.0))])
        self.assertIn(PEER_ROWS, made)
        self.assertNotIn("Humming MXFP4 x fp8", made)

    def test_what_has_no_result_says_so(self):
        uncounted = [{key: value for key, value in r.items() if key != "n_launches"} for r in RESULTS]
        made = goals_table.block({**DOCUMENT, "results": uncounted})
        self.assertIn(NOT_SKEWED, made)
        self.assertIn("; the cold rate was not measured.", made)
        for regime in ("T = 17 to 512", "launches", "memory", "load", "prompt, T = 2048 and 8192", "4-bit x fp8, T = 64 to 512 and prompts",
                       "activations in E4M3, T = 17 to 8192", "fp16 activations", "gate and up of different formats", "iq2 and iq3, T = 1 and T = 8192",
                       "shapes: I, H and S off the grid of 64", "portable kernels on Hopper, T = 1 to 16"):
            self.assertRegex(made, rf"(?m)^\| {regime} \| .* \| .* \| not measured: .* \|$")
        self.assertEqual(made.count("not measured | - |\n"), len(goals_table.PEER_GOALS))

    def test_a_peer_of_another_run_is_not_counted(self):
        with_peers, without = (goals_table.block(DOCUMENT, None, *more).splitlines()[0] for more in ((PEERS, OUTSIDE), ()))
        self.assertEqual(with_peers, without)

    def test_floors_between_the_sizes_that_were_read_and_beyond(self):
        points = [{"bytes": 1e6, "us": 3.0}, {"bytes": 3e6, "us": 4.0}, {"bytes": 1e7, "us": 11.0}]
        run = goals_table.Run({**DOCUMENT, "read_floor": points, "results": []}, "a file")
        for size, us in ((5e5, 3.0), (1e6, 3.0), (2e6, 3.5), (3e6, 4.0), (1e7, 11.0), (3e7, 33.0)):
            self.assertAlmostEqual(run.read_us({"weight_bytes": size}), us)

    def test_a_plan_with_wishes_is_not_counted(self):
        forced = result("a", "bf16", "ids", 8, 0.0, 20.0, 10)
        for wish in ({"unfused": True, "case": f"{forced['case']}/unfused"}, {"kernels": "k", "case": f"{forced['case']}/k"}):
            self.assertEqual(goals_table.block(document_with({**forced, **wish})), goals_table.block(DOCUMENT))

    def test_without_a_dense_rate_no_floor_is_of_flops(self):
        one = result("mixtral", "bf16", "ids", 8192, 0.0, 110.0, 20, 1.0)
        other = result("mixtral", "bf16", "ids", 512, 0.0, 25.0, 20, 1.0)
        made = goals_table.block({**DOCUMENT, "dense_tflops": 0, "results": [one, other]})
        self.assertIn("| 85% of the dense rate | 0 | - | - | - |", made)
        self.assertIn("| 92% of the read rate | 1 | 0 | 1.15 |", made)

    def test_what_has_no_goal_or_nothing_to_be_compared_with_is_refused(self):
        wrong_floor = {**result("a", "bf16", "ids", 8, 0.0, 20.0, 10), "floor_us": 9.0}
        for wrong, said in ((result("a", "iq2_s", "ids", 8, 0.0, 20.0, 10), "in a format that no goal is for"),
                            (result("a", "bf16", "layer", 8, 1.2, 20.0, 10), "lacks a/bf16/layer/T8/uniform"),
                            (result("b", "bf16", "ids", 4, 0.0, 20.0, 10), "lacks b/bf16/ids/T1/uniform"),
                            (result("b", "nvfp4", "ids", 8192, 0.0, 20.0, 10), "lacks b/bf16/ids/T8192/uniform"),
                            (result("mixtral", "kbit2", "layer", 1, 0.0, 20.0, 10), "lacks mixtral/kbit4/layer/T1/uniform"),
                            (wrong_floor, "has the floor 9.000, by the rates of the file it is 10.000")):
            with self.assertRaises(SystemExit) as refusal:
                goals_table.block(document_with(wrong))
            self.assertIn(said, str(refusal.exception))


class Files(page_test.PageTest, unittest.TestCase):
    script = goals_table
    document = DOCUMENT
    schema = "results.schema.json"

    def test_written_then_held(self):
        self.check_written_then_held(ONE_AND_TWO, "1.20", "1.00")

    def test_other_results_make_the_page_stale(self):
        self.results.write_text(json.dumps(DOCUMENT))
        self.assertEqual(self.run_it("--write").returncode, 0)
        self.results.write_text(json.dumps({**DOCUMENT, "results": [result("a", "bf16", "ids", 1, 0.0, 48.0, 50), *RESULTS[1:]]}))
        self.assertEqual(self.run_it().returncode, 1)

    def test_without_results_it_is_refused(self):
        self.assertNotEqual(self.run_it("--write").returncode, 0)


unittest.main()
