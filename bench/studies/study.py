"""Runs studies with moe-bench, keeps their results, draws their figures and puts them into docs/performance.md.

usage: study.py [NAME..] --program MOE_BENCH [--commit ID]  run, then draw; all studies without a name
       study.py [NAME..] --draw                             draw what has results; no GPU
       study.py [NAME..] --cases FOLDER                     only write the lists of cases, for moe-bench elsewhere
       study.py --check                                     figures and page are those of the results
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import figures
import lists
import titles

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = "docs/performance.md"
END = "<!-- end of study -->\n"


def results_path(root, name):
    return root / f"bench/results/study-{name}.json"


def picture_path(root, name):
    return root / f"docs/pictures/study-{name}.svg"


def write_cases(name, path):
    path.write_text(json.dumps(lists.STUDIES[name](), indent=1) + "\n", encoding="utf-8")


def commit_of_tree():
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!bench/results", ":!docs")
        return git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit("no commit is known here: --commit names it")


def run(name, program, commit):
    """Returns whether every case ran; the results of those that did are kept."""
    with tempfile.TemporaryDirectory() as folder:
        cases = pathlib.Path(folder) / "cases.json"
        write_cases(name, cases)
        return subprocess.run([program, "--cases", cases, "--commit", commit, "--json", results_path(ROOT, name)]).returncode == 0


def block(name, document):
    """What the page says between the marks of a study."""
    if document is None:
        return "Not run yet.\n"
    lines = [f"![{titles.title(name, figures.Results(document))}](pictures/study-{name}.svg)", "",
             f"{document['device']['name']}, commit {document['commit']}, {document['date'][:10]}: "
             f"[results](../bench/results/study-{name}.json)."]
    if document["failures"]:
        lines[-1] += f" {len(document['failures'])} cases failed."
    return "\n".join(lines) + "\n"


def page_with(page, name, document):
    begin = f"<!-- study {name}: written by ./dev study -->\n"
    if page.count(begin) != 1 or END not in page[page.index(begin):]:
        raise SystemExit(f"{PAGE} lacks the marks of the study {name}, or has them twice")
    start = page.index(begin) + len(begin)
    return page[:start] + block(name, document) + page[page.index(END, start):]


def made_files(root, names):
    """{path: text} of what the results make; None: a file that must not be there."""
    page = (root / PAGE).read_text(encoding="utf-8")
    files = {}
    for name in names:
        path = results_path(root, name)
        document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        files[picture_path(root, name)] = figures.draw(name, document) if document else None
        page = page_with(page, name, document)
    return {**files, root / PAGE: page}


def draw(root, names):
    for path, made in made_files(root, names).items():
        if made is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(made, encoding="utf-8")


def differences(root):
    for path, made in made_files(root, lists.STUDIES).items():
        found = path.read_text(encoding="utf-8") if path.exists() else None
        if found != made:
            yield f"{path.relative_to(root)} is not what the results make (./dev study --draw)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(lists.STUDIES))
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--program")
    what.add_argument("--draw", action="store_true")
    what.add_argument("--cases", metavar="FOLDER", type=pathlib.Path)
    what.add_argument("--check", action="store_true")
    parser.add_argument("--commit")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in lists.STUDIES]
    if unknown:
        parser.error(f"there is no study {unknown[0]}, only {', '.join(lists.STUDIES)}")
    names = options.names or list(lists.STUDIES)
    if options.check:
        sys.exit("\n".join(differences(ROOT)) or 0)
    if options.cases:
        options.cases.mkdir(parents=True, exist_ok=True)
        for name in names:
            write_cases(name, options.cases / f"{name}.json")
        return
    failed = []
    if options.program:
        commit = options.commit or commit_of_tree()
        failed = [name for name in names if not run(name, options.program, commit)]
    draw(ROOT, names)
    if failed:
        sys.exit(f"not every case ran: {', '.join(failed)}")


if __name__ == "__main__":
    main()
