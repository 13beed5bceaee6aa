using System;
using System.Diagnostics;
using System.IO;
using System.Reflection;

/// <summary>Other processes: commands, and programs of .NET on the runtime that runs the tests.</summary>
internal static class Programs
{
    private static readonly Type mono = Type.GetType("Mono.Runtime");

    public static bool IsMono => mono != null;

    /// <summary>"Mono 6.8.0.105 (...)", "CoreCLR 3.1.23".</summary>
    public static string Runtime => IsMono ? "Mono " + VersionOfMono() : "CoreCLR " + VersionOfCoreClr();

    private static object VersionOfMono()
    {
        return mono.GetMethod("GetDisplayName", BindingFlags.Static | BindingFlags.NonPublic).Invoke(null, null);
    }

    private static string VersionOfCoreClr() => Path.GetFileName(Path.GetDirectoryName(typeof(object).Assembly.Location));

    /// <summary>What a command prints. MOE_LIBRARY is the one given, where one is.</summary>
    public static string Output(string program, string arguments, out int status, string library = null)
    {
        var start = new ProcessStartInfo(program, arguments)
        {
            UseShellExecute = false, RedirectStandardOutput = true, RedirectStandardError = true,
        };
        if (library != null)
        {
            start.EnvironmentVariables["MOE_LIBRARY"] = library;
            start.EnvironmentVariables.Remove("LD_LIBRARY_PATH");
        }
        using (var process = Process.Start(start))
        {
            var output = process.StandardOutput.ReadToEnd() + process.StandardError.ReadToEnd();
            process.WaitForExit();
            status = process.ExitCode;
            return output;
        }
    }

    /// <summary>What a command prints that must succeed.</summary>
    public static string Output(string program, string arguments)
    {
        var output = Output(program, arguments, out var status);
        Check.That(status == 0, $"{program} {arguments}: {output}");
        return output;
    }

    /// <summary>What another program prints on the same runtime.</summary>
    public static string OutputOf(string program, string arguments, out int status, string library = null)
    {
        var runtime = Process.GetCurrentProcess().MainModule.FileName;
        var options = IsMono ? "" : $"exec --runtimeconfig \"{Conformance.At("bindings/csharp/tests/coreclr.runtimeconfig.json")}\" ";
        return Output(runtime, $"{options}\"{program}\" {arguments}", out status, library);
    }

    /// <summary>What another program that must succeed prints on the same runtime.</summary>
    public static string OutputOf(string program, string arguments)
    {
        var output = OutputOf(program, arguments, out var status);
        Check.That(status == 0, $"{program} {arguments}: {output}");
        return output;
    }
}
