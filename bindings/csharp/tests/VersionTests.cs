using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using Moe;

internal static class VersionTests
{
    [Test("VER-01")]
    public static void VersionsCanBeRead()
    {
        var data = new Case("VER-01");
        Check.That(Library.AbiVersion == Library.RequiredAbiVersion && Library.AbiVersion == data.Int("abi_version"), "ABI");
        var parts = Library.VersionString.Split('.').Select(uint.Parse).ToArray();
        Check.That(Library.Version == parts[0] * 1000000 + parts[1] * 1000 + parts[2], Library.VersionString);
        Check.That(Library.Version == Header.VersionNumber, "not the version of the header");
        Check.That(Library.BuildInfo.Contains(data.Text("build_info_has") + Library.VersionString), Library.BuildInfo);
    }

    /// <summary>A library that claims an ABI version and has nothing else.</summary>
    private static string FakeLibrary(string folder, long version)
    {
        var path = Path.Combine(folder, $"fake_{version}.so");
        var source = Conformance.At(new Case("VER-02").Text("source"));
        Programs.Output("cc", $"-shared -fPIC -DFAKE_ABI={version} \"{source}\" -o \"{path}\"");
        return path;
    }

    /// <summary>In another process: what the first use of the library says.</summary>
    private static string GateWith(string library)
    {
        return GateOf(typeof(VersionTests).Assembly.Location, library);
    }

    private static string GateOf(string program, string library)
    {
        return Programs.OutputOf(program, $"\"{Conformance.Root}\" --gate", out _, library);
    }

    /// <summary>Each of these may be a program's first call.</summary>
    public static int Gate()
    {
        var firsts = new Dictionary<string, Action>
        {
            { "version", () => Library.Version.ToString() }, { "format", () => Format.ByName("f32") },
            { "runtime", () => new Runtime().Dispose() }, { "checkpoint", () => new Checkpoint(".").Dispose() },
            { "plan", () => new Plan(new PlanOptions()) }, { "workspace", () => new Workspace(null) },
            { "devices", () => DeviceInfo.Count(DeviceKind.Cpu) }, { "layer", () => new LayerDesc().Validate() },
        };
        foreach (var one in firsts)
            try
            {
                one.Value();
                Console.WriteLine($"{one.Key}: good");
            }
            catch (MoeException error)
            {
                Console.WriteLine($"{one.Key}: {error.GetType().Name} {error.Status}: {error.Message}");
            }
        return 0;
    }

    private static void AllRefused(string output, Status status, params string[] words)
    {
        var lines = output.Split('\n').Where(line => line.Length > 0).ToArray();
        Check.That(lines.Length == 8, output);
        foreach (var line in lines)
            Check.That(line.Contains($"LibraryLoadException {status}") && words.All(line.Contains), line);
    }

    [Test("VER-02")]
    public static void AnotherAbiIsRefusedFirst()
    {
        Check.InFolder(folder =>
        {
            foreach (var version in new Case("VER-02").List<long>("versions"))
                AllRefused(GateWith(FakeLibrary(folder, version)), Status.Abi,
                    $"found ABI version {version}, wanted {Library.RequiredAbiVersion}");
        });
        Check.That(GateWith(Environment.GetEnvironmentVariable("MOE_LIBRARY")).Contains("format: good"), "the gate is closed");
    }

    [Test("VER-03")]
    public static void AMissingLibraryOrFunctionIsNamed()
    {
        AllRefused(GateWith("/no/such/libmoe.so"), Status.NotFound, "/no/such/libmoe.so", "libmoe.so.0.1", "MOE_LIBRARY");
        Check.InFolder(folder =>
        {
            var incomplete = FakeLibrary(folder, Library.RequiredAbiVersion);
            AllRefused(GateWith(incomplete), Status.NotFound, incomplete, "lacks the function " + new Case("VER-03").Text("names"));
        });
    }

    /// <summary>A copy of the library beside the program, which the runtime binds first, must not serve in place of the one
    /// that MOE_LIBRARY names.</summary>
    [Test("VER-03")]
    public static void AnotherCopyIsNotBound()
    {
        Check.InFolder(folder =>
        {
            foreach (var file in new[] { typeof(VersionTests).Assembly.Location, typeof(Library).Assembly.Location })
                File.Copy(file, Path.Combine(folder, Path.GetFileName(file)));
            var named = Environment.GetEnvironmentVariable("MOE_LIBRARY");
            File.Copy(named, Path.Combine(folder, "libmoe.so.0.1"));
            var program = Path.Combine(folder, Path.GetFileName(typeof(VersionTests).Assembly.Location));
            var output = GateOf(program, named);
            Check.That(output.Contains("format: good") || output.Contains("functions are not taken from it"), output);
            output = GateOf(program, "");
            Check.That(output.Contains("format: good"), output);
        });
    }
}
