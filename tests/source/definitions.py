"""What a source defines with external linkage: a reader of declarations that skips the bodies.

It knows no types and expands no macros. It reads namespaces, and in them the heads of classes, functions and inline variables, as
the sources of libmoe are written.
"""
import re
from dataclasses import dataclass

from cpp_source import code_of

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|->|\.\.\.|<<|\S")
_OPEN = {"(": ")", "[": "]", "{": "}"}
_TYPE_WORDS = {"class", "struct", "union", "enum"}
_NO_NAMES = {"requires", "decltype", "sizeof", "alignas", "explicit", "noexcept", "__attribute__", "__launch_bounds__",
             "static_assert", "declspec", "asm"}
# A parameter may end in one of these without having a name.
_NOT_A_NAME = {"int", "char", "bool", "float", "double", "void", "long", "short", "unsigned", "signed", "auto", "const",
               "*", "&", ">", "...", ")", "]"}


# Words of a function's head that its name does not depend on.
_SPECIFIERS = {"inline", "constexpr", "static", "extern", "friend", "typename", "__device__", "__host__", "__global__",
               "__forceinline__", "__noinline__", "MOE_HOST_DEVICE"}
# Names of one type.
_ALIASES = {"int32_t": "int", "uint32_t": "unsigned", "int64_t": "long", "uint64_t": "ulong", "size_t": "ulong",
            "int16_t": "short", "uint16_t": "ushort", "uint8_t": "uchar", "int8_t": "schar"}


@dataclass(frozen=True)
class Definition:
    kind: str  # "type", "function" or "variable"
    name: str  # with its namespaces
    signature: str
    line: int

    def key(self):
        return self.kind, self.name, self.signature


def _tokens(text):
    code = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: "\n" * m.group().count("\n"), code_of(text), flags=re.MULTILINE)
    line, last = 1, 0
    for match in _TOKEN.finditer(code):
        line += code.count("\n", last, match.start())
        last = match.start()
        yield match.group(), line


def _close(tokens, start):
    """The index behind the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(tokens)):
        depth += (tokens[i][0] in _OPEN) - (tokens[i][0] in _OPEN.values())
        if depth == 0:
            return i + 1
    raise ValueError(f"line {tokens[start][1]}: {tokens[start][0]} is never closed")


def _close_angle(words, start):
    depth = 0
    i = start
    while i < len(words):
        if words[i] in "([{":
            i = _close([(w, 0) for w in words], i)
            continue
        depth += (words[i] == "<") - (words[i] == ">")
        i += 1
        if depth == 0:
            return i
    return len(words)


def _open_angle(words, end):
    """The `<` of the `>` before `end`."""
    depth = 0
    while end > 0:
        end -= 1
        depth += (words[end] == ">") - (words[end] == "<")
        if depth == 0:
            break
    return end


def _assignment(words):
    """Where the value of a variable begins: at a `=` that is in no bracket."""
    depth = 0
    for i, word in enumerate(words):
        depth += (word in "([{") - (word in ")]}")
        if word == "=" and depth == 0 and words[i - 1] not in ("operator", "=", "!", "<", ">") and words[i + 1:i + 2] != ["="]:
            return i
    return len(words)


def _split(words):
    """By commas that are in no bracket."""
    parts, depth = [[]], 0
    for word in words:
        depth += (word in "([{<") - (word in ")]}>")
        if word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _canonical(words):
    """One spelling of a type: without the scopes of our namespaces, and with one name for one integer type."""
    out = []
    for i, word in enumerate(words):
        scope = word in ("std", "moe", "cuda", "cpu") and words[i + 1:i + 2] == ["::"]
        if scope or (word == "::" and (i == 0 or words[i - 1] in ("std", "moe", "cuda", "cpu"))):
            continue
        if word not in ("__restrict__", "__grid_constant__", "typename"):
            out.append(_ALIASES.get(word, word))
    return out


def _parameter(words):
    """(its type, its name or None); a default is left out."""
    if "=" in words:
        words = words[:words.index("=")]
    name = None
    if "(" in words:  # T (&name)[n]
        at = words.index("(") + 1
        while at < len(words) and words[at] in "&*":
            at += 1
        words = words[:at] + words[at + 1:] if re.match(r"[A-Za-z_]", words[at]) else words
    elif words[-1] == "]" and "[" in words:  # T name[n] is T *
        words = words[:words.index("[")]
        words = words[:-1] + ["*"]
    elif len(words) > 1 and re.match(r"[A-Za-z_]", words[-1]) and words[-1] not in _NOT_A_NAME and words[-2] != "::" \
            and not all(word in ("const", "typename", "volatile") for word in words[:-1]):
        name, words = words[-1], words[:-1]
    if words[:1] == ["const"] and "*" not in words and "&" not in words:
        words = words[1:]  # of a value that is a copy
    return _canonical(words), name


def _without_macros(words):
    """Without what stands before a declaration: attributes, and macros that are called or stand alone."""
    i = 0
    while i < len(words):
        called = i + 1 < len(words) and words[i + 1] == "("
        if words[i] == "[" and words[i + 1:i + 2] == ["["]:
            i = _close([(w, 0) for w in words], i)
        elif called and (re.fullmatch(r"[A-Z][A-Z0-9_]+", words[i]) or words[i] in ("__attribute__", "alignas")):
            i = _close([(w, 0) for w in words], i + 1)
        else:
            break
    return words[i:]


def _template_head(words):
    """(parameters of `template <...>`, the rest). An explicit specialization has none, but is one.

    Parameters are called by their numbers. A constraint is the last of them: it is part of what is declared.
    """
    head = None
    while words[:2] == ["template", "<"]:
        end = _close_angle(words, 1)
        parameters = [_parameter(part) for part in _split(words[2:end - 1])]
        numbers = {name: f"${i}" for i, (_, name) in enumerate(parameters, len(head or [])) if name}
        head = (head or []) + [" ".join(kind) for kind, _ in parameters]
        words = [numbers.get(word, word) for word in words[end:]]
    if head is not None and words[:1] == ["requires"]:
        end = _close([(w, 0) for w in words], 1) if words[1:2] == ["("] else 1
        head, words = head + [" ".join(words[:end])], words[end:]
    return head, words


def _type_name(words):
    at = next(i for i, word in enumerate(words) if word in _TYPE_WORDS)
    rest = [word for word in words[at + 1:] if word not in _TYPE_WORDS]
    rest = _without_macros(rest)
    name = []
    for i, word in enumerate(rest):
        if word in (":", "final", "="):
            break
        if word == "<":
            name += rest[i:_close_angle(rest, i)]
            break
        name.append(word)
    return "".join(name)


def _name_start(words, end):
    """Where the name that ends at `end` begins, with its scopes."""
    start = end
    while True:
        if "operator" in words[max(0, start - 3):start]:
            while words[start - 1] != "operator":
                start -= 1
        elif words[start - 1] == ">":
            start = _open_angle(words, start)
        start -= 1
        if start and words[start - 1] == "~":
            start -= 1
        if start < 2 or words[start - 1] != "::":
            return start
        start -= 1


def _function(words):
    """(name, parameter types, what stands before, what stands behind) of a function's head, or None."""
    i = 0
    while i < len(words):
        if words[i] == "(":
            before = words[i - 1] if i else ""
            if re.match(r"[A-Za-z_>]", before) and before not in _NO_NAMES or "operator" in words[max(0, i - 3):i]:
                if words[i - 1] == "operator":  # operator()
                    i = _close([(w, 0) for w in words], i)
                break
            i = _close([(w, 0) for w in words], i)
        elif words[i] == "<" and i and words[i - 1] != "operator":
            i = _close_angle(words, i)
        else:
            i += 1
    if i >= len(words) or words[i] != "(":
        return None
    end = _close([(w, 0) for w in words], i)
    start = _name_start(words, i)
    parameters = ", ".join(" ".join(_parameter(part)[0]) for part in _split(words[i + 1:end - 1]))
    return "".join(words[start:i]), parameters, words[:start], words[end:]


def _result(words):
    """The type that a function returns."""
    if "__launch_bounds__" in words:
        at = words.index("__launch_bounds__")
        words = words[:at] + words[_close([(w, 0) for w in words], at + 1):]
    return _canonical([word for word in words if word not in _SPECIFIERS])


class _Reader:
    def __init__(self, text):
        self.tokens = list(_tokens(text))
        self.found = []

    def read(self):
        self.scope(0, [])
        return self.found

    def scope(self, i, names):
        """Declarations from token i to the end of the namespace. `names` is None in one without linkage."""
        begin = i
        while i < len(self.tokens):
            word = self.tokens[i][0]
            if word == "}":
                return i + 1
            if word in "([":
                i = _close(self.tokens, i)
            elif word == ";":
                self.declaration(begin, i, names)
                begin = i = i + 1
            elif word == "{":
                begin = i = self.braces(begin, i, names)
            else:
                i += 1
        return i

    def words(self, begin, end):
        return _without_macros([token for token, _ in self.tokens[begin:end]])

    def add(self, kind, names, name, signature, at):
        if names is not None:
            self.found.append(Definition(kind, "::".join([*names, name]), signature, self.tokens[at][1]))

    def declaration(self, begin, end, names):
        """Of those that end without braces: inline variables."""
        head, words = _template_head(self.words(begin, end))
        value = _assignment(words)
        variable = value < len(words) and "(" not in words[:value] and words[0] not in ("using", "namespace", "typedef", "static")
        if variable and ("inline" in words[:value] or head is not None):
            self.variable(words[:value], names, begin)

    def variable(self, words, names, at):
        end = words.index("[") if "[" in words else len(words)
        self.add("variable", names, words[end - 1], "", at)

    def braces(self, begin, i, names):
        """A declaration whose head is begin..i. Returns where the next begins."""
        words = self.words(begin, i)
        if "namespace" in words[:2]:
            return self.namespace(words, i, names)
        if words[:1] == ["extern"] and len(words) <= 3:
            return self.scope(i + 1, names)
        if words[-1:] == ["requires"]:  # the braces of a constraint; what it is for follows
            return _close(self.tokens, i)
        head, words = _template_head(words)
        words = _without_macros(words)
        value = _assignment(words)
        function = _function(words[:value]) if value == len(words) else None
        if value < len(words) or not function and not _TYPE_WORDS & set(words):
            return self.initializer(words[:value], head, i, names, begin)
        if function and not (_TYPE_WORDS & set(words[:1])):
            return self.function(function, head, words, i, names, begin)
        constraint = " ".join(part for part in head or [] if part.startswith("requires"))
        self.add("type", names, _type_name(words), constraint, begin)
        end = _close(self.tokens, i)
        while self.tokens[end][0] != ";":
            end += 1
        return end + 1

    def namespace(self, words, i, names):
        name = "".join(words[words.index("namespace") + 1:])
        inner = [*names, name] if name and names is not None else None
        return self.scope(i + 1, inner)

    def initializer(self, words, head, i, names, begin):
        if "inline" in words or (head is not None and "static" not in words):
            self.variable(words, names, begin)
        end = _close(self.tokens, i)
        while end < len(self.tokens) and self.tokens[end][0] != ";":
            end = _close(self.tokens, end) if self.tokens[end][0] in _OPEN else end + 1
        return end + 1

    def function(self, function, head, words, i, names, begin):
        name, parameters, before, after = function
        signature = f"({parameters})" + "".join(f" {word}" for word in after[:1] if word == "const")
        if head is not None:  # what a template returns, and over what it is one, is part of its name
            signature = f"<{', '.join(head)}> {' '.join(_result(before))} {signature}"
        if "static" not in before:
            self.add("function", names, name, signature, begin)
        end = _close(self.tokens, i)
        # Behind the braces of a member's initializer comes another, or the body.
        while end < len(self.tokens) and self.tokens[end][0] in (",", "{"):
            while self.tokens[end][0] != "{":
                end = _close(self.tokens, end) if self.tokens[end][0] == "(" else end + 1
            end = _close(self.tokens, end)
        return end


def definitions_of(text):
    return _Reader(text).read()
