using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using System.Text.RegularExpressions;
using Moe;

internal static class HeaderTests
{
    private static string Output(string program, string arguments)
    {
        var start = new ProcessStartInfo(program, arguments) { UseShellExecute = false, RedirectStandardOutput = true };
        using (var process = Process.Start(start))
        {
            var output = process.StandardOutput.ReadToEnd();
            process.WaitForExit();
            Check.That(process.ExitCode == 0, $"{program} {arguments}: {output}");
            return output;
        }
    }

    [Test]
    public static void WhatIsGeneratedIsThatOfTheHeader()
    {
        Output("python3", $"\"{Conformance.At("bindings/csharp/generate.py")}\" --check");
    }

    /// <summary>Size and every offset of every struct, by the C compiler.</summary>
    [Test]
    public static void StructsLieAsInC()
    {
        var structs = typeof(Library).Assembly.GetTypes().Where(type => type.IsValueType && type.Name.StartsWith("moe_")).ToArray();
        Check.That(structs.Length >= 20, $"{structs.Length} structs");
        var wanted = new List<string>();
        var program = "#include <moe/moe.h>\n#include <stdio.h>\nint main(void) {\n";
        foreach (var type in structs)
        {
            wanted.Add($"{type.Name} {Marshal.SizeOf(type)}");
            program += $"printf(\"{type.Name} %zu\\n\", sizeof({type.Name}));\n";
            foreach (var field in type.GetFields())
            {
                wanted.Add($"{type.Name}.{field.Name} {Marshal.OffsetOf(type, field.Name)}");
                program += $"printf(\"{type.Name}.{field.Name} %zu\\n\", offsetof({type.Name}, {field.Name}));\n";
            }
        }
        Check.InFolder(folder =>
        {
            var source = Path.Combine(folder, "layout.c");
            File.WriteAllText(source, program + "return 0;\n}\n");
            Output("cc", $"-I\"{Conformance.At("include")}\" \"{source}\" -o \"{folder}/layout\"");
            Check.Same(wanted, Output(Path.Combine(folder, "layout"), "").Trim().Split('\n'), "layout");
        });
        Check.That(wanted.Count > 300, $"{wanted.Count} facts");
    }

    /// <summary>Every function is called somewhere, or stands in the table of the README with a reason.</summary>
    [Test]
    public static void EveryFunctionIsWrappedOrListedWithAReason()
    {
        var folder = Conformance.At("bindings/csharp");
        var sources = string.Concat(Directory.GetFiles(Path.Combine(folder, "src"), "*.cs").Select(File.ReadAllText));
        var table = File.ReadAllText(Path.Combine(folder, "README.md"));
        foreach (var name in Imports.Names)
        {
            var isUsed = Regex.IsMatch(sources, $@"(Native|Imports)\.{name}\b");
            var isListed = Regex.IsMatch(table, $@"\| `{name}` \| \S");
            Check.That(isUsed != isListed, $"{name}: used {isUsed}, in the table {isListed}");
        }
        var listed = Regex.Matches(table, @"\| `(moe_\w+)` \| \S").Cast<Match>().Select(one => one.Groups[1].Value);
        Check.That(!listed.Except(Imports.Names).Any(), "the table has what moe.h has not");
    }

    [Test]
    public static void LayersComeBackAsTheyWere()
    {
        using (var g = new Golden("tests/oracle/fixtures/deepseek_v3_bf16"))
        {
            var layer = g.Checkpoint.Layer(g.LayerIndex);
            var again = LayerDesc.FromNative(layer.ToNative());
            foreach (var one in typeof(LayerDesc).GetProperties())
                Check.That(Equals(one.GetValue(layer), one.GetValue(again)), one.Name);
            Check.That(layer.HasRouter && layer.RoutedScale > 0, "nothing was read");
        }
    }
}
