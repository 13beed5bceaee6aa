using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Moe;

internal static class CallbackTests
{
    private sealed class InCallbackException : Exception
    {
    }

    private sealed class BrokenAllocator : IAllocator
    {
        public IntPtr Allocate(ulong bytes, ulong alignment, Space space, IntPtr stream) => throw new InCallbackException();

        public void Release(IntPtr memory, ulong bytes, ulong alignment, Space space, IntPtr stream)
        {
        }
    }

    [Test("CALL-01")]
    public static void ProgressCountsAndCancels()
    {
        var allocator = new CountingAllocator();
        using (var runtime = new Runtime(new RuntimeOptions { Allocator = allocator }))
        using (var g = new Golden(Golden.Qwen3, runtime))
        {
            var before = allocator.Living;
            var seen = new List<(ulong Done, ulong Total)>();
            Func<int, Action> load = stop => () => Weights.Load(g.Plan, g.Checkpoint, g.LayerIndex, new LoadOptions
            {
                Progress = (done, total) =>
                {
                    seen.Add((done, total));
                    return seen.Count == stop;
                },
            }).Dispose();
            Check.Fails((Status)new Case("CALL-01").Int("status"), load(2));
            Check.That(seen.Count == 2 && seen[0].Total > 0 && seen[0].Done <= seen[1].Done && seen[1].Done <= seen[1].Total,
                string.Join(" ", seen));
            Check.That(allocator.Living == before, "weights are left behind");
            seen.Clear();
            Check.Fails(Status.Cancelled, load(1));
            load(-1)();
            Check.That(seen.Last().Done == seen.Last().Total && allocator.Living == before, $"{seen.Last()}");
            allocator.MustBeWell();
        }
    }

    [Test("CALL-01")]
    public static void ATokenCancelsToo()
    {
        using (var g = new Golden())
        using (var source = new CancellationTokenSource())
        {
            LoadProgress cancels = (done, total) =>
            {
                source.Cancel();
                return false;
            };
            var options = new LoadOptions { Progress = cancels, Cancellation = source.Token };
            var error = Check.Throws<OperationCanceledException>(() => Weights.Load(g.Plan, g.Checkpoint, g.LayerIndex, options));
            Check.That(error.CancellationToken == source.Token, "another token");
            Check.That(((MoeException)error.InnerException).Status == Status.Cancelled, $"{error.InnerException}");
            var again = new LoadOptions { Cancellation = source.Token };
            Check.Throws<OperationCanceledException>(() => Weights.Load(g.Plan, g.Checkpoint.Tensors(g.LayerIndex), again));
        }
    }

    [Test("CALL-02")]
    public static void AnExceptionInProgressIsThrownBehindTheCall()
    {
        using (var g = new Golden())
        {
            LoadProgress throws = (done, total) => throw new InCallbackException();
            var error = Check.Throws<InCallbackException>(() =>
                Weights.Load(g.Plan, g.Checkpoint, g.LayerIndex, new LoadOptions { Progress = throws }));
            Check.That(error.StackTrace.Contains(nameof(AnExceptionInProgressIsThrownBehindTheCall)), error.StackTrace);
        }
    }

    [Test("CALL-02")]
    public static void ExceptionsInOtherCallbacksAreReportedAndDoNoHarm()
    {
        var thrown = 0;
        Action<Exception> report = error =>
        {
            if (error is InCallbackException)
                Interlocked.Increment(ref thrown);
            throw new InvalidOperationException("in the report too");
        };
        var options = new RuntimeOptions
        {
            Log = (level, line) => throw new InCallbackException(), LogLevel = LogLevel.Debug, NThreads = 3, OnError = report,
            ParallelFor = (nTasks, task) =>
            {
                task(0);
                throw new InCallbackException();
            },
        };
        using (var runtime = new Runtime(options))
        using (var g = new Golden(Golden.Qwen3, runtime))
        using (var plain = new Golden())
        {
            Check.Same(g.Forward(), plain.Forward(), "bits");
            Check.That(thrown >= 2, $"{thrown} exceptions");
            Check.Fails(Status.OutOfMemory, () =>
            {
                using (var broken = new Runtime(new RuntimeOptions { Allocator = new BrokenAllocator(), OnError = report }))
                    new Checkpoint(g.Path, new CheckpointOptions { Runtime = broken }).Dispose();
            });
        }
    }

    [Test("CALL-03")]
    public static void TheAllocatorServesHandlesAndGetsAllBack()
    {
        var allocator = new CountingAllocator();
        var runtime = new Runtime(new RuntimeOptions { Allocator = allocator, NThreads = 2 });
        var g = new Golden(Golden.Qwen3, runtime);
        var report = g.Weights.Memory();
        Check.That(report.HostBytes > 0 && allocator.Total >= report.HostBytes + report.BookkeepingBytes, $"{allocator.Total}");
        g.Near(g.Forward(), 1e-5);
        runtime.Dispose();
        g.Dispose();
        Check.That(allocator.Living == 0, $"{allocator.Living} blocks are left");
        allocator.MustBeWell();
    }

    private static List<(LogLevel Level, string Line)> LinesAt(LogLevel level)
    {
        var lines = new List<(LogLevel, string)>();
        Action<LogLevel, string> log = (of, line) =>
        {
            lock (lines)
                lines.Add((of, line));
        };
        using (var runtime = new Runtime(new RuntimeOptions { Log = log, LogLevel = level }))
            new Golden(Golden.Qwen3, runtime).Dispose();
        return lines;
    }

    [Test("CALL-04")]
    public static void LogLines()
    {
        var lines = LinesAt(LogLevel.Info);
        Check.That(lines.Any(one => one.Level == LogLevel.Info && one.Line.Contains("qwen3_moe_bf16")), "no line of the checkpoint");
        foreach (var one in lines)
            Check.That(one.Level >= LogLevel.Error && one.Level <= LogLevel.Info && !one.Line.Contains("\n"), one.Line);
        Check.That(LinesAt(LogLevel.Warning).Count == 0, "lines below the level");
    }

    [Test("CALL-05")]
    public static void ParallelForOfTheCaller()
    {
        var fixture = new Case("CALL-05").Text("fixture");
        int calls = 0, most = 0;
        ParallelFor parallel = (nTasks, task) =>
        {
            calls++;
            most = Math.Max(most, nTasks);
            Parallel.For(0, nTasks, task);
        };
        using (var runtime = new Runtime(new RuntimeOptions { ParallelFor = parallel, NThreads = 3 }))
        using (var g = new Golden(fixture, runtime))
        using (var plain = new Golden(fixture))
        {
            Check.Same(g.Forward(), plain.Forward(), "bits");
            Check.That(calls > 0 && most > 1 && most <= 3, $"{calls} calls, {most} tasks");
        }
    }

    [Test("CALL-06")]
    public static void LoadingInTheBackgroundIsATask() =>
        throw new TestSkippedException("a Task that calls Weights.Load loads in the background; its progress callback cancels");
}
