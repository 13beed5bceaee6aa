"""The speeds of README.md and docs/performance.md, of made-up results."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import check_results  # noqa: E402
import goal_rules  # noqa: E402
import list_tables  # noqa: E402
import readme_table  # noqa: E402
import regimes  # noqa: E402


def case(name, us, **more):
    model, form, mode, tokens, _ = name.split("/")
    return {**check_results.SAMPLE["results"][0], "case": name, "model": model, "format": form, "mode": mode, "n_tokens": int(tokens[1:]), "us": us,
            "us_lowest": us, "us_highest": us, "floor_us": us / 2, "times_floor": 2.0, **more}


def peer(name, model, form, n_tokens, us):
    return {"peer": name, "model": model, "format": form, "n_tokens": n_tokens, "us": us}


MAIN = {**check_results.SAMPLE, "results": [
    case("qwen3next/nvfp4/ids/T1/uniform", 9.2), case("mixtral/nvfp4/layer/T8192/uniform", 100.0), case("mixtral/bf16/ids/T8192/uniform", 300.0),
    case("dsv3/bf16/layer/T1/uniform", 50.0, times_floor=5.5)]}
PEERS = {"commit": "89abcde", "results": [
    peer("libmoe", "mixtral", "bf16", 1, 20.0), peer("vLLM Triton", "mixtral", "bf16", 1, 30.0), peer("torch", "mixtral", "bf16", 1, 80.0),
    peer("libmoe", "qwen3next", "bf16", 1, 10.0), peer("Humming, products only", "qwen3next", "bf16", 1, 9.0),
    peer("libmoe", "mixtral", "bf16", 16, 120.4), peer("libmoe", "mixtral", "q4_k", 2, 4.0), peer("ggml", "mixtral", "q4_k", 2, 8.0)]}
OUTSIDE = {"dense_cold_tflops": 600, "results": [peer("Humming NVFP4 x bf16", "mixtral", "bf16", 8192, 250.0)]}
PEER_TABLE = """\
| us of a layer | T = 1 | T = 16 | T = 8192 |
|--|--|--|--|
| Qwen3-Next, bf16 | 10.0, **Humming GEMMs 9.0** | - | - |
| Mixtral, bf16 | **20.0**, vLLM Triton 30.0 | - | 300, **Humming GEMMs 250** |
"""
SUMMARY = """\
| time of the best peer / time of libmoe | T = 1 | T = 2 | T = 8 | T = 16 | T = 8192 |
|--|--|--|--|--|--|
| bf16 | 0.90 to 1.50 (Humming GEMMs; vLLM Triton) | - | - | - | 0.83 (Humming GEMMs) |
| NVFP4 | - | - | - | - | - |
| MXFP4 | - | - | - | - | - |
| q4_k | - | 2.00 (ggml) | - | - | - |
"""
ONE_TOKEN = """\
| T = 1 | Qwen3-Next | Qwen3-30B | Mixtral | DeepSeek-V3 | gpt-oss-120b |
|--|--|--|--|--|--|
| nvfp4 | 9.2 (2.00) | - | - | - | - |
"""
PROMPT = """\
| T = 8192 | Qwen3-Next | Qwen3-30B | Mixtral | DeepSeek-V3 | gpt-oss-120b |
|--|--|--|--|--|--|
| bf16 | - | - | 50 | - | - |
| DeepGEMM bf16, two GEMMs alone, another run, on an H200 | - | - | - | - | - |

A dense bfloat16 GEMM of cuBLASLt reached 500 TFLOP/s in the same run, at the power limit. On a card that was idle before it reached 600 TFLOP/s"""
BESIDE = """\
| activations | T | Mixtral | b |
|--|--|--|--|
| as given | 2048 | 1.50 | 0.50 |
| E4M3 | 512 | 0.80 | 1.05 |
<!-- end of"""
POINTS = [{"bytes": 1e6, "us": 1.0}, {"bytes": 1e9, "us": 1000.0}]


def listed(name, us, **more):
    """A case of a list: 20 MB, which take 20 us to read."""
    one = case(name, us, **{"unfused": False, "kernels": "", "zipf": 0.0, "floor_us": 20.0, "times_floor": us / 20.0, **more})
    return {**one, "case": goal_rules.name_of(one)}


I96 = {"hidden": 2048, "intermediate": 96, "n_experts": 128, "top_k": 8, "shared_intermediate": 0}
LISTS = {
    "formats": [listed("qwen3-30b/q4_k+q6_k/ids/T1/uniform", 30.0), listed("qwen3-30b/q4_k+q6_k/ids/T512/uniform", 120.0)],
    "shapes": [listed("small/bf16/ids/T32/uniform", 60.0, shape=I96), listed("next/bf16/ids/T32/uniform", 50.0, shape={**I96, "intermediate": 128})],
    "fp16": [listed("qwen3-30b/f16/ids/T8/uniform", 40.0), listed("qwen3-30b/f16/ids/T8/uniform", 50.0, x_type="f16"),
             listed("qwen3-30b/f16/ids/T8/uniform", 60.0, x_type="f16", intermediate_type="f16")],
    "fp8": [listed("qwen3-30b/fp8_128x128/ids/T32/uniform", 60.0),
            listed("qwen3-30b/fp8_128x128/ids/T32/uniform", 45.0, activation_quantization="fp8")],
    "portable": [listed("mixtral/awq/ids/T1/uniform", 40.0), listed("mixtral/awq/ids/T1/uniform", 44.0, kernels="-experts:sm90_*")],
}
LIST_ROWS = (
    "| qwen3-30b | T = 1 | T = 8 | T = 32 | T = 512 | T = 8192 |\n|--|--|--|--|--|--|\n| q4_k+q6_k | 30.0 (1.50) | - | - | 120 (6.00) | - |\n",
    "| intermediate 96, bf16 | - | - | 60.0 (1.20) | - | - |\n", "| qwen3-30b, f16 | - | 1.25, 1.50 | - | - | - |\n", "| qwen3-30b, fp8_128x128 | - | - | 45.0 (0.75) | - | - |\n",
    "| mixtral, awq | 44.0 (1.10) | - | - | - | - |\n", "[results](../bench/results/formats-h100.json)")
FLOORS = "| DeepSeek-V3 layer | 5.50 | - | - | - | - | - | - | - |"


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for part in ("bench/results", "docs"):
            (self.root / part).mkdir(parents=True)
        written = (("bench/results/h100.json", MAIN), ("bench/results/h200.json", MAIN), ("bench/results/peers.json", PEERS),
                   ("bench/outside.json", OUTSIDE))
        for path, document in written:
            (self.root / path).write_text(json.dumps(document))
        self.readme, self.page = self.root / "README.md", self.root / "docs/performance.md"
        self.readme.write_text("before\n" + "".join(readme_table.MARKS))
        blocks = [readme_table.MARKS, readme_table.SUMMARY_MARKS, readme_table.BESIDE_MARKS, *map(regimes.marks, (*regimes.REGIMES, *list_tables.TABLES))]
        self.page.write_text("between\n".join("".join(marks) for marks in blocks))

    def run_it(self, *arguments):
        return subprocess.run([sys.executable, readme_table.__file__, self.root, *arguments], capture_output=True, text=True)

    def test_written_then_held(self):
        self.assertEqual(self.run_it().returncode, 1)
        self.assertEqual(self.run_it("--write").returncode, 0)
        self.assertIn(PEER_TABLE, self.readme.read_text())
        self.assertIn("at commits 89abcde and 0123abc", self.readme.read_text().replace("\n", " "))
        for wanted in (SUMMARY, FLOORS, ONE_TOKEN, PROMPT, "1 take more than 5 times their floor: `dsv3/bf16/layer/T1/uniform` 5.50", "takes 9.2 us"):
            self.assertIn(wanted, self.page.read_text())
        self.assertEqual(self.run_it().returncode, 0)
        for page, good, bad in ((self.readme, "250", "350"), (self.page, "0.90", "1.90"), (self.page, "5.50", "1.50")):
            text = page.read_text()
            page.write_text(text.replace(good, bad))
            self.assertEqual(self.run_it().returncode, 1, good)
            page.write_text(text)

    def test_lists_have_tables_where_there_are_results(self):
        self.assertEqual(self.run_it("--write").returncode, 0)
        self.assertEqual(self.page.read_text().count("Not measured: no result file."), len(LISTS) + 1)
        for name, results in LISTS.items():
            document = {**check_results.SAMPLE, "results": results, "read_floor": POINTS}
            (self.root / f"bench/results/{name}-h100.json").write_text(json.dumps(document))
        self.assertEqual(self.run_it().returncode, 1)
        self.assertEqual(self.run_it("--write").returncode, 0)
        for wanted in LIST_ROWS:
            self.assertIn(wanted, self.page.read_text())

    def test_deepgemm_has_a_table_where_it_ran_beside_libmoe(self):
        times = (("mixtral", "fp8_128x128_fp8", 512, 80.0, 100.0), ("b", "fp8_128x128_fp8", 512, 210.0, 200.0), ("mixtral", "bf16", 2048, 30.0, 20.0),
                 ("b", "bf16", 2048, 10.0, 20.0), ("b", "fp8_128x128_fp8", 64, 10.0, 20.0),  # not every model has 64, nor 8192
                 ("mixtral", "bf16", 8192, 280.0, 240.0))
        results = [peer(name, *layer, us) for *layer, ours, theirs in times for name, us in (("libmoe", ours), ("DeepGEMM, GEMMs only", theirs))]
        (self.root / readme_table.BESIDE).write_text(json.dumps({**check_results.PEERS_SAMPLE, "results": results}))
        self.assertEqual(self.run_it("--write").returncode, 0)
        self.assertIn(BESIDE, self.page.read_text())
        self.assertIn("| - | 280, **DeepGEMM GEMMs 240** |\n", self.page.read_text() + (self.root / "README.md").read_text())
        self.assertIn("an H200 | - | - | 4 | - | - |\n", self.page.read_text())

    def test_a_page_without_its_marks_is_refused(self):
        self.page.write_text("".join(readme_table.MARKS))
        self.assertIn("lacks a mark", self.run_it("--write").stderr)

    def test_what_is_committed_about_peers_can_be_read(self):
        document = json.loads((pathlib.Path(readme_table.__file__).parent / "outside.json").read_text())
        keys = [(r["peer"], *readme_table.key(r)) for r in document["results"]]
        self.assertEqual(len(keys), len(set(keys)))
        self.assertTrue(all(r["us"] > 0 and r["what"] for r in document["results"]))


unittest.main()
