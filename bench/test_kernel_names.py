"""Old names of kernels in today's words: the table is that of the library, committed results become what a new run would say."""
import json
import pathlib
import re
import unittest

import sys

sys.dont_write_bytecode = True
import kernel_names  # noqa: E402

BENCH = pathlib.Path(__file__).resolve().parent
TODAY = re.compile(r"sm(80|90)_[a-z0-9_+]+_(bf16|f16|f32|fp8)_(gemv|grouped_gemm|generic|exact)_gate_up")


class KernelNames(unittest.TestCase):
    def test_the_table_is_that_of_the_library(self):
        source = (BENCH.parent / "libmoe/plan/kernel_filter.cpp").read_text()
        table = source[source.index("old_names[] = {"):]
        listed = re.findall(r'\{"([^"]+)",\s*"([^"]+)"\}', table[:table.index("};")])
        today = {old: glob.replace("_generic_", "_grouped_gemm_") for old, glob in kernel_names.OLD_NAMES.items()}
        self.assertEqual(dict(listed), today)

    def test_kernels(self):
        for old, format, new in (
            ("sm90_any_bf16_experts_one_token", "nvfp4", "sm90_nvfp4_bf16_gemv_gate_up"),
            ("sm90_any_bf16_experts_grouped", "fp8_128x128", "sm90_e4m3_bf16_grouped_gemm_gate_up"),
            ("cuda_any_f32_experts_exact", "f32", "sm80_f32_f32_exact_gate_up"),
            ("cuda_any_f32_combine", "nvfp4", "sm80_any_f32_combine"),
            ("sm80_q6_k_bf16_generic_gate_up", "q6_k", "sm80_q6_k_bf16_generic_gate_up"),
        ):
            self.assertEqual(kernel_names.renewed_kernel(old, format), new)

    def test_filters(self):
        self.assertEqual(kernel_names.renewed_filter(""), "")
        self.assertEqual(kernel_names.renewed_filter("-cuda_any_f32_combine, +sm90_any_bf16_experts_grouped"),
                         "-sm80_any_f32_combine,+experts:sm90_*_bf16_grouped_gemm_*")
        self.assertEqual(kernel_names.renewed_filter("-finish:sm80_*"), "-finish:sm80_*")

    def test_families(self):
        for name, family in (("sm90_nvfp4_bf16_gemv_gate_up", "gemv"), ("sm80_q4_k+q5_k_bf16_generic_gate_up", "generic"),
                             ("sm90_e4m3_bf16_grouped_gemm_gate_up", "grouped_gemm")):
            self.assertEqual(kernel_names.family(name), family)
        with self.assertRaises(SystemExit):
            kernel_names.family("sm90_any_bf16_experts_grouped")

    def test_committed_results(self):
        for path in sorted((BENCH / "results").glob("*.json")):
            if path.name.startswith(("peers", "cpu-", "llama_cpp-")):
                continue
            results = json.loads(path.read_text())["results"]
            renewed = [kernel_names.renewed(result) for result in results]
            for before, after in zip(results, renewed):
                self.assertRegex(after["kernel"], TODAY, path.name)
                self.assertEqual({key for key in after if after[key] != before[key]} - {"case", "kernel", "kernels"}, set())
                self.assertTrue(after["case"].endswith(after["kernels"]))
                self.assertEqual(kernel_names.renewed(after), after)
            self.assertEqual(len({result["case"] for result in renewed}), len(results), path.name)


if __name__ == "__main__":
    unittest.main()
