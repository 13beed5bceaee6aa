"""The tables of peers, of made-up results."""
import sys
import unittest

sys.dont_write_bytecode = True
import check_results  # noqa: E402
import peers_table  # noqa: E402
import page_test  # noqa: E402


def result(peer, model, form, n_tokens, us, floor_us, note="a note"):
    return {"peer": peer, "version": "1.0", "model": model, "format": form, "n_tokens": n_tokens, "us": us, "floor_us": floor_us,
            "note": note}


RESULTS = [
    result("ours", "a", "bf16", 1, 20.0, 16.0),
    result("ours", "a", "fp4", 1, 10.0, 5.0),
    result("ours", "b", "bf16", 1, 60.0, 50.0),
    result("ours", "b", "fp4", 1, 30.0, 20.0),
    result("theirs", "a", "bf16", 1, 25.0, 16.0, "no sum"),
    result("theirs", "b", "bf16", 1, 40.0, 50.0, "sum"),
    result("others", "a", "fp4", 1, 9.0, 5.0),
    result("ours", "a", "fp4", 8, 12.0, 10.0),
]
DOCUMENT = {**check_results.PEERS_SAMPLE, "results": RESULTS}
TABLES = """\
- ours 1.0: a note
- theirs 1.0: no sum / sum
- others 1.0: a note

| T = 1, us | ours | theirs | others | best | bf16 / best | best / floor |
|--|--|--|--|--|--|--|
| a bf16 | 20.0 | 25.0 | - | ours | 1.00 | 1.25 |
| a fp4 | 10.0 | - | 9.0 | others | 2.22 | 1.80 |
| b bf16 | 60.0 | 40.0 | - | theirs | 1.00 | 0.80 |
| b fp4 | 30.0 | - | - | ours | 1.33 | 1.50 |
| **total** bf16 | 80.0 | 65.0 | - | theirs | 1.00 | 0.98 |
| **total** fp4 | 40.0 | - | - | ours | 1.62 | 1.60 |

| T = 8, us | ours | best | bf16 / best | best / floor |
|--|--|--|--|--|
| a fp4 | 12.0 | ours | - | 1.20 |
"""


class Tables(unittest.TestCase):
    def test_by_hand(self):
        device, date = DOCUMENT["device"]["name"], DOCUMENT["date"][:10]
        heading = f"{device}, commit {DOCUMENT['commit']}, {date}: [results](results/peers.json).\n\n"
        self.assertEqual(peers_table.block(DOCUMENT), heading + TABLES)

    def test_older_names_get_the_words_of_the_field(self):
        made = peers_table.block({**DOCUMENT, "results": [result("theirs, products only", "a", "bf16", 1, 20.0, 16.0, "two products")]})
        self.assertIn("- theirs, GEMMs only 1.0: two GEMMs", made)
        self.assertIn("| T = 1, us | theirs, GEMMs only |", made)
        self.assertNotIn("product", made)

    def test_failures_are_told(self):
        self.assertIn(" 2 cases failed.", peers_table.block({**DOCUMENT, "failures": ["one", "two"]}))

    def test_without_results_it_says_so(self):
        self.assertEqual(peers_table.block(None), "Not measured yet.\n")

    def test_no_total_of_a_format_that_a_model_lacks(self):
        kept = [r for r in RESULTS if (r["model"], r["format"]) != ("b", "fp4")]
        made = peers_table.block({**DOCUMENT, "results": kept})
        self.assertIn("**total** bf16", made)
        self.assertNotIn("**total** fp4", made)

    def test_no_total_where_no_peer_has_every_model(self):
        kept = [r for r in RESULTS if (r["peer"], r["model"], r["format"]) not in (("ours", "a", "bf16"), ("theirs", "b", "bf16"))]
        made = peers_table.block({**DOCUMENT, "results": kept})
        self.assertNotIn("**total** bf16", made)
        self.assertIn("| **total** fp4 | 40.0 | - | - | ours | - | 1.60 |", made)


class Files(page_test.PageTest, unittest.TestCase):
    script = peers_table
    document = DOCUMENT
    schema = "peers.schema.json"

    def test_written_then_held(self):
        self.check_written_then_held(TABLES, "| 20.0 |", "| 19.0 |")

    def test_without_results(self):
        self.assertNotEqual(self.run_it().returncode, 0)
        self.assertEqual(self.run_it("--write").returncode, 0)
        self.assertEqual(self.page.read_text(), self.empty_page.replace(peers_table.MARKS[1], "Not measured yet.\n" + peers_table.MARKS[1]))
        self.assertEqual(self.run_it().returncode, 0)


unittest.main()
