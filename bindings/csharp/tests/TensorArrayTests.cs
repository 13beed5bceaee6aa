using System;
using System.IO;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Text;
using Moe;

/// <summary>What arrays a tensor takes, and how long the memory of a checkpoint is there.</summary>
internal static class TensorArrayTests
{
    private static Tensor Matrix(string format, Values data, Values scales = null)
    {
        return new Tensor { Role = Role.Gate, Format = Format.ByName(format), Rows = 32, Columns = 32, Data = data, Scales = scales };
    }

    private static void Refused(Tensor tensor, string name, params string[] words)
    {
        var error = Check.Throws<ArgumentException>(() => tensor.Dequantize(), words);
        Check.That(error.ParamName == name, $"{error.ParamName} instead of {name}");
    }

    [Test]
    public static void TheElementTypeIsTheFormats()
    {
        Values floats = new float[32 * 32], words = new int[32 * 32], halves = new Float16[32 * 32];
        Values short16 = new BFloat16[32 * 32], bytes = new byte[4 * 32 * 32], doubles = new double[32 * 32];
        foreach (var pair in new[] { ("f32", floats), ("f16", halves), ("bf16", short16) })
        {
            var (format, right) = pair;
            Matrix(format, right).Dequantize();
            Matrix(format, bytes).Dequantize();
            Refused(Matrix(format, doubles), "data", "is F64, must be");
            Refused(Matrix(format, words), "data", "is I32, must be");
            if (format != "f32")
                Refused(Matrix(format, floats), "data", "is F32, must be");
            var each = Matrix(format, null);
            each.DataPerExpert = new[] { right, doubles };
            Refused(each, "data_per_expert", "is F64, must be");
        }
        Refused(Matrix("nvfp4", floats), "data", "is F32, must be");
        Refused(Matrix("nvfp4", bytes, floats), "scales", "is F32, must be");
        Refused(Matrix("mxfp4", bytes, halves), "scales", "is F16, must be");
        Matrix("mxfp4", bytes, new byte[32]).Dequantize();
        Matrix("kbit4_f32", words, floats).Dequantize();
        Refused(Matrix("kbit4_f32", words, short16), "scales", "is BF16, must be");
        var gptq = new Tensor
        {
            Role = Role.Gate, Rows = 1, Columns = 1, Data = words, ZeroPoints = floats,
            Format = new Format
            {
                Type = ElementType.Int, Bits = 4, ScaleType = ElementType.F16, Packing = Packing.Gptq, ZeroPoint = ZeroPoint.Packed,
            },
        };
        Refused(gptq, "zero_points", "is F32, must be");
    }

    /// <summary>Rows of a matrix may lie in a larger one: the stride of the values is that of the tensor.</summary>
    [Test]
    public static void RowsOfATensorMayHaveGaps()
    {
        const int experts = 2, rows = 32, columns = 48, stride = 50;
        var values = Enumerable.Range(0, experts * rows * columns).Select(i => (float)i).ToArray();
        var wide = Check.Filled(experts * rows * stride, 1e9f);
        for (var i = 0; i < values.Length; i++)
            wide[i / columns * stride + i % columns] = values[i];
        Action<Tensor, int> same = (tensor, expert) =>
            Check.Same(tensor.Dequantize(expert), values.Skip(expert * rows * columns).Take(rows * columns), "expert " + expert);
        var stack = Tensor.Dense(Role.Gate, Values.Strided(wide, experts * rows, columns, stride), rows, columns);
        Check.That(stack.NExperts == experts, $"{stack.NExperts} experts");
        same(stack, 0);
        same(stack, 1);
        var first = Values.Strided(wide.AsMemory(0, rows * stride), rows, columns, stride);
        Func<Tensor> one = () => new Tensor { Role = Role.Gate, Format = Format.ByName("f32"), Rows = rows, Columns = columns, Data = first };
        same(one(), 0);
        var right = one();
        right.RowStride = 4 * stride;
        same(right, 0);
        var each = one();
        each.Data = null;
        each.Expert = Tensor.AllExperts;
        each.DataPerExpert = new[] { first, Values.Strided(wide.AsMemory(rows * stride), rows, columns, stride) };
        same(each, 1);

        var bad = one();
        bad.RowStride = 4 * stride + 4;
        Refused(bad, "data", "RowStride is 204");
        bad = one();
        bad.Data = Values.Strided(wide, rows / 2, columns, stride);
        Refused(bad, "data", "[16, 48]");
        bad.Data = Values.Strided(wide, rows, columns - 1, stride);
        Refused(bad, "data", "[32, 47]");
        bad.Data = Values.Strided(wide, 3 * rows, columns, stride);
        Refused(bad, "data", "do not fit");
        bad.Data = Values.Strided(wide, rows, columns, columns - 1);
        Refused(bad, "data", "overlap");
        stack.ExpertStride = 4 * rows * columns;
        Refused(stack, "data", "ExpertStride is");
        each.DataPerExpert = new[] { first, Values.Of(values) };
        Refused(each, "data_per_expert", "[1]", "gaps");
        bad = Matrix("nvfp4", new byte[32 * 16], Values.Strided(new byte[4 * 32], 32, 2, 4));
        Refused(bad, "scales", "dense");
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static Tensor TensorAlone(Golden g) => new Checkpoint(g.Path).Tensors(g.LayerIndex)[1];

    [Test]
    public static void TensorsKeepTheirCheckpoint()
    {
        using (var g = new Golden())
        {
            var tensor = TensorAlone(g);
            for (var round = 0; round < 3; round++)
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
            }
            var sum = 0L;
            foreach (var one in tensor.Mapped().ToArray())
                sum += one;
            Check.That(sum > 0, "the mapping is gone");
            GC.KeepAlive(tensor);
            var other = g.Checkpoint.Tensors(g.LayerIndex)[1];
            g.Checkpoint.Dispose();
            Check.Throws<ObjectDisposedException>(() => { other.Mapped(); });
            Check.Throws<ObjectDisposedException>(() => other.Dequantize());
        }
    }

    [Test]
    public static void ACheckpointWithoutExpertsSaysSo()
    {
        Check.InFolder(folder =>
        {
            File.Copy(Path.Combine(Conformance.At(Golden.Qwen3), "config.json"), Path.Combine(folder, "config.json"));
            var header = Encoding.ASCII.GetBytes("{\"model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}");
            var file = BitConverter.GetBytes((long)header.Length).Concat(header).Concat(new byte[8]).ToArray();
            File.WriteAllBytes(Path.Combine(folder, "model.safetensors"), file);
            var error = Check.Throws<MoeException>(() => new Layer(folder), "no MoE layers");
            Check.That(error.Status == Status.NotFound && error.Call == "moe_checkpoint_layer_at", error.Message);
            using (var checkpoint = new Checkpoint(folder))
            {
                Check.That(checkpoint.Layers().Count == 0, "layers");
                Check.Fails(Status.NotFound, () => checkpoint.LayerAt(0), "no MoE layers");
            }
        });
    }
}
