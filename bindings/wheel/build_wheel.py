"""Makes a wheel of an installed tree: libmoe.so, its headers, the package moe_library, which says where they lie, and the
Python binding of bindings/python/src/moe, which looks for the library in its own folder.

usage: build_wheel.py PREFIX VERSION OUTPUT_FOLDER [--name DISTRIBUTION]
The platform of the wheel is manylinux with the newest version of libc that this very library asks for. Nothing but the
standard library of Python is used; equal input gives equal bytes (SOURCE_DATE_EPOCH, or 1980).
"""
import argparse
import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
BINDING = HERE.parent / "python" / "src" / "moe"
SUMMARY = "The Mixture-of-Experts layer of a language model: the C library libmoe"


def newest_libc(library):
    text = subprocess.run(["readelf", "--wide", "--dyn-syms", library], capture_output=True, text=True, check=True).stdout
    return max((int(major), int(minor)) for major, minor in re.findall(r"@GLIBC_(\d+)\.(\d+)", text))


def platform_tag(library):
    return "manylinux_{}_{}_{}".format(*newest_libc(library), platform.machine())


def library_files(prefix, version):
    """(name in the wheel, bytes). A wheel holds no links: the library goes in once, under its SONAME."""
    soname = "libmoe.so." + version.rpartition(".")[0]
    library = next(pathlib.Path(prefix).rglob(soname))
    init = (HERE / "moe_library" / "__init__.py").read_text(encoding="utf-8")
    for name, value in (("version", version), ("library", soname)):
        init = init.replace(f"@{name}@", value)
    yield "moe_library/__init__.py", init.encode()
    yield f"moe/lib/{soname}", library.read_bytes()
    for header in sorted(pathlib.Path(prefix, "include", "moe").glob("*.h")):
        yield f"moe/include/moe/{header.name}", header.read_bytes()


def binding_files():
    if not (BINDING / "__init__.py").is_file():
        raise SystemExit(f"build_wheel.py: {BINDING} has no Python binding, and a wheel must have it")
    for file in sorted(BINDING.rglob("*")):
        if file.is_file() and (file.suffix in (".py", ".pyi") or file.name == "py.typed"):
            yield pathlib.PurePosixPath("moe", file.relative_to(BINDING)).as_posix(), file.read_bytes()


def metadata(name, version, tag, prefix):
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    yield f"{info}/METADATA", "\n".join([
        "Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Summary: {SUMMARY}", "License: Apache-2.0",
        "Requires-Python: >=3.9", "Requires-Dist: numpy", ""]).encode()
    yield f"{info}/WHEEL", "\n".join([
        "Wheel-Version: 1.0", "Generator: build_wheel.py", "Root-Is-Purelib: false", f"Tag: {tag}", ""]).encode()
    for notice in sorted(pathlib.Path(prefix, "share", "doc", "libmoe").iterdir()):
        yield f"{info}/licenses/{notice.name}", notice.read_bytes()


def record(files, info):
    for name, data in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        yield f"{name},sha256={digest},{len(data)}"
    yield f"{info}/RECORD,,"


def write_zip(path, files):
    """Equal files give equal bytes: the date is that of SOURCE_DATE_EPOCH."""
    date = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files:
            entry = zipfile.ZipInfo(name, date)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prefix")
    parser.add_argument("version")
    parser.add_argument("output")
    parser.add_argument("--name", default="libmoe")
    args = parser.parse_args()

    files = [*library_files(args.prefix, args.version), *binding_files()]
    library = next(pathlib.Path(args.prefix).rglob("libmoe.so." + args.version))
    tag = f"py3-none-{platform_tag(library)}"
    stem = f"{args.name.replace('-', '_')}-{args.version}"
    files += metadata(args.name, args.version, tag, args.prefix)
    files.append((f"{stem}.dist-info/RECORD", "\n".join([*record(files, f"{stem}.dist-info"), ""]).encode()))
    path = pathlib.Path(args.output, f"{stem}-{tag}.whl")
    write_zip(path, files)
    print(path)


if __name__ == "__main__":
    main()
