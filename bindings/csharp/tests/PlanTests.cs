using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using Moe;

internal static class PlanTests
{
    [Test("PLAN-01")]
    public static void TheExplanationHoldsToItsSchema()
    {
        var data = new Case("PLAN-01");
        var schema = (Dictionary<string, object>)Json.Parse(File.ReadAllText(Conformance.At(data.Text("schema_file"))));
        using (var g = new Golden())
            foreach (var unfused in new[] { false, true })
            {
                var options = g.Options();
                options.Unfused = unfused;
                using (var plan = new Plan(options))
                {
                    var found = (Dictionary<string, object>)Json.Parse(plan.Explain(ExplainForm.Json));
                    var check = new SchemaCheck(schema, found);
                    Check.That(check.Problems.Count == 0 && check.Checked > 100, string.Join("; ", check.Problems));
                    Check.That(Equals(found["schema"], data.Text("schema")), $"{found["schema"]}");
                    found["schema"] = "another";
                    found.Remove("key");
                    Check.That(new SchemaCheck(schema, found).Problems.Count == 2, "the check of the schema sees nothing");
                    Check.That(plan.Explain().Contains("cpu"), plan.Explain());
                }
            }
    }

    [Test("PLAN-02")]
    public static void Defaults()
    {
        var data = new Case("PLAN-02");
        var types = new Dictionary<string, ElementType>
        {
            { "f32", ElementType.F32 }, { "bf16", ElementType.BF16 }, { "f16", ElementType.F16 },
        };
        using (var g = new Golden(data.Text("fixture")))
        {
            foreach (var name in data.Table("defaults").Keys)
            {
                var options = new PlanOptions
                {
                    Checkpoint = g.Checkpoint, CheckpointLayer = g.LayerIndex, XType = types[name], MaxTokens = 1,
                };
                using (var automatic = new Plan(options))
                {
                    var device = automatic.Device();
                    Check.That(device.Kind != DeviceKind.Auto && device.Reason.Length > 0, device.Reason);
                }
                options.Device = DeviceKind.Cpu;
                using (var plan = new Plan(options))
                    CheckDefaults(plan, name, data.Table("defaults").Table(name));
            }
            var wrong = g.Options();
            wrong.MaxTokens = 0;
            Check.Fails(Status.InvalidArgument, () => Plan.CheckSupport(wrong), "max_tokens is 0");
            wrong = g.Options();
            wrong.XType = ElementType.None;
            Check.Fails(Status.InvalidArgument, () => new Plan(wrong), "x_type");
        }
    }

    private static void CheckDefaults(Plan plan, string x, Case wanted)
    {
        var facts = (Dictionary<string, object>)Json.Parse(plan.Explain(ExplainForm.Json));
        var types = (Dictionary<string, object>)facts["types"];
        var slice = (Dictionary<string, object>)facts["slice"];
        var stages = ((List<object>)facts["stages"]).Cast<Dictionary<string, object>>().ToArray();
        foreach (var what in wanted.Keys)
            Check.That(Equals(types[what], wanted.Text(what)), $"{x}: {what} is {types[what]}");
        Check.That(Equals(types["x"], x) && Equals(slice["whole"], true) && Equals(slice["partial"], false), x);
        Check.That(stages.Length == 5 && stages.All(stage => Equals(stage["used"], true)), "stages");
    }

    [Test("PLAN-03")]
    public static void KeysAndLayoutIds()
    {
        using (var g = new Golden())
        {
            var larger = g.Options();
            larger.MaxTokens++;
            var key = Plan.KeyOf(g.Options());
            Check.Same(key, Plan.KeyOf(g.Options()), "key");
            Check.That(key.Length == 16 && !key.SequenceEqual(Plan.KeyOf(larger)), "max_tokens is not in the key");
            var hex = string.Concat(key.Select(one => one.ToString("x2")));
            Check.That(g.Plan.Explain(ExplainForm.Json).Contains(hex), hex);
            using (var other = new Plan(larger))
                Check.Same(other.LayoutId(), g.Plan.LayoutId(), "layout id");
            Check.Same(g.Weights.LayoutId(), g.Plan.LayoutId(), "layout id of the weights");
            Check.That(g.Plan.LayoutId().Length == 16 && g.Plan.LayoutId().Any(one => one != 0), "no layout id");
            var options = g.Options();
            options.Partial = true;
            options.Slice = new Slice { ExpertToLocal = new[] { 5, 4, 3, 2, 1, 0, -1, -1, -1, -1, -1, -1 } };
            using (var partial = new Plan(options))
                Check.Fails(Status.LayoutMismatch, () => partial.Forward(g.Weights, g.Workspace, g.X, new float[g.Y.Length]));
            var need = g.Plan.WorkspaceSize(64);
            Check.That(need.HostBytes > 0 && need.DeviceBytes == 0 && need.Alignment > 0, "workspace");
        }
    }

    [Test("PLAN-04")]
    public static void KernelsAndCandidates()
    {
        var stages = new Case("PLAN-04").Table("stages");
        using (var g = new Golden())
        {
            foreach (var name in stages.Keys)
            {
                var stage = (Stage)stages.Int(name);
                Check.That(string.Equals(stage.ToString(), name, StringComparison.OrdinalIgnoreCase), name);
                var chosen = g.Plan.Candidates().Single(one => one.Stage == stage && one.IsChosen);
                Check.That(chosen.Kernel == g.Plan.Kernel(stage, 1) && chosen.IsApplicable, chosen.Kernel);
                Check.That(chosen.ReasonCode == "chosen" && chosen.Reason.Length > 0, chosen.ReasonCode);
            }
            var options = g.Options();
            options.KernelFilter = "no_such_kernel";
            Check.Fails(Status.InvalidArgument, () => Plan.CheckSupport(options), "no_such_kernel");
        }
    }

    [Test("PLAN-05")]
    public static void UnknownEnumValuesAreKept()
    {
        var number = new Case("PLAN-05").Int("unknown_value");
        using (var g = new Golden())
        {
            var options = g.Options();
            options.Residency = (Residency)number;
            Check.Throws<MoeException>(() => Plan.CheckSupport(options), number.ToString());
            var layer = g.Checkpoint.Layer(g.LayerIndex);
            Check.That(layer.Activation == Activation.Silu, $"{layer.Activation}");
            layer.Activation = (Activation)number;
            Check.Throws<MoeException>(layer.Validate, number.ToString());
            Check.That((int)layer.Activation == number, "another number");
            Check.That(Library.NameOf((ElementType)number) == "unknown" && Library.NameOf((Role)number) == "unknown", "names");
            Check.That(Library.NameOf(Role.SharedDown) == "shared_down" && Library.NameOf(ElementType.F8E4M3) == "f8_e4m3", "names");
        }
    }

    [Test("LIST-01")]
    public static void Formats()
    {
        var data = new Case("LIST-01");
        Check.That(!data.List<string>("formats").Except(Library.FormatNames).Any(), string.Join(" ", Library.FormatNames));
        foreach (var name in Library.FormatNames)
        {
            var info = Format.ByName(name).Info();
            Check.That(info.Name == name && info.HasDecode && info.BitsPerWeight > 0 && info.BitsPerWeight <= 32, name);
        }
        var size = data.Table("size");
        var found = Format.ByName(size.Text("format")).Size(size.Whole("rows"), size.Whole("columns"));
        Check.That(found.Equals(((ulong)size.Whole("data_bytes"), (ulong)size.Whole("scale_bytes"))), $"{found}");
    }

    [Test("LIST-02")]
    public static void FamiliesAndDevices()
    {
        Check.That(!new Case("LIST-02").List<string>("families").Except(Library.Families).Any(), string.Join(" ", Library.Families));
        Check.That(DeviceInfo.Count(DeviceKind.Cpu) == 1, "CPUs");
        var cpu = DeviceInfo.Of(DeviceKind.Cpu);
        Check.That(cpu.Kind == DeviceKind.Cpu && cpu.NCores > 0 && cpu.MemoryBytes > 0 && cpu.Name.Length > 0, cpu.Name);
    }

    [Test]
    public static void CheckpointsDescribeThemselves()
    {
        using (var g = new Golden())
        {
            var info = g.Checkpoint.Info();
            Check.That(info.Family == "qwen3_moe" && !info.IsGguf && info.NLayers == g.Checkpoint.Layers().Count, info.Family);
            Check.That(g.Checkpoint.Layers()[0] == g.LayerIndex, "layer");
            var formats = g.Checkpoint.Formats(g.LayerIndex);
            Check.That(formats[Role.Gate].Type == ElementType.BF16 && !formats.ContainsKey(Role.LatentIn), "formats");
            Check.Fails(Status.NotFound, () => g.Checkpoint.Layer(999));
            var wrong = new CheckpointOptions { Family = "no such family" };
            Check.Fails(Status.Unsupported, () => new Checkpoint(g.Path, wrong), "no such family");
        }
    }
}
