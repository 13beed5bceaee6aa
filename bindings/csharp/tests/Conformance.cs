using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Reflection;

/// <summary>A test, and the cases of cases.toml that it shows.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class TestAttribute : Attribute
{
    public TestAttribute(params string[] cases)
    {
        Cases = cases;
    }

    public string[] Cases { get; }
}

internal sealed class TestFailedException : Exception
{
    public TestFailedException(string message) : base(message)
    {
    }
}

internal sealed class TestSkippedException : Exception
{
    public TestSkippedException(string message) : base(message)
    {
    }
}

/// <summary>Runs every method that is a test, and writes what came out by case (bindings/conformance/README.md).
///
///   MoeTests ROOT [--results FILE] [--only PART]     ROOT of the source tree; PART of the names of tests
///   MoeTests ROOT --gate                             only uses the library, and says what came out
/// </summary>
internal static class Conformance
{
    private static readonly Dictionary<string, List<Outcome>> outcomes = new Dictionary<string, List<Outcome>>();

    private sealed class Outcome
    {
        public bool? Passed { get; set; }
        public string Reason { get; set; }
    }

    public static string Root { get; private set; }

    public static Toml Cases { get; private set; }

    public static string At(string path) => Path.Combine(Root, path);

    public static int Main(string[] arguments)
    {
        Root = Path.GetFullPath(arguments[0]);
        if (string.IsNullOrEmpty(Environment.GetEnvironmentVariable("MOE_LIBRARY")) && !arguments.Contains("--gate"))
            Environment.SetEnvironmentVariable("MOE_LIBRARY", At("build/cpu/lib/libmoe.so"));
        if (arguments.Contains("--gate"))
            return VersionTests.Gate();
        Cases = Toml.Read(At("bindings/conformance/cases.toml"));
        var only = After(arguments, "--only") ?? "";
        int passed = 0, failed = 0, skipped = 0;
        foreach (var test in Tests().Where(one => NameOf(one).Contains(only)))
        {
            var outcome = Run(test, out var reason);
            foreach (var one in test.GetCustomAttribute<TestAttribute>().Cases)
                Record(one, outcome, NameOf(test) + reason);
            passed += outcome == true ? 1 : 0;
            failed += outcome == false ? 1 : 0;
            skipped += outcome == null ? 1 : 0;
        }
        var results = After(arguments, "--results");
        if (results != null)
            Write(results);
        Console.WriteLine($"csharp on {Programs.Runtime}: {passed} passed, {failed} failed, {skipped} skipped");
        return failed == 0 && passed > 0 ? 0 : 1;
    }

    private static string After(string[] arguments, string option)
    {
        var at = Array.IndexOf(arguments, option);
        return at < 0 ? null : arguments[at + 1];
    }

    private static IEnumerable<MethodInfo> Tests()
    {
        const BindingFlags any = BindingFlags.Static | BindingFlags.Public | BindingFlags.NonPublic;
        return from type in typeof(Conformance).Assembly.GetTypes()
               from method in type.GetMethods(any)
               where method.GetCustomAttribute<TestAttribute>() != null
               select method;
    }

    private static string NameOf(MethodInfo test) => test.DeclaringType.Name + "." + test.Name;

    /// <summary>null: it was skipped, for the reason given.</summary>
    private static bool? Run(MethodInfo test, out string reason)
    {
        reason = "";
        try
        {
            ((Action)Delegate.CreateDelegate(typeof(Action), test))();
            return true;
        }
        catch (TestSkippedException skipped)
        {
            Console.WriteLine($"skipped {NameOf(test)}: {skipped.Message}");
            reason = ": " + skipped.Message;
            return null;
        }
        catch (Exception error)
        {
            Console.WriteLine($"FAILED {NameOf(test)}: {error}");
            return false;
        }
    }

    private static void Record(string name, bool? passed, string reason)
    {
        if (!Cases.ContainsKey(name))
            throw new ArgumentException($"{name} is no case");
        if (!outcomes.ContainsKey(name))
            outcomes[name] = new List<Outcome>();
        outcomes[name].Add(new Outcome { Passed = passed, Reason = reason });
    }

    private static void Write(string path)
    {
        Directory.CreateDirectory(Path.GetDirectoryName(Path.GetFullPath(path)));
        using (var file = new StreamWriter(path))
            foreach (var name in Cases.Keys.Where(outcomes.ContainsKey))
                file.WriteLine($"{{\"case\": \"{name}\", {Result(outcomes[name])}}}");
    }

    private static string Result(List<Outcome> all)
    {
        foreach (var bad in new bool?[] { false, null })
        {
            var found = all.Where(one => one.Passed == bad).Select(one => one.Reason).ToArray();
            if (found.Length > 0)
                return $"\"passed\": {(bad == null ? "null" : "false")}, \"reason\": \"" + Escaped(string.Join(", ", found)) + "\"";
        }
        return "\"passed\": true";
    }

    private static string Escaped(string text) => text.Replace("\\", "\\\\").Replace("\"", "\\\"");
}

/// <summary>The part of TOML that cases.toml uses: [[case]], and key = value on a line of its own. Values are strings, longs,
/// doubles, lists and dictionaries.</summary>
internal sealed class Toml : Dictionary<string, Dictionary<string, object>>
{
    private string text;

    public static Toml Read(string path)
    {
        var found = new Toml();
        var current = new Dictionary<string, object>();
        foreach (var line in File.ReadAllLines(path).Select(one => one.Trim()))
        {
            if (line == "[[case]]")
                current = new Dictionary<string, object>();
            var equals = line.IndexOf(" = ", StringComparison.Ordinal);
            if (equals < 0 || line.StartsWith("#"))
                continue;
            found.text = line.Substring(equals + 3);
            var key = line.Substring(0, equals);
            current[key] = found.Value();
            if (key == "id")
                found[(string)current[key]] = current;
        }
        return found;
    }

    private bool Skip(string what)
    {
        text = text.TrimStart();
        if (!text.StartsWith(what, StringComparison.Ordinal))
            return false;
        text = text.Substring(what.Length).TrimStart();
        return true;
    }

    /// <summary>What stands before the next end.</summary>
    private string Until(char end)
    {
        var at = text.IndexOf(end);
        if (at < 0)
            throw new FormatException($"no {end} in {text}");
        var found = text.Substring(0, at);
        text = text.Substring(at + 1);
        return found;
    }

    private object Value()
    {
        if (Skip("["))
        {
            var list = new List<object>();
            while (!Skip("]"))
            {
                list.Add(Value());
                Skip(",");
            }
            return list;
        }
        if (Skip("{"))
        {
            var table = new Dictionary<string, object>();
            while (!Skip("}"))
            {
                var key = Until('=').Trim();
                table[key] = Value();
                Skip(",");
            }
            return table;
        }
        return Skip("\"") ? Until('"') : Number();
    }

    private object Number()
    {
        text = text.TrimStart();
        var end = text.IndexOfAny(",]}# ".ToCharArray());
        var token = end < 0 ? text : text.Substring(0, end);
        text = text.Substring(token.Length);
        if (long.TryParse(token, NumberStyles.Integer, CultureInfo.InvariantCulture, out var whole))
            return whole;
        return double.Parse(token, NumberStyles.Float, CultureInfo.InvariantCulture);
    }
}

/// <summary>The data of a case, by the types it has in cases.toml.</summary>
internal sealed class Case
{
    private readonly Dictionary<string, object> data;

    public Case(string name) : this(Conformance.Cases[name])
    {
    }

    private Case(Dictionary<string, object> data)
    {
        this.data = data;
    }

    public IEnumerable<string> Keys => data.Keys;

    public string Text(string key) => (string)data[key];

    public long Whole(string key) => (long)data[key];

    public int Int(string key) => checked((int)Whole(key));

    public double Real(string key) => (double)data[key];

    public Case Table(string key) => new Case((Dictionary<string, object>)data[key]);

    public IEnumerable<T> List<T>(string key) => ((List<object>)data[key]).Cast<T>();
}
