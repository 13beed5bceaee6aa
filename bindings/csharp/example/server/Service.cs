using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;
using Moe;

/// <summary>A layer, loaded once, and threads that compute it. Each has a workspace of its own.</summary>
internal sealed class Service : IDisposable
{
    public const int MaxTokens = 64;

    private readonly Plan plan;
    private readonly Weights weights;
    private readonly BlockingCollection<Job> queue = new BlockingCollection<Job>();
    private readonly SemaphoreSlim places; // in the queue
    private readonly List<Thread> workers = new List<Thread>();
    private long answered, dropped, discarded;

    /// <summary>Loads the first MoE layer of a checkpoint. A call has one thread; calls run beside each other.</summary>
    public Service(string path, int nWorkers)
    {
        using (var checkpoint = new Checkpoint(path))
        {
            var layer = checkpoint.LayerAt(0);
            Hidden = checkpoint.Layer(layer).Hidden;
            plan = new Plan(new PlanOptions
            {
                Checkpoint = checkpoint, CheckpointLayer = layer, Device = DeviceKind.Cpu, XType = ElementType.F32,
                MaxTokens = MaxTokens,
            });
            weights = Weights.Load(plan, checkpoint, layer, new LoadOptions { Ownership = Ownership.Borrow });
        }
        places = new SemaphoreSlim(4 * nWorkers);
        for (var i = 0; i < nWorkers; i++)
        {
            var worker = new Thread(Work) { Name = "worker " + i };
            workers.Add(worker);
            worker.Start(new Workspace(plan));
        }
    }

    public int Hidden { get; }

    /// <summary>Requests that were dropped before they ran.</summary>
    public long Dropped => Interlocked.Read(ref dropped);

    public string Counts => $"{Interlocked.Read(ref answered)} answered, {Dropped} dropped before they ran, "
        + $"{Interlocked.Read(ref discarded)} results discarded";

    /// <summary>x [T, hidden] to [T, hidden]; waits while the queue is full. When the token is cancelled the task is, at once: a
    /// request that waits is dropped, and the result of a call that runs is thrown away, as a call cannot be interrupted. x must
    /// stay unchanged until then.</summary>
    public async Task<float[]> Forward(float[] x, CancellationToken cancellation)
    {
        if (x.Length % Hidden != 0 || x.Length > MaxTokens * Hidden)
            throw new ArgumentException($"{x.Length} values: must be rows of {Hidden}, {MaxTokens} rows at most");
        try
        {
            await places.WaitAsync(cancellation);
        }
        catch (OperationCanceledException)
        {
            Interlocked.Increment(ref dropped);
            throw;
        }
        var job = new Job(x, cancellation);
        queue.Add(job);
        return await job.Result;
    }

    private void Work(object given)
    {
        using (var workspace = (Workspace)given)
            foreach (var job in queue.GetConsumingEnumerable())
                Run(job, workspace);
    }

    private void Run(Job job, Workspace workspace)
    {
        places.Release();
        if (job.IsCancelled)
        {
            Interlocked.Increment(ref dropped);
            return;
        }
        var output = new float[job.X.Length];
        try
        {
            plan.Forward(weights, workspace, new ForwardArgs { X = job.X, Out = output, NThreads = 1 });
        }
        catch (Exception error)
        {
            job.Fail(error);
            return;
        }
        if (job.Finish(output))
            Interlocked.Increment(ref answered);
        else
            Interlocked.Increment(ref discarded);
    }

    /// <summary>Waits for the workers, which finish what is queued, and ends the layer. Nobody may call Forward any more.</summary>
    public void Dispose()
    {
        queue.CompleteAdding();
        workers.ForEach(worker => worker.Join());
        weights.Dispose();
        plan.Dispose();
        queue.Dispose();
        places.Dispose();
    }

    /// <summary>One request. Its token and the worker race to end it; the first wins.</summary>
    private sealed class Job
    {
        private readonly TaskCompletionSource<float[]> source =
            new TaskCompletionSource<float[]>(TaskCreationOptions.RunContinuationsAsynchronously);
        private readonly CancellationTokenRegistration registration;

        public Job(float[] x, CancellationToken cancellation)
        {
            X = x;
            registration = cancellation.Register(() => source.TrySetCanceled());
        }

        public float[] X { get; }

        public Task<float[]> Result => source.Task;

        public bool IsCancelled => source.Task.IsCanceled;

        public bool Finish(float[] output)
        {
            registration.Dispose();
            return source.TrySetResult(output);
        }

        public void Fail(Exception error)
        {
            registration.Dispose();
            source.TrySetException(error);
        }
    }
}
