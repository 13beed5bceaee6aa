"""The tables and figures of the CPU, of made-up results."""
import sys
import unittest

sys.dont_write_bytecode = True
import check_results  # noqa: E402
import cpu_table  # noqa: E402
import page_test  # noqa: E402

SAMPLE = check_results.CPU_SAMPLE


def result(form, n_tokens, rate, read, model="qwen3-30b", n_threads=2, **peers):
    """peers: their rates by name, with _ for -."""
    flops = 6.0 * n_tokens * 2 * 256 * 512
    made = {**SAMPLE["results"][0], "model": model, "format": form, "n_tokens": n_tokens, "n_threads": n_threads,
            "gb_per_s": rate, "gb_per_s_best": rate, "read_gb_per_s": read, "read_gb_per_s_best": read, "ratio": rate / read,
            "ratio_best": rate / read, "flops": flops, "gflops": flops / 500e3, "gflops_best": flops / 480e3, "peers": []}
    made["case"] = f"{model}/{form}/bf16/T{n_tokens}/{n_threads}thread" + ("s" if n_threads > 1 else "")
    for name, speed in peers.items():
        made["peers"].append({**SAMPLE["results"][0]["peers"][0], "name": name.replace("_", "-"), "format": form, "gb_per_s": speed,
                              "gb_per_s_best": speed, "ratio": rate / speed, "ratio_best": rate / speed})
    return made


RESULTS = [
    result("q4_k", 1, 40.0, 50.0, ggml=32.0),
    result("q4_k", 16, 30.0, 50.0, ggml=10.0),
    result("q4_k", 512, 2.0, 50.0, ggml=1.0),
    result("kbit2", 1, 10.0, 40.0),
    result("q4_k", 1, 20.0, 30.0, n_threads=1, ggml=10.0),
    result("bf16", 16, 45.0, 50.0, model="mixtral", ggml=30.0),
]
DOCUMENT = {**SAMPLE, "peers": SAMPLE["peers"][:1], "results": RESULTS}
BLOCK = """\
a processor of this test, 2 cores, commit 0123abc, 2000-01-01: [results](../bench/results/cpu-2.json). It reads 30.0 GB/s \
with 1 thread, 50.0 GB/s with 2 threads. ggml 0.25.1 (an_isa).

| 2 threads | GB/s, T = 1 | / read rate | speed / ggml, T = 1 | 16 | 512 | GFLOP/s, T = 512 |
|--|--|--|--|--|--|--|
| qwen3-30b q4_k | 40.0 | 0.80 | 1.25 | 3.00 | 2.00 | 1678 |
| qwen3-30b kbit2 | 10.0 | 0.25 | - | - | - | - |
| mixtral bf16 | - | - | - | 1.50 | - | - |

![cpu-2: qwen3-30b in every format, 0.25 to 0.80 of the read rate at T = 1, 2 threads](pictures/cpu-2.svg)
"""


class Tables(unittest.TestCase):
    def test_by_hand(self):
        self.assertEqual(cpu_table.block({"cpu-2": DOCUMENT}), BLOCK)

    def test_two_machines(self):
        made = cpu_table.block({"cpu-2": DOCUMENT, "cpu-16": DOCUMENT})
        self.assertEqual(made, BLOCK + "\n" + BLOCK.replace("cpu-2", "cpu-16"))

    def test_without_results_it_says_so(self):
        self.assertEqual(cpu_table.block({}), "Not measured yet.\n")

    def test_results_of_the_second_form(self):
        second = check_results.in_second_form({**DOCUMENT, "results": RESULTS[:3]})
        self.assertEqual(cpu_table.block({"cpu-2": second}), cpu_table.block({"cpu-2": {**DOCUMENT, "results": RESULTS[:3]}}))
        second["results"][0]["peer"] = None
        self.assertIn("| qwen3-30b q4_k | 40.0 | 0.80 | - | 3.00 | 2.00 | 1678 |", cpu_table.block({"cpu-2": second}))

    def test_a_second_peer_has_columns(self):
        results = [result("q4_k", 1, 40.0, 50.0, ggml=32.0, ik=40.0, ik_rtr=20.0), result("q4_k", 512, 2.0, 50.0, ik=4.0, ik_rtr=8.0),
                   result("kbit2", 1, 10.0, 40.0), result("bf16", 16, 45.0, 50.0, ggml=30.0, ik_rtr=22.5)]
        peers = [*SAMPLE["peers"], {**SAMPLE["peers"][1], "name": "ik-rtr"}]
        made = cpu_table.block({"cpu-2": {**DOCUMENT, "peers": peers, "results": results}})
        self.assertIn(" ggml 0.25.1 (an_isa). ik 0123abc (another_isa).\n", made)
        table = """\
| 2 threads | GB/s, T = 1 | / read rate | speed / ggml, T = 1 | 16 | 512 | speed / ik, T = 1 | 16 | 512 | GFLOP/s, T = 512 |
|--|--|--|--|--|--|--|--|--|--|
| qwen3-30b q4_k | 40.0 | 0.80 | 1.25 | - | - | 1.00 | - | 0.25 | 1678 |
| qwen3-30b kbit2 | 10.0 | 0.25 | - | - | - | - | - | - | - |
| qwen3-30b bf16 | - | - | - | 1.50 | - | - | 2.00 | - | - |
"""
        self.assertIn(table, made)

    def test_only_the_second_peer(self):
        made = cpu_table.block({"cpu-2": {**DOCUMENT, "peers": SAMPLE["peers"][1:], "results": [result("q4_k", 1, 40.0, 50.0, ik=20.0)]}})
        self.assertNotIn("ggml", made)
        self.assertIn("| qwen3-30b q4_k | 40.0 | 0.80 | 2.00 | - | - | - |", made)

    def test_without_a_peer(self):
        made = cpu_table.block({"cpu-2": {**DOCUMENT, "peers": [], "results": [result("q4_k", 1, 40.0, 50.0)]}})
        self.assertIn("It reads 30.0 GB/s with 1 thread, 50.0 GB/s with 2 threads.\n", made)
        self.assertIn("| qwen3-30b q4_k | 40.0 | 0.80 | - | - | - | - |", made)

    def test_failures_are_told(self):
        self.assertIn(" 2 measurements failed.\n", cpu_table.block({"cpu-2": {**DOCUMENT, "failures": ["one", "two"]}}))

    def test_filtered_kernels_and_other_types_are_left_out(self):
        others = [{**RESULTS[0], "kernels": "experts:*", "gb_per_s_best": 1.0}, {**RESULTS[0], "x_type": "f32", "gb_per_s_best": 1.0}]
        self.assertEqual(cpu_table.block({"cpu-2": {**DOCUMENT, "results": RESULTS + others}}), BLOCK)


    def test_bytes_have_rows_of_their_own(self):
        others = [{**RESULTS[0], "int8": True, "gb_per_s_best": 45.0, "ratio_best": 0.9}]
        made = cpu_table.block({"cpu-2": {**DOCUMENT, "results": RESULTS + others}})
        row = "| qwen3-30b q4_k, int8 | 45.0 | 0.90 | 1.25 | - | - | - |\n"
        self.assertEqual(made.replace(row, ""), BLOCK)
        self.assertIn(row, made)


class Figures(unittest.TestCase):
    def test_a_line_per_format(self):
        made = cpu_table.figure("cpu-2", DOCUMENT)
        self.assertEqual(made.count("<polyline"), 3 + 2)  # the read rate in each panel; q4_k and kbit2
        self.assertEqual(made.count("<circle"), 3 + 1)
        self.assertIn(">q4_k</text>", made)
        self.assertNotIn(">bf16</text>", made)

    def test_it_follows_the_results(self):
        slower = {**DOCUMENT, "results": [result("q4_k", 1, 39.0, 50.0), *RESULTS[1:]]}
        self.assertNotEqual(cpu_table.figure("cpu-2", slower), cpu_table.figure("cpu-2", DOCUMENT))

    def test_nothing_to_draw(self):
        self.assertIsNone(cpu_table.figure("cpu-2", {**DOCUMENT, "results": RESULTS[-1:]}))

    def test_every_format_of_a_panel_has_a_color(self):
        for _, formats in cpu_table.PANELS:
            self.assertLessEqual(len(formats), len(cpu_table.chart.COLORS))


class Files(page_test.PageTest, unittest.TestCase):
    script = cpu_table
    document = DOCUMENT
    schema = "cpu.schema.json"
    machine = "machine"
    file = "bench/results/cpu-2.json"

    def test_written_then_held(self):
        self.check_written_then_held(BLOCK, "| 40.0 |", "| 41.0 |")

    def test_a_figure_that_is_not_of_the_results_is_told(self):
        self.results.write_text(page_test.json.dumps(DOCUMENT))
        self.assertEqual(self.run_it("--write").returncode, 0)
        for path, change in ((self.root / "docs/pictures/cpu-2.svg", lambda path: path.unlink()),
                             (self.root / "docs/pictures/cpu-16.svg", lambda path: path.write_text("<svg/>"))):
            self.assertEqual(self.run_it().returncode, 0)
            change(path)
            self.assertIn(f"{path.name} is not what the results make", self.run_it().stderr)
            self.assertEqual(self.run_it("--write").returncode, 0)

    def test_without_results(self):
        self.assertNotEqual(self.run_it().returncode, 0)
        self.assertEqual(self.run_it("--write").returncode, 0)
        self.assertEqual(self.page.read_text(), self.empty_page.replace(cpu_table.MARKS[1], "Not measured yet.\n" + cpu_table.MARKS[1]))
        self.assertEqual(self.run_it().returncode, 0)


unittest.main()
