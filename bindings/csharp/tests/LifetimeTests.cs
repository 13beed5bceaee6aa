using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Runtime.InteropServices;
using System.Threading;
using Moe;

/// <summary>Keeps a ledger of what handles take and give back.</summary>
internal sealed class CountingAllocator : IAllocator
{
    private readonly Dictionary<IntPtr, (ulong, ulong, Space, IntPtr)> living =
        new Dictionary<IntPtr, (ulong, ulong, Space, IntPtr)>();

    private readonly List<string> problems = new List<string>();

    public ulong Total { get; private set; }

    public IntPtr Allocate(ulong bytes, ulong alignment, Space space, IntPtr stream)
    {
        var block = Marshal.AllocHGlobal((IntPtr)(long)(bytes + alignment));
        var address = (IntPtr)(((long)block + (long)alignment - 1) & -(long)alignment);
        lock (living)
        {
            living[address] = (bytes, alignment, space, block);
            Total += bytes;
            if (space != Space.Host || alignment > 4096)
                problems.Add($"{bytes} {alignment} {space}");
        }
        return address;
    }

    public void Release(IntPtr memory, ulong bytes, ulong alignment, Space space, IntPtr stream)
    {
        lock (living)
        {
            if (!living.TryGetValue(memory, out var one) || !one.Equals((bytes, alignment, space, one.Item4)))
            {
                problems.Add($"never allocated: {bytes} {alignment} {space}");
                return;
            }
            living.Remove(memory);
            Marshal.FreeHGlobal(one.Item4);
        }
    }

    public int Living
    {
        get
        {
            lock (living)
                return living.Count;
        }
    }

    public void MustBeWell()
    {
        lock (living)
            Check.That(problems.Count == 0, string.Join(", ", problems));
    }
}

internal static class LifetimeTests
{
    [Test("LIFE-01")]
    public static void ClosingTwiceIsHarmless()
    {
        var runtime = new Runtime(new RuntimeOptions { NThreads = 1 });
        var g = new Golden(Golden.Qwen3, runtime);
        var handles = new Dictionary<string, IDisposable>
        {
            { "runtime", runtime }, { "checkpoint", g.Checkpoint }, { "plan", g.Plan }, { "weights", g.Weights },
            { "workspace", g.Workspace },
        };
        var isClosed = new Dictionary<string, Func<bool>>
        {
            { "runtime", () => runtime.IsClosed }, { "checkpoint", () => g.Checkpoint.IsClosed },
            { "plan", () => g.Plan.IsClosed }, { "weights", () => g.Weights.IsClosed }, { "workspace", () => g.Workspace.IsClosed },
        };
        foreach (var name in new Case("LIFE-01").List<string>("handles"))
        {
            Check.That(!isClosed[name](), name);
            handles[name].Dispose();
            handles[name].Dispose();
            Check.That(isClosed[name](), name);
        }
    }

    [Test("LIFE-02")]
    public static void AClosedHandleIsAnError()
    {
        var runtime = new Runtime();
        var g = new Golden(Golden.Qwen3, runtime);
        runtime.Dispose();
        g.Dispose();
        var args = new ForwardArgs { X = g.X, Out = new float[g.Y.Length] };
        using (var living = new Golden())
        {
            var uses = new Dictionary<string, Action>
            {
                { "Runtime", () => new Checkpoint(g.Path, new CheckpointOptions { Runtime = runtime }) },
                { "Checkpoint", () => g.Checkpoint.Info() }, { "Plan", () => g.Plan.LayoutId() },
                { "Weights", () => g.Weights.Memory() }, { "Workspace", () => g.Workspace.TakeFaults() },
            };
            foreach (var one in uses)
                Check.Throws<ObjectDisposedException>(one.Value, one.Key);
            Check.Throws<ObjectDisposedException>(() => new Plan(g.Options()), "Checkpoint");
            Check.Throws<ObjectDisposedException>(() => new Workspace(g.Plan), "Plan");
            Check.Throws<ObjectDisposedException>(() => Weights.Load(living.Plan, g.Checkpoint, g.LayerIndex), "Checkpoint");
            Check.Throws<ObjectDisposedException>(() => g.Plan.Forward(living.Weights, living.Workspace, args), "Plan");
            Check.Throws<ObjectDisposedException>(() => living.Plan.Forward(g.Weights, living.Workspace, args), "Weights");
            Check.Throws<ObjectDisposedException>(() => living.Plan.Forward(living.Weights, g.Workspace, args), "Workspace");
            Check.Throws<ArgumentNullException>(() => living.Plan.Forward(null, living.Workspace, args), "weights");
            Check.Throws<ArgumentNullException>(() => living.Plan.Forward(living.Weights, null, args), "workspace");
        }
    }

    [Test("LIFE-02")]
    public static void ClosingDuringACallWaitsForIt()
    {
        using (var g = new Golden())
        {
            LoadProgress closes = (done, total) =>
            {
                g.Plan.Dispose();
                g.Checkpoint.Dispose();
                return false;
            };
            using (var weights = Weights.Load(g.Plan, g.Checkpoint, g.LayerIndex, new LoadOptions { Progress = closes }))
                Check.That(weights.Memory().HostBytes > 0 && g.Plan.IsClosed && g.Checkpoint.IsClosed, "not loaded");
            Check.Throws<ObjectDisposedException>(() => g.Plan.Explain());
        }
    }

    [Test("LIFE-03")]
    public static void HandlesCloseInAnyOrder()
    {
        var data = new Case("LIFE-03");
        foreach (var ownership in new[] { Ownership.Copy, Ownership.Borrow })
            using (var g = new Golden(data.Text("fixture")))
            {
                var runtime = new Runtime(new RuntimeOptions { NThreads = 2 });
                var checkpoint = new Checkpoint(g.Path, new CheckpointOptions { Runtime = runtime });
                var options = g.Options(runtime);
                options.Checkpoint = checkpoint;
                Plan first = new Plan(options), second = new Plan(options);
                var weights = Weights.Load(first, checkpoint, g.LayerIndex, new LoadOptions { Ownership = ownership });
                runtime.Dispose();
                checkpoint.Dispose();
                first.Dispose();
                var workspace = new Workspace(second);
                var output = Check.Filled(g.Y.Length, float.NaN);
                second.Forward(weights, workspace, new ForwardArgs { X = g.X, Out = output });
                g.Near(output, data.Real("relative_l2"));
                weights.Dispose();
                second.Dispose();
                Check.That(workspace.TakeFaults().Equals((Faults.None, 0L)), "faults");
                workspace.Dispose();
            }
    }

    [Test("LIFE-04")]
    public static void GarbageGivesItsMemoryBack()
    {
        var allocator = new CountingAllocator();
        // Of a thread that is over no stack can hold on to anything.
        Check.InParallel(1, number =>
        {
            var g = new Golden(Golden.Qwen3, new Runtime(new RuntimeOptions { Allocator = allocator, NThreads = 2 }));
            g.Near(g.Forward(), 1e-5);
            Check.That(allocator.Living > 0, "nothing came from the allocator");
        });
        for (var clock = Stopwatch.StartNew(); allocator.Living > 0 && clock.Elapsed.TotalSeconds < 20; Thread.Sleep(10))
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
        Check.That(allocator.Living == 0, $"{allocator.Living} blocks are left");
        allocator.MustBeWell();
    }

    [Test("THR-01")]
    public static void ManyThreadsOnOnePlan()
    {
        var data = new Case("THR-01");
        using (var g = new Golden(data.Text("fixture")))
        {
            var wanted = g.Forward();
            g.Near(wanted, 1e-5);
            Check.InParallel(data.Int("threads"), number =>
            {
                using (var workspace = new Workspace(g.Plan))
                    for (var round = 0; round < data.Int("rounds"); round++)
                    {
                        var output = new float[g.Y.Length];
                        g.Plan.Forward(g.Weights, workspace, new ForwardArgs { X = g.X, Out = output });
                        Check.Same(output, wanted, "bits");
                    }
            });
        }
    }

    [Test("THR-01")]
    public static void TheNumberOfThreadsOfACall()
    {
        using (var g = new Golden())
        {
            var wanted = g.Forward();
            foreach (var n in new[] { 1, 2, 1000 })
            {
                var output = new float[g.Y.Length];
                g.Plan.Forward(g.Weights, g.Workspace, new ForwardArgs { X = g.X, Out = output, NThreads = n });
                Check.Same(output, wanted, "bits");
            }
            Check.Throws<MoeException>(() => g.Plan.Forward(g.Weights, g.Workspace,
                new ForwardArgs { X = g.X, Out = new float[g.Y.Length], NThreads = -1 }), "n_threads is -1");
        }
    }

    [Test("THR-01")]
    public static void ALayerServesManyThreads()
    {
        using (var g = new Golden())
        {
            var layer = new Layer(g.Path, new PlanOptions { CheckpointLayer = g.LayerIndex });
            Check.That(layer.Hidden == g.Hidden, "hidden");
            Check.InParallel(4, number =>
            {
                for (var round = 0; round < 10; round++)
                {
                    var output = new float[g.Y.Length];
                    layer.Forward(g.X, output);
                    g.Near(output, 1e-5);
                }
            });
            layer.Dispose();
            layer.Dispose();
            Check.Throws<ObjectDisposedException>(() => layer.Forward(g.X, new float[g.Y.Length]), "Layer");
        }
    }

    [Test("THR-02")]
    public static void AWorkspaceInUseIsBusy()
    {
        Golden g = null;
        MoeException seen = null;
        ParallelFor inside = (nTasks, task) =>
        {
            try
            {
                if (seen == null && g != null)
                    g.Plan.Forward(g.Weights, g.Workspace, new ForwardArgs { X = g.X, Out = new float[g.Y.Length] });
            }
            catch (MoeException error)
            {
                seen = error;
            }
            for (var i = 0; i < nTasks; i++)
                task(i);
        };
        using (var runtime = new Runtime(new RuntimeOptions { ParallelFor = inside, NThreads = 4 }))
        using (g = new Golden(Golden.Qwen3, runtime))
        {
            g.Near(g.Forward(), 1e-5);
            Check.That(seen != null && (int)seen.Status == new Case("THR-02").Int("status"), $"{seen}");
            Check.That(seen.Status == Status.Busy, seen.Message);
        }
    }

    [Test]
    public static void ForwardByThreadsOfTheCaller()
    {
        using (var g = new Golden())
        {
            var output = Check.Filled(g.Y.Length, float.NaN);
            var args = new ForwardArgs { X = g.X, Out = output };
            Check.InParallel(3, number => g.Plan.ForwardSpmd(g.Weights, g.Workspace, args, number, 3));
            g.Near(output, 1e-5);
        }
    }
}
