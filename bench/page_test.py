"""What the tests of the scripts that write tables into docs/performance.md share: a page and its results, in a folder."""
import pathlib
import subprocess
import sys
import tempfile


class PageTest:
    """Before unittest.TestCase. script: the module under test; results: what its file of results holds, as text."""

    script = None
    results_text = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "docs").mkdir()
        (self.root / "bench/results").mkdir(parents=True)
        self.page, self.results = self.root / "docs/performance.md", self.root / self.script.RESULTS
        self.empty_page = empty_page(self.script)
        self.page.write_text(self.empty_page)

    def run_it(self, *arguments):
        command = [sys.executable, self.script.__file__, self.root, *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def test_a_page_without_its_marks_is_refused(self):
        self.results.write_text(self.results_text)
        first, last = self.script.MARKS
        for page in ("", first, last + first, 2 * self.empty_page):
            self.page.write_text(page)
            self.assertIn("lacks a mark", self.run_it("--write").stderr)
            self.assertEqual(self.page.read_text(), page)


def empty_page(script):
    return "before\n" + "".join(script.MARKS) + "after\n"
