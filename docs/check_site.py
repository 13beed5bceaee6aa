"""Makes the site as ./dev docs does and looks at it: no warning, no link into nothing, every name of moe.h with an entry.

usage: check_site.py SOURCE_TREE
Exit code 77: mkdocs is not here.
"""
import html.parser
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "abi"))
from declarations import declarations  # noqa: E402


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.targets = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.update(given[name] for name in ("id", "name") if given.get(name))
        self.targets.update(given[name] for name in ("href", "src") if given.get(name))


def dead_links(folder, pages):
    for path, page in pages.items():
        for target in page.targets:
            url = urllib.parse.urlparse(target)
            if url.scheme or url.netloc:
                continue
            to = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            if not to.exists():
                yield f"{path.relative_to(folder)}: {target} is not there"
            elif url.fragment and to in pages and url.fragment not in pages[to].ids:
                yield f"{path.relative_to(folder)}: {target}: no such heading on that page"


def missing_entries(root, folder, pages):
    found = declarations(root / "include/moe/moe.h")
    ids = set().union(*(page.ids for path, page in pages.items() if path.parent.name == "reference"))
    for name in [*found.functions, *found.structs, *(name for name in found.enums if name), *found.handles, *found.callbacks]:
        if name not in ids:
            yield f"moe.h has {name}, the site does not"


def main(root):
    root = pathlib.Path(root).resolve()
    if not shutil.which("mkdocs"):
        print("mkdocs is not here")
        raise SystemExit(77)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder).resolve()
        made = subprocess.run(["mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)], cwd=root,
                              capture_output=True, text=True)
        pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html") if path.name != "404.html"}
        problems = [*dead_links(folder, pages), *missing_entries(root, folder, pages)] if pages else ["no page was made"]
    problems += [made.stdout + made.stderr] if made.returncode or made.stdout or made.stderr else []
    print("\n".join(problems) or f"{len(pages)} pages")
    raise SystemExit(1 if problems else 0)


main(*sys.argv[1:])
