using System;
using System.Collections.Generic;
using System.IO;
using System.Text.RegularExpressions;
using Moe;

/// <summary>The example, and the C# of the two README files, on a checkpoint that the command moe makes.</summary>
internal static class ExampleTests
{
    private static void WithModel(Action<string, string> run)
    {
        var command = Environment.GetEnvironmentVariable("MOE_COMMAND") ?? Conformance.At("build/cpu/bin/moe");
        if (!File.Exists(command))
            throw new TestSkippedException("the command moe is not built");
        Check.InFolder(folder =>
        {
            var model = Path.Combine(folder, "qwen3");
            Programs.Output(command, $"make-model qwen3-30b-a3b \"{model}\" --reduced");
            run(folder, model);
        });
    }

    [Test]
    public static void TheExampleRunsALayer()
    {
        var here = Path.GetDirectoryName(typeof(ExampleTests).Assembly.Location);
        WithModel((folder, model) =>
        {
            var said = Programs.OutputOf(Path.Combine(here, "layer.exe"), $"\"{model}\"");
            Check.That(said.Contains("qwen3_moe, layer 0") && Regex.IsMatch(said, @"token 3: experts .*, rms of out 0*\.?\d*[1-9]"), said);
        });
    }

    private static IEnumerable<string> ProgramsOf(string page)
    {
        var found = Regex.Matches(File.ReadAllText(Conformance.At(page)), "```csharp\n(.*?)```", RegexOptions.Singleline);
        Check.That(found.Count > 0, page + " has no C#");
        foreach (Match one in found)
            yield return one.Groups[1].Value;
    }

    /// <summary>Compiles for the runtime that runs the tests, as build.sh compiles them.</summary>
    private static string Compiled(string source, string here)
    {
        var program = Path.ChangeExtension(source, ".exe");
        var built = Programs.IsMono ? here : Path.GetDirectoryName(here);
        Programs.Output("mcs", $"-r:\"{built}/Moe.dll\" -out:\"{program}\" \"{source}\"");
        if (!Programs.IsMono)
        {
            File.Move(program, program + ".mono");
            Programs.Output("mono", $"\"{built}/mono/Retarget.exe\" \"{program}.mono\" \"{program}\"");
        }
        return program;
    }

    [Test]
    public static void TheReadmeIsRight()
    {
        var assembly = typeof(Library).Assembly.Location;
        WithModel((folder, model) =>
        {
            File.Copy(assembly, Path.Combine(folder, "Moe.dll"));
            const string page = "bindings/csharp/README.md";
            foreach (var lines in ProgramsOf(page))
            {
                var source = Path.Combine(folder, "page.cs");
                Check.That(lines.Contains("/tmp/qwen3"), page + " opens nothing");
                File.WriteAllText(source, "static class Page { static void Main() {\n" + lines.Replace("/tmp/qwen3", model) + "} }\n");
                var program = Compiled(source, Path.GetDirectoryName(assembly));
                Check.That(Programs.OutputOf(program, "").Trim().Length > 0, page + " says nothing");
            }
        });
    }
}
