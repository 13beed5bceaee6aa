"""Holds explanations of plans against the schema, and the schema against documents that are wrong.

usage: validate_explain.py <explain.schema.json> <explain-*.json ...>
Every document must be valid. Then each is changed in one place at a time: the schema must refuse every change.
"""
import copy
import json
import sys

try:
    import jsonschema
except ImportError:
    sys.exit("the Python module jsonschema is missing: install the package python3-jsonschema")


def places(node, path=()):
    """Every (path, value) of a document; the path leads through dicts and lists."""
    yield path, node
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from places(child, path + (key,))


def changed(document, path, value):
    result = copy.deepcopy(document)
    node = result
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return result


def without(document, path):
    result = copy.deepcopy(document)
    node = result
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    return result


def find(document, what, accepts):
    """The first place of the document that accepts(key, value) takes."""
    for path, value in places(document):
        if path and isinstance(path[-1], str) and accepts(path[-1], value):
            return path
    sys.exit(f"no {what} in the document: nothing to change")


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def mutations(document):
    reason = find(document, "reason code", lambda key, value: key in ("reason_code", "code") and isinstance(value, str))
    stage = find(document, "stage", lambda key, value: key == "stage" and isinstance(value, str))
    size = find(document, "byte count", lambda key, value: "bytes" in key and is_number(value))
    kernel = find(document, "kernel", lambda key, value: key in ("kernel", "name") and isinstance(value, str))
    yield "the schema id is missing", without(document, ("schema",))
    yield "another schema id", changed(document, ("schema",), "libmoe.explain.2")
    yield "a reason code that is not in the list", changed(document, reason, "no_such_reason")
    yield "no reason code", without(document, reason)
    yield "a stage that does not exist", changed(document, stage, "attention")
    yield "negative bytes", changed(document, size, -1)
    yield "bytes as text", changed(document, size, "12")
    yield "bytes as a fraction", changed(document, size, 0.5)
    yield "a kernel that is a number", changed(document, kernel, 7)
    yield "no kernel", without(document, kernel)
    for key in document:
        yield f'without "{key}"', without(document, (key,))
        yield f'"{key}" of the wrong type', changed(document, (key,), wrong_type(document[key]))


def wrong_type(value):
    return ["a list"] if isinstance(value, (str, dict)) or is_number(value) else {"an": "object"}


def main():
    schema = json.load(open(sys.argv[1], encoding="utf-8"))
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft7Validator)
    kind.check_schema(schema)
    validator = kind(schema)
    if len(sys.argv) < 3:
        sys.exit("no documents")
    accepted = []
    for name in sys.argv[2:]:
        document = json.load(open(name, encoding="utf-8"))
        error = jsonschema.exceptions.best_match(validator.iter_errors(document))
        if error:
            sys.exit(f"{name}: {'/'.join(map(str, error.absolute_path))}: {error.message}")
        refused = 0
        for what, mutant in mutations(document):
            if validator.is_valid(mutant):
                accepted.append(f"{name}: {what}")
            else:
                refused += 1
        print(f"{name}: valid; {refused} wrong documents refused")
    if accepted:
        sys.exit("the schema accepts:\n  " + "\n  ".join(accepted))


main()
