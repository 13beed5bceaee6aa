// Runs one MoE layer of a checkpoint on random tokens and says what happened.
//
//   layer CHECKPOINT [LAYER]
//
// Without a checkpoint at hand, the command moe makes one: moe make-model qwen3-30b-a3b /tmp/qwen3 --reduced
using System;
using Moe;

internal static class Program
{
    private const int Tokens = 4;

    public static int Main(string[] arguments)
    {
        if (arguments.Length < 1)
        {
            Console.Error.WriteLine("usage: layer CHECKPOINT [LAYER]");
            return 2;
        }
        try
        {
            Run(arguments[0], arguments.Length > 1 ? int.Parse(arguments[1]) : -1);
            return 0;
        }
        catch (MoeException error)
        {
            Console.Error.WriteLine("layer: " + error.Message);
            return 1;
        }
    }

    private static void Run(string path, int layer)
    {
        using (var checkpoint = new Checkpoint(path))
        {
            if (layer < 0)
                layer = checkpoint.LayerAt(0);
            var desc = checkpoint.Layer(layer);
            Console.WriteLine($"{checkpoint.Info().Family}, layer {layer}: top {desc.TopK} of {desc.NExperts} experts, "
                + $"hidden {desc.Hidden}");
            var options = new PlanOptions
            {
                Checkpoint = checkpoint, CheckpointLayer = layer, Device = DeviceKind.Cpu, XType = ElementType.F32,
                MaxTokens = Tokens,
            };
            using (var plan = new Plan(options))
            using (var weights = Weights.Load(plan, checkpoint, layer, new LoadOptions { Ownership = Ownership.Borrow }))
            using (var workspace = new Workspace(plan))
                Forward(plan, weights, workspace, desc);
        }
    }

    private static void Forward(Plan plan, Weights weights, Workspace workspace, LayerDesc desc)
    {
        var random = new Random(1);
        var x = new float[Tokens * desc.Hidden];
        for (var i = 0; i < x.Length; i++)
            x[i] = (float)(2 * random.NextDouble() - 1);
        var output = new float[x.Length];
        var ids = new int[Tokens * desc.TopK];
        plan.Forward(weights, workspace, new ForwardArgs { X = x, Out = output, OutIds = ids });
        for (var token = 0; token < Tokens; token++)
        {
            var sum = 0.0;
            for (var i = 0; i < desc.Hidden; i++)
                sum += Math.Pow(output[token * desc.Hidden + i], 2);
            var chosen = string.Join(" ", new ArraySegment<int>(ids, token * desc.TopK, desc.TopK));
            Console.WriteLine($"token {token}: experts {chosen}, rms of out {Math.Sqrt(sum / desc.Hidden):F4}");
        }
    }
}
