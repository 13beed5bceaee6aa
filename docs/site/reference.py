"""Pages from moe.h: one for each section of the header, one entry for each of its comments with what it is about.

The header is written to be read from top to bottom; this keeps its words and its order, and adds headings and links.
"""
import html
import re

RULE = "-" * 60
SECTION = re.compile(rf"^/\* {RULE}-*\n \* (\d+)  (.*?)\n \* {RULE}-* \*/$", re.M | re.S)
NAMES = [re.compile(pattern, re.M) for pattern in (
    r"^MOE_API [^;(]*\bMOE_CALL (moe_\w+)\(", r"^typedef (?:struct|enum) (moe_\w+)", r"^typedef \w+ (moe_\w+);",
    r"^typedef [\w ]+\(MOE_CALL \*(moe_\w+)\)", r"^#define (MOE_\w+)")]


def items(text):
    """Comment and code, in pairs; a comment at the margin and an empty line outside of braces begin the next one."""
    found, lines, depth, inside = [], [], 0, False
    for line in text.splitlines():
        begins = not inside and depth == 0 and (line.startswith("/*") or not line.strip())
        if begins and any(each.strip() for each in lines) and not is_comment_alone(lines, line):
            found.append("\n".join(lines).strip())
            lines = []
        lines.append(line)
        bare = re.sub(r"/\*.*?\*/", "", line)
        inside = ("/*" in bare or inside) and "*/" not in bare
        if not inside:
            depth += bare.count("{") - bare.count("}")
    found.append("\n".join(lines).strip())
    for item in found:
        comment, code = re.fullmatch(r"(/\*.*?\*/)?\n?(.*)", item, re.S).groups()
        if comment or code:
            yield words(comment or ""), code


def is_comment_alone(lines, line):
    """One-line comments that follow each other are one."""
    return line.startswith("/*") and all(re.fullmatch(r"/\*.*\*/", each) for each in lines)


def words(comment):
    text = re.sub(r"^/\*|\*/$", "", comment.strip())
    return re.sub(r"^ \*(?: |$)", "", text, flags=re.M).strip("\n ")


def names(code):
    found = [(match.start(), match[1]) for pattern in NAMES for match in pattern.finditer(code)]
    return [name for _, name in sorted(found)] or re.findall(r"^\s+(MOE_\w+) = ", code, re.M)[:1]


def fenced(text, language):
    return f"```{language}\n{text}\n```\n"


def prose(text, places):
    """Running text becomes a paragraph with links; what is laid out in columns stays as it is."""
    if re.search(r"\S {2,}\S|^ {3,}\S", text, re.M):
        return fenced(text, "text")
    escaped = re.sub(r"([\\`*\[\]])", r"\\\1", html.escape(text, quote=False))
    escaped = re.sub(r"(?<![\w])_|_(?!\w)", r"\\_", escaped)
    return re.sub(r"\b(moe_[a-z0-9_]+|MOE_[A-Z0-9_]+)\b", lambda match: link(match[1], places), escaped) + "\n"


def link(name, places):
    shown = f"`{name}`"
    return f"[{shown}]({places[name]}#{name.lower()})" if name in places else shown


def entry(comment, code, places):
    found = names(code)
    heading = ""
    if found:
        anchors = "".join(f'<a id="{name.lower()}"></a>' for name in found[1:])
        heading = f"### {', '.join(found)} {{ #{found[0].lower()} }}\n\n{anchors}\n\n"
    return heading + (prose(comment, places) + "\n" if comment else "") + (fenced(code, "c") if code else "")


def slug(number, title):
    return f"{int(number):02d}-{re.match(r'[a-z]+', title.lower())[0]}.md"


def sections(header):
    """(page, title, what the banner says, text)"""
    matches = list(SECTION.finditer(header))
    if len(matches) < 5:
        raise SystemExit("moe.h: no sections found; the pattern is out of date")
    for match, following in zip(matches, [*matches[1:], None]):
        end = following.start() if following else header.index("#ifdef __cplusplus\n}", match.end())
        title, _, rest = words("/*" + match[2] + "*/").partition("\n")
        short, more = re.fullmatch(r"(.+?)(?:[.:] (.{30,}))?", title).groups()
        banner = "\n".join(part for part in (more, rest) if part)
        yield slug(match[1], short), f"{match[1]}. {short}", banner, header[match.end():end]


def pages(header, loader):
    """{path: Markdown}"""
    found = list(sections(header))
    places = {name: page for page, _, _, text in found for _, code in items(text) for name in names(code)}
    made = {}
    for page, title, banner, text in found:
        body = "\n".join(entry(comment, code, places) for comment, code in items(text))
        made[page] = f"# {title}\n\n" + (fenced(banner, "text") + "\n" if banner else "") + body
    opening = words(header[:header.index("*/") + 2])
    contents = "\n".join(f"- [{title}]({page})" for page, title, _, _ in found)
    made["index.md"] = ("# moe.h\n\nThe header, section by section, in its own words.\n\n" + contents
                        + "\n- [moe_dl.h](moe_dl.md)\n\n" + fenced(opening, "text"))
    made["moe_dl.md"] = "# moe_dl.h\n\n" + fenced(loader, "c")
    return made
