"""Shows that the nets of the ABI hold: breaks it on purpose, in every way of breaks.py, and wants the nets to fail.

usage: break.py ROOT LIBRARY [--only TEXT]
Nothing of the library is built. What is broken is a copy of the header, a probe library of empty functions made from it, or
functions put before those of LIBRARY; each takes a moment. First everything is left whole, and every net must pass.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from breaks import BREAKS, Break
from declarations import declarations
from probe import probe_archive, probe_library

HERE = pathlib.Path(__file__).parent
CLIENT = HERE / "old" / "0.1" / "client.c"
USES_LIBC = "#include <stdlib.h>\nchar *reads_environment(void); char *reads_environment(void) { return getenv(\"\"); }\n"
WHOLE = Break("nothing is broken", frozenset())


def edited(text, edits, where):
    for old, new in edits:
        if text.count(old) != 1:
            raise SystemExit(f"{where}: the text of a break is there {text.count(old)} times: {old}")
        text = text.replace(old, new)
    return text


class Case:
    """A folder with a broken copy of what a net looks at, and the nets as commands that must fail."""

    def __init__(self, root, library, what, folder):
        self.root, self.library, self.what, self.folder = root, library, what, folder
        self.include = folder / "include"
        (self.include / "moe").mkdir(parents=True)
        self.header = self.copy(root / "include/moe/moe.h", self.include / "moe/moe.h", what.edits)
        self.loader = self.copy(root / "include/moe/moe_dl.h", self.include / "moe/moe_dl.h", what.loader_edits)
        self.map = self.copy(root / "libmoe/api/moe.map", folder / "moe.map", what.map_edits)

        numbers = dict(re.findall(r"^#define MOE_VERSION_(\w+) (\d+)$", self.header.read_text(encoding="utf-8"), flags=re.M))
        self.minor = f"{numbers['MAJOR']}.{numbers['MINOR']}"
        self.version = f"{self.minor}.{numbers['PATCH']}"

    def copy(self, source, target, edits):
        target.write_text(edited(source.read_text(encoding="utf-8"), edits, self.what.name), encoding="utf-8")
        return target

    def python(self, script, *arguments):
        return self.run(sys.executable, script, *arguments)

    def run(self, *command, **environment):
        run = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120,
                             env={**os.environ, **environment})
        return run.returncode, run.stdout + run.stderr

    def probe(self):
        path = self.folder / "libmoe.so"
        if not path.exists():
            probe_library(declarations(self.header), self.include, self.folder, self.map, f"-Wl,-soname,libmoe.so.{self.minor}",
                          *self.what.link, without=self.what.without, extra=USES_LIBC + self.what.extra)
        return path

    def net_layout(self):
        return self.python(HERE / "check_layout.py", self.header)

    def net_update(self):
        golden = shutil.copy(HERE / "layout.txt", self.folder / "layout.txt")
        return self.python(HERE / "check_layout.py", self.header, "--golden", golden, "--update")

    def net_types(self):
        golden = HERE / "moe.abi"
        if self.what.before:
            before = Case(self.root, self.library, Break(self.what.name, frozenset(), self.what.before), self.folder / "before")
            golden = self.folder / "before.abi"
            status, text = before.python(HERE / "check_types.py", before.header, before.map, "--golden", golden, "--update")
            if status:
                raise SystemExit(text)
        return self.python(HERE / "check_types.py", self.header, self.map, "--golden", golden)

    def net_symbols(self):
        return self.python(HERE / "check_symbols.py", self.probe())

    def net_elf(self):
        return self.python(HERE / "check_elf.py", self.probe(), self.header, self.version)

    def net_libc(self):
        return self.python(HERE / "check_libc.py", self.probe())

    def net_size(self):
        return self.python(HERE / "check_size.py", f"libmoe.so={self.probe()}")

    def net_archive(self):
        archive = probe_archive(declarations(self.header), self.include, self.folder, self.what.without, self.what.extra)
        return self.python(HERE / "check_archive.py", archive, self.header)

    def net_link(self):
        return self.run("gcc", f"-I{CLIENT.parent}", CLIENT, self.probe(), "-lm", "-o", self.folder / "linked")

    def net_headers(self):
        return self.run("sh", HERE / "check_headers.sh", self.include)

    def net_list(self):
        return self.python(self.root / "tests/clients/loader/check_list.py", self.header, self.loader)

    def net_client(self):
        """The old client with the broken header against the whole library: the mirror image of what would happen."""
        program = self.folder / "client"
        status, text = self.run("gcc", "-std=c99", "-Wall", "-Werror", f"-I{self.include}", CLIENT, self.library, "-lm", "-o",
                                program)
        return (status, text) if status else self.run(program, LD_LIBRARY_PATH=str(self.library.parent))

    def net_preload(self):
        before, source, program = self.folder / "before.so", self.folder / "before.c", self.folder / "client"
        source.write_text("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <moe/moe.h>\n#include <string.h>\n"
                          + self.what.preload, encoding="utf-8")
        for command in (["gcc", "-Werror", "-fPIC", "-shared", f"-I{self.include}", source, "-o", before, "-ldl"],
                        ["gcc", "-std=c99", f"-I{CLIENT.parent}", CLIENT, self.library, "-lm", "-o", program]):
            status, text = self.run(*command)
            if status:
                raise SystemExit(text)
        return self.run(program, LD_LIBRARY_PATH=str(self.library.parent), LD_PRELOAD=str(before))

    def net_loader(self):
        sources, program = self.root / "tests/clients/loader", self.folder / "refusals"
        fakes = [self.folder / f"fake_{version}.so" for version in (77, 1, 0)]
        for version, fake in zip((77, 1, 0), fakes):
            status, text = self.run("gcc", "-fPIC", "-shared", f"-DFAKE_ABI={version}", sources / "fake_library.c", "-o", fake)
            if status:
                raise SystemExit(text)
        status, text = self.run("gcc", f"-I{self.include}", sources / "refusal_client.c", "-o", program, "-ldl")
        return (status, text) if status else self.run(program, *fakes)


NETS = "layout update types symbols elf libc size archive link headers list client preload loader".split()


def case_of(root, library, what):
    """The nets that must fail and did not, those that must pass and did not, and a line for the table."""
    nets = set(NETS) if what is WHOLE else set(what.nets) | ({"update"} if "layout" in what.nets else set())
    must_fail = set(what.nets) | ({"update"} if "layout" in what.nets and not what.is_addition else set())
    if what.is_addition:
        nets |= {"client"}
    with tempfile.TemporaryDirectory() as folder:
        case = Case(root, library, what, pathlib.Path(folder))
        results = {net: getattr(case, f"net_{net}")() for net in NETS if net in nets}
    wrong = [f"{what.name}: the net {net} {'failed' if status else 'did not fail'}\n{text}"
             for net, (status, text) in results.items() if bool(status) != (net in must_fail)]
    failed = " ".join(net for net, (status, _) in results.items() if status and net != "update")
    return wrong, f"{what.name:52} {failed or 'every net passes'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    if not shutil.which("abidiff"):
        print("abidiff is not here (package abigail-tools)")
        raise SystemExit(77)
    wanted = [what for what in [WHOLE, *BREAKS] if args.only in what.name]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda what: case_of(args.root.resolve(), args.library.resolve(), what), wanted))
    for _, line in done:
        print(line)
    wrong = [text for texts, _ in done for text in texts]
    print("\n".join(wrong))
    print(f"{len(done)} cases, {len(wrong)} nets that did not do what they are for")
    raise SystemExit(1 if wrong or not done else 0)


main()
