"""Makes a NuGet package of an installed tree and of the assembly Moe: the assembly for every .NET, libmoe.so where .NET looks
for the libraries of a platform, and the notices.

usage: build_nupkg.py PREFIX ASSEMBLIES VERSION OUTPUT_FOLDER
ASSEMBLIES is the folder of build.sh and netstandard.sh. Nothing but the standard library of Python is used.
"""
import argparse
import pathlib
import platform
import sys
from xml.sax.saxutils import escape

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "wheel"))
from build_wheel import SUMMARY, write_zip

ID = "libmoe"
SYSTEM_MEMORY = "4.5.5"  # the package; newer frameworks have the assembly in themselves
PLATFORMS = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}

NUSPEC = """<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd">
  <metadata>
    <id>{id}</id>
    <version>{version}</version>
    <authors>the authors of libmoe</authors>
    <description>{summary}, with the assembly Moe.</description>
    <license type="expression">Apache-2.0</license>
    <dependencies>
      <group targetFramework=".NETStandard2.0">
        <dependency id="System.Memory" version="{system_memory}" />
      </group>
    </dependencies>
  </metadata>
</package>
"""

# What makes a zip a package: the type of each part, by the ending of its name, and which of them is the nuspec.
CONTENT_TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
  <Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml" />
{types}
</Types>
"""
RELATIONSHIPS = """<?xml version="1.0" encoding="utf-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
  <Relationship Type="http://schemas.microsoft.com/packaging/2010/07/manifest" Target="/{id}.nuspec" Id="nuspec" />
</Relationships>
"""


def payload(prefix, assemblies, version):
    """(name in the package, bytes) of the nuspec and of what is installed."""
    nuspec = NUSPEC.format(id=ID, version=version, summary=escape(SUMMARY), system_memory=SYSTEM_MEMORY)
    yield f"{ID}.nuspec", nuspec.encode()
    yield "lib/netstandard2.0/Moe.dll", (assemblies / "netstandard" / "Moe.dll").read_bytes()
    yield "lib/netstandard2.0/Moe.xml", (assemblies / "Moe.xml").read_bytes()
    library = next(prefix.rglob(f"libmoe.so.{version}"))
    yield f"runtimes/{PLATFORMS[platform.machine()]}/native/libmoe.so", library.read_bytes()
    for notice in sorted((prefix / "share" / "doc" / "libmoe").iterdir()):
        yield f"licenses/{notice.name}.txt", notice.read_bytes()


def with_package_parts(files):
    endings = sorted({name.rpartition(".")[2] for name, _ in files})
    types = "\n".join(f'  <Default Extension="{one}" ContentType="application/octet" />' for one in endings)
    yield "[Content_Types].xml", CONTENT_TYPES.format(types=types).encode()
    yield "_rels/.rels", RELATIONSHIPS.format(id=ID).encode()
    yield from files


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prefix", type=pathlib.Path)
    parser.add_argument("assemblies", type=pathlib.Path)
    parser.add_argument("version")
    parser.add_argument("output", type=pathlib.Path)
    args = parser.parse_args()

    path = args.output / f"{ID}.{args.version}.nupkg"
    write_zip(path, with_package_parts(list(payload(args.prefix, args.assemblies, args.version))))
    print(path)


main()
