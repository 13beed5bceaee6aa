"""What moe.h declares, for the checks of this folder."""
import re


def declared_functions(header):
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    names = set(re.findall(r"^MOE_API\b[^;()]*\bMOE_CALL\s+(moe_\w+)\s*\(", text, flags=re.M))
    if not names:
        raise SystemExit(f"{header}: no declaration found; the pattern is out of date")
    return names
