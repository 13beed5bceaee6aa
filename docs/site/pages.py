"""A hook of mkdocs: the pages of the site that do not lie in docs/, and links between all of them.

Files link to each other as they lie in the source tree, so that they work there; on the site a link to a file that has no page
becomes its path.
"""
import pathlib
import posixpath
import re
import sys

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "docs" / "site"))
from reference import pages as reference_pages  # noqa: E402

MADE = ROOT / "build" / "docs-pages"
IMPORTED = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "tests/abi/README.md", "tests/gpu/README.md",
            "bench/README.md", "bench/goals.md", "bench/peers.md", "bench/notes.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("bench/notes/*.md")),
            *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("bindings/*/README.md"))]
MACHINERY = re.compile(r".*\.py|CMakeLists\.txt|site/.*|.*__pycache__.*")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")

site_path_of = {}   # path in the source tree -> path on the site
source_of = {}  # the other way round


def write(path, text):
    target = MADE / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        target.write_text(text, encoding="utf-8")


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def made_pages():
    """{path on the site: (path in the source tree or "", text)}"""
    pages = {"index.md" if path == "README.md" else path: (path, read(path)) for path in IMPORTED}
    for name, text in reference_pages(read("include/moe/moe.h"), read("include/moe/moe_dl.h")).items():
        pages[f"reference/{name}"] = ("", text)
    return pages


def on_config(config):
    """The sections of the header are written into the navigation."""
    names = sorted(path for path in made_pages() if path.startswith("reference/"))
    names.sort(key=lambda path: (not path.endswith("index.md"), path))
    config["nav"] = [{"The header": names} if entry == {"The header": "reference/"} else entry for entry in config["nav"]]
    return config


def on_files(files, config):
    for file in list(files):
        if MACHINERY.fullmatch(file.src_uri):
            files.remove(file)
        else:
            site_path_of[f"docs/{file.src_uri}"] = file.src_uri
    for path, (source, text) in made_pages().items():
        write(path, text)
        files.append(File(path, str(MADE), config["site_dir"], config["use_directory_urls"]))
        if source:
            site_path_of[source] = path
    site_path_of["include/moe/moe.h"] = "reference/index.md"
    site_path_of["include/moe/moe_dl.h"] = "reference/moe_dl.md"
    source_of.update({path: source for source, path in site_path_of.items()})
    return files


def on_page_markdown(markdown, page, config, files):
    site = page.file.src_uri
    source = source_of.get(site, "")
    if site.startswith("reference/") or not source:
        return markdown

    def replaced(match):
        image, words, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if "://" in target or not path:
            return match[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if not (ROOT / wanted).exists():
            raise SystemExit(f"{source}: a link to {target}, which is not there")
        if wanted in site_path_of:
            relative = posixpath.relpath(site_path_of[wanted], posixpath.dirname(site) or ".")
            return f"{image}[{words}]({relative}{hash_}{anchor})"
        return words if wanted in words else f"{words} (`{wanted}`)"

    return re.sub(r"^<!--.*?-->\n", "", LINK.sub(replaced, markdown), flags=re.M)
