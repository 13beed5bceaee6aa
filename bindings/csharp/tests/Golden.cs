using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using System.Text.RegularExpressions;
using System.Threading;
using Moe;

/// <summary>What tests ask of what they get.</summary>
internal static class Check
{
    public static void That(bool isTrue, string message)
    {
        if (!isTrue)
            throw new TestFailedException(message);
    }

    public static void Same<T>(IEnumerable<T> got, IEnumerable<T> wanted, string what)
    {
        That(got.SequenceEqual(wanted), $"{what}: {Shown(got)} instead of {Shown(wanted)}");
    }

    private static string Shown<T>(IEnumerable<T> all) => string.Join(" ", all.Take(16));

    public static T Throws<T>(Action run, params string[] words) where T : Exception
    {
        try
        {
            run();
        }
        catch (T error)
        {
            foreach (var one in words)
                That(error.Message.Contains(one), $"no {one} in {error.Message}");
            return error;
        }
        throw new TestFailedException($"no {typeof(T).Name}");
    }

    public static void Fails(Status status, Action run, params string[] words)
    {
        var error = Throws<MoeException>(run, words);
        That(error.Status == status, $"{error.Message} instead of {status}");
    }

    /// <summary>The largest over rows of |got - wanted| / |wanted|; NaN is infinite, and zeros are one.</summary>
    public static double RelativeL2(float[] got, float[] wanted, int rows)
    {
        That(got.Length == wanted.Length && rows > 0 && got.Length % rows == 0, $"{got.Length} of {wanted.Length}, {rows} rows");
        double worst = 0;
        var width = got.Length / rows;
        for (var row = 0; row < rows; row++)
        {
            double difference = 0, norm = 0;
            for (var i = row * width; i < (row + 1) * width; i++)
            {
                difference += Math.Pow((double)got[i] - wanted[i], 2);
                norm += Math.Pow(wanted[i], 2);
            }
            That(norm > 0, $"row {row} that is wanted is zero");
            var error = Math.Sqrt(difference / norm);
            worst = double.IsNaN(error) ? double.PositiveInfinity : Math.Max(worst, error);
        }
        return worst;
    }

    public static void Near(float[] got, float[] wanted, int rows, double limit)
    {
        var found = RelativeL2(got, wanted, rows);
        That(found <= limit, $"relative L2 {found}, more than {limit}");
    }

    /// <summary>Runs work on that many threads; the first exception is thrown here.</summary>
    public static void InParallel(int count, Action<int> work)
    {
        Exception first = null;
        var threads = Enumerable.Range(0, count).Select(number => new Thread(() =>
        {
            try
            {
                work(number);
            }
            catch (Exception error)
            {
                Interlocked.CompareExchange(ref first, error, null);
            }
        })).ToArray();
        foreach (var one in threads)
            one.Start();
        foreach (var one in threads)
            one.Join();
        if (first != null)
            throw new TestFailedException("a thread: " + first);
    }

    public static T[] Filled<T>(int count, T value) => Enumerable.Repeat(value, count).ToArray();

    /// <summary>A folder that is gone after the test.</summary>
    public static void InFolder(Action<string> run)
    {
        var folder = Path.Combine(Path.GetTempPath(), "moe-csharp-" + Guid.NewGuid().ToString("N"));
        Directory.CreateDirectory(folder);
        try
        {
            run(folder);
        }
        finally
        {
            Directory.Delete(folder, true);
        }
    }
}

/// <summary>A fixture of tests/oracle: a checkpoint with what the tool that wrote it computes, and a handle of each kind.</summary>
internal sealed class Golden : IDisposable
{
    public const string Qwen3 = "tests/oracle/fixtures/qwen3_moe_bf16";

    public Golden(string folder = Qwen3, Runtime runtime = null)
    {
        folder = Conformance.At(folder);
        var gguf = System.IO.Path.Combine(folder, "model.gguf");
        Path = File.Exists(gguf) ? gguf : folder;
        var facts = (Dictionary<string, object>)Json.Parse(File.ReadAllText(System.IO.Path.Combine(folder, "case.json")));
        LayerIndex = (int)(double)facts["layer"];
        X = Floats(folder, "x.npy", out var tokens, out var hidden);
        Y = Floats(folder, "y.npy", out _, out _);
        RoutingWeights = Floats(folder, "weights.npy", out _, out var topK);
        Ids = new int[tokens * topK];
        Buffer.BlockCopy(Words(folder, "ids.npy", "<i4", out _, out _), 0, Ids, 0, 4 * Ids.Length);
        Tokens = tokens;
        Hidden = hidden;
        TopK = topK;
        Checkpoint = new Checkpoint(Path, new CheckpointOptions { Runtime = runtime });
        Plan = new Plan(Options(runtime));
        Weights = Weights.Load(Plan, Checkpoint, LayerIndex);
        Workspace = new Workspace(Plan, new WorkspaceOptions { Runtime = runtime });
    }

    public string Path { get; }
    public int LayerIndex { get; }
    public float[] X { get; }
    public float[] Y { get; }
    public float[] RoutingWeights { get; }
    public int[] Ids { get; }
    public int Tokens { get; }
    public int Hidden { get; }
    public int TopK { get; }
    public Checkpoint Checkpoint { get; }
    public Plan Plan { get; }
    public Weights Weights { get; }
    public Workspace Workspace { get; }

    public PlanOptions Options(Runtime runtime = null)
    {
        return new PlanOptions
        {
            Runtime = runtime, Checkpoint = Checkpoint, CheckpointLayer = LayerIndex, Device = DeviceKind.Cpu,
            XType = ElementType.F32, MaxTokens = 64,
        };
    }

    /// <summary>out, filled with NaN before; X unless the arguments have another.</summary>
    public float[] Forward(ForwardArgs args = null)
    {
        args = args ?? new ForwardArgs();
        var output = Check.Filled(Y.Length, float.NaN);
        args.X = args.X ?? X;
        args.Out = output;
        Plan.Forward(Weights, Workspace, args);
        return output;
    }

    public void Near(float[] got, double limit) => Check.Near(got, Y, Tokens, limit);

    public void Dispose()
    {
        Workspace.Dispose();
        Weights.Dispose();
        Plan.Dispose();
        Checkpoint.Dispose();
    }

    private static float[] Floats(string folder, string name, out int rows, out int columns)
    {
        var bytes = Words(folder, name, "<f4", out rows, out columns);
        var found = new float[rows * columns];
        Buffer.BlockCopy(bytes, 0, found, 0, bytes.Length);
        return found;
    }

    /// <summary>The bytes of a .npy file of version 1 with values of 32 bits.</summary>
    private static byte[] Words(string folder, string name, string type, out int rows, out int columns)
    {
        var file = File.ReadAllBytes(System.IO.Path.Combine(folder, name));
        var end = 10 + BitConverter.ToUInt16(file, 8);
        var header = Encoding.ASCII.GetString(file, 10, end - 10);
        var match = Regex.Match(header, @"'descr': '(...)', 'fortran_order': False, 'shape': \((\d+), (\d+)\)");
        Check.That(match.Success && match.Groups[1].Value == type, name + ": " + header);
        rows = int.Parse(match.Groups[2].Value);
        columns = int.Parse(match.Groups[3].Value);
        Check.That(file.Length - end == 4 * rows * columns, $"{name}: {file.Length - end} bytes");
        return file.Skip(end).ToArray();
    }
}
