"""What the tests of the scripts that write tables into pages share: a page and its results, in a folder."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import check_results

HERE = pathlib.Path(__file__).resolve().parent


class PageTest:
    """Before unittest.TestCase. script: the module under test; document: its results; schema: what they must satisfy;
    machine: the field that says where they are from; file: their name where the script takes several."""

    script = None
    document = None
    schema = ""
    machine = "device"
    file = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "bench/results").mkdir(parents=True)
        self.page, self.results = self.root / self.script.PAGE, self.root / (self.file or self.script.RESULTS)
        self.page.parent.mkdir(parents=True, exist_ok=True)
        self.empty_page = "before\n" + "".join(self.script.MARKS) + "after\n"
        self.page.write_text(self.empty_page)

    def run_it(self, *arguments):
        command = [sys.executable, self.script.__file__, self.root, *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def check_written_then_held(self, tables, good, bad):
        """A stale page is told and left alone; a written one has the tables, and holds until a figure changes."""
        self.results.write_text(json.dumps(self.document))
        stale = self.run_it()
        self.assertEqual(stale.returncode, 1)
        self.assertIn("has other figures", stale.stderr)
        self.assertEqual(self.page.read_text(), self.empty_page)
        self.assertEqual(self.run_it("--write").returncode, 0)
        self.assertIn(tables, self.page.read_text())
        self.assertEqual(self.run_it().returncode, 0)
        self.page.write_text(self.page.read_text().replace(good, bad))
        self.assertEqual(self.run_it().returncode, 1)

    def test_a_page_without_its_marks_is_refused(self):
        self.results.write_text(json.dumps(self.document))
        first, last = self.script.MARKS
        for page in ("", first, last + first, 2 * self.empty_page):
            self.page.write_text(page)
            self.assertIn("lacks a mark", self.run_it("--write").stderr)
            self.assertEqual(self.page.read_text(), page)

    def test_a_broken_file_is_refused(self):
        wrong = ({**self.document, "results": [{}]}, {**self.document, self.machine: {}})
        for text in ("", "[]", "{", *map(json.dumps, wrong)):
            self.results.write_text(text)
            self.assertNotEqual(self.run_it("--write").returncode, 0, text)
            self.assertEqual(self.page.read_text(), self.empty_page, text)

    def test_the_fixture_is_such_as_the_schema_wants(self):
        validator = check_results.jsonschema.Draft202012Validator(json.loads((HERE / self.schema).read_text()))
        self.assertEqual(check_results.problems(self.document, validator), [])
        broken = copy.deepcopy(self.document)
        broken["results"].append(broken["results"][0])
        self.assertNotEqual(check_results.problems(broken, validator), [])
