"""Sources of C++ and CUDA as text: which there are, and what is left of one without comments and literals."""
import pathlib
import re

SUFFIXES = (".cpp", ".hpp", ".cu", ".cuh", ".inc")

_NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/'                       # comments
    r'|R"([^()\s\\]{0,16})\(.*?\)\1"'           # raw strings
    r'|"(?:\\.|[^"\\\n])*"'                     # strings
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'",   # characters, not the quotes in 1'000
    re.DOTALL)


def read_tree(root, folder):
    """{path from root: text} of every source under root/folder."""
    root = pathlib.Path(root)
    return {str(path.relative_to(root)): path.read_text()
            for path in sorted((root / folder).rglob("*")) if path.suffix in SUFFIXES}


def code_of(text):
    """The text with comments and literals blanked. Lines keep their numbers."""
    def blank(match):
        found = match.group()
        kept = '""' if found[0] in '"R' else "0" if found[0] == "'" else " "
        return kept + "\n" * found.count("\n")
    return _NO_CODE.sub(blank, text)


def includes_of(text):
    """Names that the text includes, as they are written between the quotes or brackets."""
    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', text, re.MULTILINE)
