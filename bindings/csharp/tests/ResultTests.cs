using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using Moe;

internal static class ResultTests
{
    [Test("FWD-01")]
    public static void GoldenOutputs()
    {
        var data = new Case("FWD-01");
        foreach (var name in data.List<string>("fixtures"))
            using (var g = new Golden("tests/oracle/fixtures/" + name))
            {
                var ids = Check.Filled(g.Ids.Length, -7);
                var weights = Check.Filled(g.RoutingWeights.Length, float.NaN);
                var counts = Check.Filled((int)g.Plan.Shape.NAllExperts, -7L);
                var output = g.Forward(new ForwardArgs { OutIds = ids, OutWeights = weights, OutExpertCounts = counts });
                Check.Same(ids, g.Ids, name + " ids");
                Check.Same(counts, counts.Select((count, id) => (long)g.Ids.Count(one => one == id)), name + " counts");
                Check.Near(weights, g.RoutingWeights, g.Tokens, data.Real("relative_l2"));
                g.Near(output, data.Real("relative_l2"));
            }
    }

    [Test("FWD-01")]
    public static void SpansGiveWhatArraysGive()
    {
        using (var g = new Golden())
        {
            var wanted = g.Forward();
            var padded = new float[g.X.Length + 8];
            g.X.CopyTo(padded, 4);
            var output = Check.Filled(g.Y.Length, float.NaN);
            g.Plan.Forward(g.Weights, g.Workspace, new ReadOnlySpan<float>(padded, 4, g.X.Length), output);
            Check.Same(output, wanted, "bits");
            output = Check.Filled(g.Y.Length, float.NaN);
            g.Plan.Forward(g.Weights, g.Workspace, g.X, g.Ids, g.RoutingWeights, output);
            g.Near(output, 1e-5);
            output = Check.Filled(g.Y.Length + 3, float.NaN);
            var part = new Memory<float>(output, 3, g.Y.Length);
            var x = new ReadOnlyMemory<float>(padded, 4, g.X.Length);
            g.Plan.Forward(g.Weights, g.Workspace, new ForwardArgs { X = Values.Of(x), Out = Values.Of(part) });
            Check.Same(part.ToArray(), wanted, "bits");
            Check.That(output.Take(3).All(float.IsNaN), "wrote before the memory");
            Check.Throws<ArgumentException>(() => g.Plan.Forward(g.Weights, g.Workspace, g.X, new float[1]), "Out");
        }
    }

    [Test("FWD-02")]
    public static void GivenRouting()
    {
        var data = new Case("FWD-02");
        var limit = data.Real("relative_l2");
        using (var g = new Golden(data.Text("fixture")))
        {
            var wide = g.Ids.Select(id => (long)id).ToArray();
            g.Near(g.Forward(new ForwardArgs { Ids = wide, Weights = g.RoutingWeights }), limit);
            var logits = Check.Filled(g.Tokens * (int)g.Plan.Shape.NAllExperts, float.NaN);
            var computed = g.Forward(new ForwardArgs { OutLogits = logits });
            var ids = Check.Filled(g.Ids.Length, -7);
            Check.Same(g.Forward(new ForwardArgs { Logits = logits, OutIds = ids }), computed, "logits given back");
            Check.Same(ids, g.Ids, "ids of logits");
            var nobody = g.Forward(new ForwardArgs { Ids = Check.Filled(g.Ids.Length, -1), Weights = g.RoutingWeights });
            Check.That(nobody.All(value => value == 0), "ids of -1 do not give zero");
            g.Plan.Forward(g.Weights, g.Workspace, new ForwardArgs { X = new float[0], Out = new float[0] });
            g.Plan.Forward(g.Weights, g.Workspace, ReadOnlySpan<float>.Empty, Span<float>.Empty);
        }
    }

    [Test("FWD-02")]
    public static void AccumulationAndFewerTokens()
    {
        using (var g = new Golden())
        {
            var output = (float[])g.Y.Clone();
            g.Plan.Forward(g.Weights, g.Workspace, new ForwardArgs { X = g.X, Out = output, Accumulate = true });
            Check.Near(output, g.Y.Select(value => 2 * value).ToArray(), g.Tokens, 1e-5);
            output = Check.Filled(g.Y.Length, 7f);
            g.Plan.Forward(g.Weights, g.Workspace, new ForwardArgs { X = g.X, Out = output, NTokensDevice = new[] { 2 } });
            var part = 2 * g.Hidden;
            Check.Near(output.Take(part).ToArray(), g.Y.Take(part).ToArray(), 2, 1e-5);
            Check.That(output.Skip(part).All(value => value == 7), "the true number of tokens was not kept to");
        }
    }

    [Test("FWD-03")]
    public static void StageByStage()
    {
        var data = new Case("FWD-03");
        var limit = data.Real("relative_l2");
        using (var g = new Golden(data.Text("fixture")))
        {
            var ids = Check.Filled(g.Ids.Length, -7);
            float[] weights = Check.Filled(ids.Length, float.NaN), again = Check.Filled(ids.Length, float.NaN);
            g.Plan.Route(g.Weights, g.Workspace, new RouteArgs { X = g.X, OutIds = ids, OutWeights = weights });
            g.Plan.Route(g.Weights, g.Workspace, new RouteArgs { X = g.X, Ids = ids, OutWeights = again });
            Check.Same(ids, g.Ids, "ids");
            Check.Near(again, g.RoutingWeights, g.Tokens, limit);
            var experts = (int)g.Plan.Shape.NLocalExperts;
            long[] offsets = new long[experts + 1], counts = new long[experts];
            var rowIds = Check.Filled(ids.Length, -7);
            g.Plan.Dispatch(g.Workspace, new DispatchArgs { Ids = ids, OutOffsets = offsets, OutCounts = counts, OutRowIds = rowIds });
            Check.Same(rowIds.OrderBy(one => one), Enumerable.Range(0, ids.Length), "slots");
            Check.That(offsets[experts] == ids.Length && counts.Sum() == ids.Length, "offsets");
            var rows = Check.Filled(ids.Length * g.Hidden, float.NaN);
            g.Plan.Experts(g.Weights, g.Workspace, new ExpertsArgs
            {
                X = g.X, Out = rows, OutLayout = OutLayout.Rows, Offsets = offsets, RowIds = rowIds,
            });
            var routed = Check.Filled(g.Y.Length, float.NaN);
            g.Plan.Combine(g.Workspace, new CombineArgs { Rows = rows, RowIds = rowIds, Ids = ids, Weights = weights, Out = routed });
            var output = Check.Filled(g.Y.Length, float.NaN);
            g.Plan.Finish(g.Weights, g.Workspace, new FinishArgs
            {
                Routed = routed, X = g.X, Ids = ids, Weights = weights, Out = output,
            });
            g.Near(output, limit);
            var fused = Check.Filled(g.Y.Length, float.NaN);
            g.Plan.Experts(g.Weights, g.Workspace, new ExpertsArgs { X = g.X, Out = fused, Ids = ids, Weights = weights });
            Check.Near(fused, routed, g.Tokens, 1e-5);
        }
    }

    [Test("FWD-03")]
    public static void LayoutsOfExperts()
    {
        using (var g = new Golden())
        {
            int experts = (int)g.Plan.Shape.NLocalExperts, n = g.Ids.Length, width = g.Hidden;
            long[] offsets = new long[experts + 1], counts = new long[experts];
            var rowIds = new int[n];
            g.Plan.Dispatch(g.Workspace, new DispatchArgs { Ids = g.Ids, OutOffsets = offsets, OutCounts = counts, OutRowIds = rowIds });
            Func<ExpertsArgs, int, float[]> run = (args, size) =>
            {
                var output = Check.Filled(size, float.NaN);
                args.Out = output;
                g.Plan.Experts(g.Weights, g.Workspace, args);
                return output;
            };
            var rows = run(new ExpertsArgs { X = g.X, OutLayout = OutLayout.Rows, Offsets = offsets, RowIds = rowIds }, n * width);
            var sortedX = rowIds.SelectMany(slot => g.X.Skip(slot / g.TopK * width).Take(width)).ToArray();
            float[] gathered = Check.Filled(sortedX.Length, float.NaN), rowWeights = Check.Filled(n, float.NaN);
            var rowTokens = Check.Filled(n, -7);
            g.Plan.Gather(g.Workspace, new GatherArgs
            {
                X = g.X, Offsets = offsets, Counts = counts, RowIds = rowIds, Out = gathered, Weights = g.RoutingWeights,
                OutRowTokens = rowTokens, OutRowWeights = rowWeights,
            });
            Check.Same(gathered, sortedX, "gathered rows");
            Check.Same(rowTokens, rowIds.Select(slot => slot / g.TopK), "their tokens");
            Check.Same(rowWeights, rowIds.Select(slot => g.RoutingWeights[slot]), "their weights");
            Check.Near(run(new ExpertsArgs { InLayout = InLayout.Sorted, OutLayout = OutLayout.Rows, X = sortedX, Offsets = offsets },
                rows.Length), rows, n, 1e-5);
            g.Near(run(new ExpertsArgs
            {
                InLayout = InLayout.Sorted, X = sortedX, Offsets = offsets, RowIds = rowIds, NTokens = g.Tokens,
                Weights = g.RoutingWeights,
            }, g.Y.Length), 1e-5);
            var capacity = (int)counts.Max();
            var batched = new float[experts * capacity * width];
            for (var e = 0; e < experts; e++)
                Array.Copy(sortedX, offsets[e] * width, batched, e * capacity * width, counts[e] * width);
            var of = run(new ExpertsArgs { InLayout = InLayout.Batched, OutLayout = OutLayout.Rows, X = batched, Counts = counts },
                batched.Length);
            var used = Enumerable.Range(0, experts).SelectMany(e => of.Skip(e * capacity * width).Take((int)counts[e] * width));
            Check.Near(used.ToArray(), rows, n, 1e-5);
            var half = run(new ExpertsArgs
            {
                X = g.X, OutLayout = OutLayout.Rows, Offsets = offsets, RowIds = rowIds, StopBeforeActivation = true,
            }, n * (int)g.Plan.Shape.NFeatures);
            Check.That(!half.Any(float.IsNaN) && half.Any(value => value != 0), "nothing before the activation");
            var slots = run(new ExpertsArgs { X = g.X, OutLayout = OutLayout.PerSlot, Ids = g.Ids }, n * width);
            var combined = Check.Filled(g.Y.Length, float.NaN);
            g.Plan.Combine(g.Workspace, new CombineArgs { Rows = slots, Ids = g.Ids, Weights = g.RoutingWeights, Out = combined });
            g.Near(combined, 1e-5);
        }
    }

    [Test]
    public static void SlicesAddUp()
    {
        using (var g = new Golden())
        {
            var total = new float[g.Y.Length];
            foreach (var part in new[] { (0, 5), (5, 7) })
            {
                var options = g.Options();
                options.Partial = true;
                options.Slice = new Slice { Experts = part };
                using (var plan = new Plan(options))
                using (var weights = Weights.Load(plan, g.Checkpoint, g.LayerIndex))
                {
                    Check.That(weights.Memory().NLocalExperts == part.Item2, "experts");
                    plan.Forward(weights, g.Workspace, new ForwardArgs { X = g.X, Out = total, Accumulate = true });
                }
            }
            g.Near(total, 1e-5);
        }
    }

    [Test]
    public static void SixteenBits()
    {
        using (var g = new Golden())
        using (var layer = new Layer(g.Path, new PlanOptions { XType = ElementType.BF16, CheckpointLayer = g.LayerIndex }))
        {
            // The fixtures' x is exact in bfloat16.
            var x = g.X.Select(value => new BFloat16((ushort)(BitConverter.ToInt32(BitConverter.GetBytes(value), 0) >> 16))).ToArray();
            var output = new BFloat16[g.Y.Length];
            layer.Forward(new ForwardArgs { X = x, Out = output });
            g.Near(output.Select(one => BitConverter.ToSingle(BitConverter.GetBytes(one.Bits << 16), 0)).ToArray(), 2e-2);
        }
    }

    [Test("FWD-05")]
    public static void QuantiseAndReadBack()
    {
        var data = new Case("FWD-05");
        var coarse = new Dictionary<int, double>
        {
            { 2, 0.5 }, { 3, 0.5 }, { 4, 0.2 }, { 5, 0.1 }, { 6, 0.1 }, { 8, 0.05 }, { 16, 4e-3 }, { 32, 0 },
        };
        foreach (var name in Library.FormatNames)
        {
            var format = Format.ByName(name);
            var isNamed = name == data.Text("format");
            int rows = isNamed ? data.Int("rows") : 128, columns = isNamed ? data.Int("columns") : 256;
            var limit = isNamed ? data.Real("relative_l2") : coarse[(int)format.Info().BitsPerWeight];
            var random = new Random(1);
            var matrix = Enumerable.Range(0, rows * columns).Select(i => (float)(2 * random.NextDouble() - 1)).ToArray();
            if (!format.Info().HasEncode)
            {
                Check.Fails(Status.Unsupported, () => Tensor.Quantize(Role.Gate, matrix, rows, columns, format));
                continue;
            }
            Check.Near(Tensor.Quantize(Role.Gate, matrix, rows, columns, format).Dequantize(), matrix, 1, limit);
        }
    }

    [Test("FWD-05")]
    public static void AnAbsentDeviceIsRefused()
    {
        using (var g = new Golden())
        {
            var options = g.Options();
            options.Device = DeviceKind.Cuda;
            options.DeviceIndex = 1000;
            var error = Check.Throws<MoeException>(() => new Plan(options));
            var wanted = Library.BuildInfo.Contains("cuda") ? Status.NoDevice : Status.NotBuilt;
            Check.That(error.Status == wanted || (wanted == Status.NoDevice && error.Message.Contains("1000")), error.Message);
        }
    }

    [Test]
    public static void SavedWeightsAreNotInThisVersion()
    {
        using (var g = new Golden())
        {
            Check.Fails(Status.Unsupported, () => g.Weights.Save("/no/such/folder/packed"), "moe_weights_");
            Check.Fails(Status.Unsupported, () => Weights.Open(g.Plan, "/no/such/folder/packed"), "moe_weights_");
        }
    }

    private const int ReadWrite = 3, PrivateAnonymousSparse = 0x4022;

    [DllImport("libc.so.6")]
    private static extern IntPtr mmap(IntPtr address, UIntPtr bytes, int protection, int flags, int file, IntPtr offset);

    [DllImport("libc.so.6")]
    private static extern int munmap(IntPtr address, UIntPtr bytes);

    [Test("BIG-01")]
    public static void RowsMoreThan2ToThe31ElementsApart()
    {
        var data = new Case("BIG-01");
        var stride = data.Whole("row_stride");
        using (var g = new Golden(data.Text("fixture")))
        {
            var bytes = (UIntPtr)(ulong)(4 * (stride + g.Hidden));
            var far = mmap(IntPtr.Zero, bytes, ReadWrite, PrivateAnonymousSparse, -1, IntPtr.Zero);
            if (far == (IntPtr)(-1))
                throw new TestSkippedException("no sparse mapping of 8 GiB here");
            try
            {
                Marshal.Copy(g.X, 0, far, g.Hidden);
                Marshal.Copy(g.X, g.Hidden, (IntPtr)((long)far + 4 * stride), g.Hidden);
                float[] near = new float[2 * g.Hidden], output = new float[2 * g.Hidden];
                g.Plan.Forward(g.Weights, g.Workspace, g.X.AsSpan(0, near.Length), near);
                g.Plan.Forward(g.Weights, g.Workspace, new ForwardArgs
                {
                    X = Values.At(far, ElementType.F32, 2, g.Hidden, stride), Out = output,
                });
                Check.Same(output, near, "rows far apart");
                Check.Near(output, g.Y.Take(near.Length).ToArray(), 2, 1e-5);
            }
            finally
            {
                munmap(far, bytes);
            }
        }
    }

    [Test("BIG-02")]
    public static void CountsBeyond2ToThe31()
    {
        var data = new Case("BIG-02");
        var format = Format.ByName(data.Text("format"));
        Check.That(format.Size(data.Whole("rows"), data.Whole("columns")).DataBytes == (ulong)data.Whole("data_bytes"), "bytes");
        var many = data.Whole("overflowing_rows");
        Check.Fails(Status.InvalidArgument, () => format.Size(many, data.Whole("columns")), many.ToString());
        using (var g = new Golden())
        {
            var options = g.Options();
            options.MaxTokens = data.Whole("max_tokens");
            Check.Fails(Status.InvalidArgument, () => Plan.CheckSupport(options), $"max_tokens is {options.MaxTokens}");
            Check.Fails(Status.InvalidArgument, () => new Plan(options), $"max_tokens is {options.MaxTokens}");
        }
    }
}
