using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.InteropServices;
using Moe;

/// <summary>A layer made by hand, and the sums of moe.h section 4 for softmax scores and SiLU.</summary>
internal sealed class SmallLayer : IDisposable
{
    private const int Tokens = 5;
    private readonly LayerDesc layer;
    private readonly float[] x;
    private readonly float[] wanted;

    public SmallLayer()
    {
        var fields = new Case("FWD-04").Table("layer");
        layer = new LayerDesc
        {
            Hidden = fields.Int("hidden"), Intermediate = fields.Int("intermediate"), NExperts = fields.Int("n_experts"),
            TopK = fields.Int("top_k"), HasRouter = fields.Int("has_router") != 0, Score = (Score)fields.Int("score"),
            Activation = (Activation)fields.Int("activation"), IsGated = fields.Int("is_gated") != 0,
        };
        var random = new Random(7);
        Func<int, float[]> made = n => Enumerable.Range(0, n).Select(i => (float)(4 * random.NextDouble() - 2)).ToArray();
        var matrix = layer.NExperts * layer.Hidden * layer.Intermediate;
        Arrays = new Dictionary<Role, float[]>
        {
            { Role.Router, made(layer.NExperts * layer.Hidden) }, { Role.Gate, made(matrix) }, { Role.Up, made(matrix) },
            { Role.Down, made(matrix) },
        };
        x = made(Tokens * layer.Hidden);
        wanted = Enumerable.Range(0, Tokens).SelectMany(ByHand).ToArray();
        Plan = new Plan(new PlanOptions
        {
            Layer = layer, Formats = Arrays.Keys.ToDictionary(role => role, role => Format.ByName("f32")),
            XType = ElementType.F32, MaxTokens = Tokens, Device = DeviceKind.Cpu,
        });
    }

    public Dictionary<Role, float[]> Arrays { get; }
    public Plan Plan { get; }

    public void Dispose() => Plan.Dispose();

    private static double[] Times(float[] matrix, int begin, int rows, double[] by)
    {
        return Enumerable.Range(0, rows)
            .Select(row => by.Select((value, i) => matrix[begin + row * by.Length + i] * value).Sum()).ToArray();
    }

    private float[] ByHand(int token)
    {
        int hidden = layer.Hidden, middle = layer.Intermediate, size = hidden * middle;
        var row = x.Skip(token * hidden).Take(hidden).Select(value => (double)value).ToArray();
        var scores = Times(Arrays[Role.Router], 0, layer.NExperts, row).Select(Math.Exp).ToArray();
        var chosen = Enumerable.Range(0, layer.NExperts).OrderByDescending(expert => scores[expert]).Take(layer.TopK);
        var output = new double[hidden];
        foreach (var expert in chosen)
        {
            double[] g = Times(Arrays[Role.Gate], expert * size, middle, row), u = Times(Arrays[Role.Up], expert * size, middle, row);
            var act = g.Select((value, i) => value / (1 + Math.Exp(-value)) * u[i]).ToArray();
            var down = Times(Arrays[Role.Down], expert * size, hidden, act);
            for (var i = 0; i < hidden; i++)
                output[i] += scores[expert] / scores.Sum() * down[i];
        }
        return output.Select(value => (float)value).ToArray();
    }

    public List<Tensor> Tensors()
    {
        int hidden = layer.Hidden, middle = layer.Intermediate;
        return new List<Tensor>
        {
            Tensor.Dense(Role.Router, Arrays[Role.Router], layer.NExperts, hidden),
            Tensor.Dense(Role.Gate, Arrays[Role.Gate], middle, hidden), Tensor.Dense(Role.Up, Arrays[Role.Up], middle, hidden),
            Tensor.Dense(Role.Down, Arrays[Role.Down], hidden, middle),
        };
    }

    public float[] Expert(Role role, int expert)
    {
        var size = layer.Hidden * layer.Intermediate;
        return Arrays[role].Skip(expert * size).Take(size).ToArray();
    }

    public Tensor ExpertTensor(Role role, int expert)
    {
        var one = Tensor.Dense(role, Expert(role, expert), layer.Intermediate, layer.Hidden);
        one.Expert = expert;
        return one;
    }

    public double ErrorOf(Weights weights)
    {
        using (var workspace = new Workspace(Plan))
        {
            var output = Check.Filled(wanted.Length, float.NaN);
            Plan.Forward(weights, workspace, x, output);
            return Check.RelativeL2(output, wanted, Tokens);
        }
    }
}

internal static class TensorTests
{
    private static double Limit => new Case("FWD-04").Real("relative_l2");

    [Test("FWD-04")]
    public static void TensorsByHand()
    {
        using (var s = new SmallLayer())
            foreach (var ownership in new[] { Ownership.Copy, Ownership.Borrow, Ownership.Caller })
            {
                var block = IntPtr.Zero;
                var options = new LoadOptions { Ownership = ownership };
                if (ownership == Ownership.Caller)
                {
                    var bytes = (long)Weights.Size(s.Plan, s.Tensors());
                    block = Marshal.AllocHGlobal((IntPtr)(bytes + 64));
                    options.Memory = Values.At((IntPtr)(((long)block + 63) & -64), ElementType.U8, 1, bytes);
                }
                using (var weights = Weights.Load(s.Plan, s.Tensors(), options))
                {
                    var report = weights.Memory();
                    Check.That(report.RoleBytes[Role.Gate] == 4 * (ulong)s.Arrays[Role.Gate].Length, "bytes of gate");
                    Check.That(report.BorrowedBytes > 0 == (ownership == Ownership.Borrow), $"{report.BorrowedBytes} borrowed");
                    Check.That(s.ErrorOf(weights) <= Limit, $"{ownership}: {s.ErrorOf(weights)}");
                }
                Marshal.FreeHGlobal(block);
            }
    }

    [Test("FWD-04")]
    public static void OneArrayPerExpertAndUpdate()
    {
        using (var s = new SmallLayer())
            foreach (var ownership in new[] { Ownership.Copy, Ownership.Borrow })
            {
                var tensors = s.Tensors();
                tensors[1].Data = null;
                tensors[1].NExperts = 0;
                tensors[1].DataPerExpert = new[] { 0, 1, 2, 0 }.Select(e => Values.Of(s.Expert(Role.Gate, e))).ToArray();
                using (var weights = Weights.Load(s.Plan, tensors, new LoadOptions { Ownership = ownership }))
                {
                    Check.That(s.ErrorOf(weights) > 1e-3, "a wrong expert makes no difference");
                    weights.Update(s.ExpertTensor(Role.Gate, 3));
                    weights.Update(s.ExpertTensor(Role.Gate, 3));
                    GC.Collect();
                    Check.That(s.ErrorOf(weights) <= Limit, $"{ownership}: {s.ErrorOf(weights)}");
                }
                tensors[1].DataPerExpert = new[] { Values.Of(new float[1]), Values.Of(new float[2]) };
                Check.Throws<ArgumentException>(() => Weights.Load(s.Plan, tensors), "data_per_expert[1]");
            }
    }

    /// <summary>Arrays that weights borrow stay where they are while garbage is collected.</summary>
    [Test("FWD-04")]
    public static void BorrowedArraysAreKept()
    {
        using (var s = new SmallLayer())
        {
            var tensors = s.Tensors();
            foreach (var one in tensors)
                one.Data = (float[])s.Arrays[one.Role].Clone();
            using (var weights = Weights.Load(s.Plan, tensors, new LoadOptions { Ownership = Ownership.Borrow }))
            {
                tensors = null;
                for (var round = 0; round < 5; round++)
                {
                    GC.Collect();
                    GC.KeepAlive(new float[1 << 16]);
                }
                Check.That(s.ErrorOf(weights) <= Limit, "what was borrowed has moved");
            }
        }
    }

    [Test("FWD-04")]
    public static void AMissingTensorIsNamed()
    {
        using (var s = new SmallLayer())
            Check.Throws<MoeException>(() => Weights.Load(s.Plan, s.Tensors().Take(3).ToList()), "down");
    }

    [Test]
    public static void TensorsOfACheckpoint()
    {
        using (var g = new Golden())
        {
            var tensors = g.Checkpoint.Tensors(g.LayerIndex);
            var roles = tensors.Select(one => one.Role).ToArray();
            Check.That(new[] { Role.Router, Role.Gate, Role.Up, Role.Down }.All(roles.Contains), string.Join(" ", roles));
            Check.That(tensors.All(one => one.Mapped().Length > 0 || one.DataPerExpert != null), "a tensor without bytes");
            using (var weights = Weights.Load(g.Plan, tensors, new LoadOptions { Ownership = Ownership.Borrow }))
            {
                g.Checkpoint.Dispose();
                var output = Check.Filled(g.Y.Length, float.NaN);
                g.Plan.Forward(weights, g.Workspace, g.X, output);
                g.Near(output, 1e-5);
                Check.Throws<ObjectDisposedException>(() => Weights.Load(g.Plan, tensors));
            }
        }
    }
    [Test]
    public static void ScalesGoToTilesAndBack()
    {
        const int rows = 130, columns = 80, groups = 5;
        const ScaleLayout linear = ScaleLayout.Linear, tiled = ScaleLayout.Tiled128x4;
        var random = new Random(1);
        var matrix = Enumerable.Range(0, rows * columns).Select(i => (float)(2 * random.NextDouble() - 1)).ToArray();
        var tensor = Tensor.Quantize(Role.Gate, matrix, rows, columns, Format.ByName("nvfp4"));
        var wanted = tensor.Dequantize();
        var scales = Tensor.ConvertScales(tensor.Scales, linear, linear, rows, groups);
        var tiles = Tensor.ConvertScales(tensor.Scales, linear, tiled, rows, groups);
        Check.That(tiles.Length == 4 * 512 && tiles[21] == scales[33 * groups + 1], $"{tiles.Length} bytes, {tiles[21]}");
        Check.Same(Tensor.ConvertScales(tiles, tiled, linear, rows, groups), scales, "converted back");
        tensor.Scales = tiles;
        Check.That(!tensor.Dequantize().SequenceEqual(wanted), "tiles taken for rows give the same");
        tensor.ScaleLayout = tiled;
        Check.Same(tensor.Dequantize(), wanted, "values under tiled scales");
        tensor.ScaleLayout = (ScaleLayout)2;
        Check.Fails(Status.InvalidArgument, () => tensor.Dequantize(), "scale_layout is 2");
        Check.Fails(Status.InvalidArgument, () => Tensor.ConvertScales(tiles, tiled, linear, 1000, groups), "source_bytes");
    }
}
