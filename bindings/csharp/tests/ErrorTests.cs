using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using Moe;

internal static class ErrorTests
{
    /// <summary>What a call with that status becomes, however the status came about.</summary>
    private static MoeException ErrorOf(int status)
    {
        Library.Load();
        return Check.Throws<MoeException>(() => MoeException.Check("moe_call", (Status)status));
    }

    [Test("ERR-01")]
    public static void EachStatusIsAnErrorOfItsOwn()
    {
        var wanted = new Case("ERR-01").Table("statuses");
        foreach (var name in wanted.Keys)
        {
            var number = wanted.Int(name);
            var error = ErrorOf(number);
            var plain = name.Replace("_", "");
            Check.That((int)error.Status == number && error.StatusName == "MOE_ERROR_" + name, error.Message);
            Check.That(string.Equals(error.Status.ToString(), plain, StringComparison.OrdinalIgnoreCase), $"{error.Status} is {name}");
            Check.That(Library.NameOf(error.Status) == error.StatusName && error.Message.Contains(number.ToString()), error.Message);
        }
        Check.That(Enum.GetValues(typeof(Status)).Length == wanted.Keys.Count() + 1, "other statuses");
        Check.Fails(Status.InvalidArgument, () => new LayerDesc().Validate(), "moe_layer_validate");
        Check.Fails(Status.NotFound, () => Format.ByName("no such format"));
        Check.Fails(Status.Io, () => new Checkpoint("/no/such/folder"));
    }

    [Test("ERR-02")]
    public static void AnUnknownStatusKeepsItsNumber()
    {
        var data = new Case("ERR-02");
        var error = ErrorOf(data.Int("unknown_status"));
        Check.That((int)error.Status == data.Int("unknown_status") && error.StatusName == data.Text("unknown_name"), error.Message);
        Check.That(!Enum.IsDefined(typeof(Status), error.Status) && error.Message.Contains("-999"), error.Message);
    }

    [Test("ERR-03")]
    public static void TheSentenceNamesFieldAndValue()
    {
        var data = new Case("ERR-03");
        var bad = data.Table("bad_layer");
        var layer = new LayerDesc
        {
            Hidden = bad.Int("hidden"), Intermediate = bad.Int("intermediate"), NExperts = bad.Int("n_experts"),
            TopK = bad.Int("top_k"), Activation = (Activation)bad.Int("activation"), IsGated = bad.Int("is_gated") != 0,
        };
        var words = data.List<string>("message_has").ToArray();
        Check.Fails(Status.InvalidArgument, layer.Validate, words);
        var error = Check.Throws<MoeException>(() => new Checkpoint(data.Text("absent_file")), data.Text("absent_file"));
        Check.That(error.Status == Status.Io && error.Call == "moe_checkpoint_open", error.Message);
        Check.That(error.Sentence.Contains(data.Text("absent_file")), error.Sentence);
    }

    [Test("ERR-04")]
    public static void ThreadsKeepTheirOwnSentences()
    {
        var data = new Case("ERR-04");
        Check.InParallel(data.Int("threads"), number =>
        {
            for (var round = 0; round < data.Int("rounds"); round++)
                Check.Fails(Status.NotFound, () => Format.ByName($"format-of-thread-{number}"), $"format-of-thread-{number}");
        });
    }

    [Test("BAD-03")]
    public static void ADamagedCheckpointIsNamed()
    {
        var data = new Case("BAD-03");
        var source = Conformance.At(data.Text("source"));
        Check.InFolder(folder =>
        {
            File.Copy(Path.Combine(source, "config.json"), Path.Combine(folder, "config.json"));
            var begin = File.ReadAllBytes(Path.Combine(source, "model.safetensors")).Take(100).ToArray();
            File.WriteAllBytes(Path.Combine(folder, "model.safetensors"), begin);
            Check.Fails((Status)data.Int("status"), () => new Checkpoint(folder), "model.safetensors");
            Check.Fails(Status.CorruptFile, () => new Checkpoint(folder));
        });
    }

    private static void Refused(Golden g, string field, string words, ForwardArgs args)
    {
        var error = Check.Throws<ArgumentException>(() => g.Plan.Forward(g.Weights, g.Workspace, args), words);
        Check.That(error.ParamName == field, $"{error.ParamName} instead of {field}");
    }

    [Test("BAD-01")]
    public static void WrongArraysAreRefusedByName()
    {
        using (var g = new Golden())
        {
            Values x = g.X, output = new float[g.Y.Length];
            int rows = g.Tokens, columns = g.Hidden;
            Func<long, long, Values> strided = (width, stride) => Values.Strided(g.X, rows, width, stride);
            Refused(g, "X", "must be given", new ForwardArgs { Out = output });
            Refused(g, "Out", "must be given", new ForwardArgs { X = x });
            Refused(g, "X", "elements", new ForwardArgs { X = g.X.Skip(1).ToArray(), Out = output });
            Refused(g, "Out", "elements", new ForwardArgs { X = x, Out = new float[columns - 1] });
            Refused(g, "Out", "read-only", new ForwardArgs { X = x, Out = Values.Of(new ReadOnlyMemory<float>(g.X)) });
            Refused(g, "Ids", "elements", new ForwardArgs { X = x, Out = output, Ids = g.Ids.Skip(1).ToArray() });
            Refused(g, "X", "is F64, must be F32", new ForwardArgs { X = new double[g.X.Length], Out = output });
            Refused(g, "Ids", "is F32, must be I32 or I64", new ForwardArgs { X = x, Out = output, Ids = g.RoutingWeights });
            Refused(g, "X", "must be", new ForwardArgs { X = strided(columns - 1, 0), Out = output });
            Refused(g, "X", "overlap", new ForwardArgs { X = strided(columns, columns - 1), Out = output });
            Refused(g, "X", "overlap", new ForwardArgs { X = strided(columns, -columns), Out = output });
            Refused(g, "X", "do not fit", new ForwardArgs { X = strided(columns, columns + 1), Out = output });
            Refused(g, "X", "do not fit", new ForwardArgs { X = strided(columns, long.MaxValue), Out = output });
            Refused(g, "OutIds", "elements", new ForwardArgs { X = x, Out = output, OutIds = new int[1] });
            Refused(g, "OutExpertCounts", "elements", new ForwardArgs { X = x, Out = output, OutExpertCounts = new long[1] });
            Refused(g, "Ids", "must be given", new ForwardArgs { X = x, Out = output, Weights = g.RoutingWeights });
            Check.Throws<ArgumentException>(() => g.Plan.Forward(g.Weights, g.Workspace, g.X.AsSpan(1), new float[g.Y.Length]), "X");
            Check.Throws<ArgumentException>(() => Values.Of(new char[1]), "Char");
            Check.Throws<ArgumentException>(() => Tensor.Dense(Role.Gate, g.Ids, 1, 1), "data");
            Check.Throws<ArgumentException>(() => Tensor.Quantize(Role.Gate, g.X, 1, 1, new Format()), "matrix");
        }
    }

    [Test("BAD-01")]
    public static void StridedRowsAreTakenWhereTheyLie()
    {
        using (var g = new Golden())
        {
            int rows = g.Tokens, columns = g.Hidden, stride = g.Hidden + 3;
            float[] x = Check.Filled(rows * stride, float.NaN), output = Check.Filled(rows * stride, float.NaN);
            for (var row = 0; row < rows; row++)
                Array.Copy(g.X, row * columns, x, row * stride, columns);
            g.Plan.Forward(g.Weights, g.Workspace, new ForwardArgs
            {
                X = Values.Strided(x, rows, columns, stride), Out = Values.Strided(output, rows, columns, stride),
            });
            g.Near(output.Where((value, i) => i % stride < columns).ToArray(), 1e-5);
            Check.That(output.Where((value, i) => i % stride >= columns).All(float.IsNaN), "wrote between the rows");
        }
    }

    [Test("BAD-02")]
    public static void IdsOutsideTheLayerAreSkippedAndReported()
    {
        var data = new Case("BAD-02");
        using (var g = new Golden())
        {
            var ids = g.Ids.Select(id => (long)id).ToArray();
            var weights = (float[])g.RoutingWeights.Clone();
            ids[0] = 1L << 40;
            weights[0] = 5;
            var without = (long[])ids.Clone();
            without[0] = -1;
            var found = g.Forward(new ForwardArgs { Ids = ids, Weights = weights });
            Check.That(g.Workspace.TakeFaults().Equals(((Faults)data.Int("fault"), 1L)), "no fault");
            Check.That(g.Workspace.TakeFaults().Equals((Faults.None, 0L)), "not forgotten");
            Check.Same(found, g.Forward(new ForwardArgs { Ids = without, Weights = weights }), "the others do not count");
            Check.That(g.Workspace.TakeFaults().Equals((Faults.None, 0L)) && (int)Faults.IdOutOfRange == 1, "a fault");
        }
    }

    [Test("BAD-02")]
    public static void ALayerTellsOfIdsOutside()
    {
        var data = new Case("BAD-02");
        using (var g = new Golden())
        using (var layer = new Layer(g.Path))
        {
            var ids = (int[])g.Ids.Clone();
            ids[0] = 1 << 30;
            float[] found = new float[g.X.Length], wanted = new float[g.X.Length];
            var fault = Check.Throws<FaultException>(() => layer.Forward(
                new ForwardArgs { X = g.X, Out = found, Ids = ids, Weights = g.RoutingWeights }));
            Check.That((int)fault.Faults == data.Int("fault") && fault.NSkipped == 1, fault.Message);
            Check.That(layer.TakeFaults().Equals((Faults.None, 0L)), "told twice");
            ids[0] = -1;
            layer.Forward(new ForwardArgs { X = g.X, Out = wanted, Ids = ids, Weights = g.RoutingWeights });
            Check.Same(found, wanted, "the others do not count");
        }
    }
}
