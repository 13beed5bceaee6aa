using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Text.RegularExpressions;
using Moe;

/// <summary>The example, and the C# of the two README files, on a checkpoint that the command moe makes.</summary>
internal static class ExampleTests
{
    private static string Output(string program, string arguments)
    {
        var start = new ProcessStartInfo(program, arguments)
        {
            UseShellExecute = false, RedirectStandardOutput = true, RedirectStandardError = true,
        };
        using (var process = Process.Start(start))
        {
            var output = process.StandardOutput.ReadToEnd() + process.StandardError.ReadToEnd();
            process.WaitForExit();
            Check.That(process.ExitCode == 0, $"{program} {arguments}: {output}");
            return output;
        }
    }

    private static void WithModel(Action<string, string> run)
    {
        var command = Environment.GetEnvironmentVariable("MOE_COMMAND") ?? Conformance.At("build/cpu/bin/moe");
        if (!File.Exists(command))
            throw new TestSkippedException("the command moe is not built");
        Check.InFolder(folder =>
        {
            var model = Path.Combine(folder, "qwen3");
            Output(command, $"make-model qwen3-30b-a3b \"{model}\" --reduced");
            run(folder, model);
        });
    }

    [Test]
    public static void TheExampleRunsALayer()
    {
        var here = Path.GetDirectoryName(typeof(ExampleTests).Assembly.Location);
        WithModel((folder, model) =>
        {
            var said = Output("mono", $"\"{Path.Combine(here, "layer.exe")}\" \"{model}\"");
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
                Output("mcs", $"-r:\"{assembly}\" -out:\"{folder}/page.exe\" \"{source}\"");
                Check.That(Output("mono", $"\"{folder}/page.exe\"").Trim().Length > 0, page + " says nothing");
            }
        });
    }
}
