using System;
using System.IO;
using System.Threading;

/// <summary>Memory and threads of the process, when the requests that are done are collected.</summary>
internal sealed class Usage
{
    // A load may add so much: the heap of the collector, and threads of the pool, which come and go. Connections are some hundred,
    // so that a thread for each of them would be seen.
    private const long MaxGrowth = 24 << 20;
    private const int MaxThreads = 32;

    private readonly long resident;
    private readonly long managed;
    private readonly int threads;

    private Usage(long resident, long managed, int threads)
    {
        this.resident = resident;
        this.managed = managed;
        this.threads = threads;
    }

    public static Usage Now()
    {
        for (var i = 0; i < 5; i++) // connections close behind their last answer
        {
            Thread.Sleep(100);
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
        var pages = long.Parse(File.ReadAllText("/proc/self/statm").Split(' ')[1]);
        var tasks = Directory.GetDirectories("/proc/self/task").Length;
        return new Usage(pages * Environment.SystemPageSize, GC.GetTotalMemory(true), tasks);
    }

    public override string ToString()
    {
        return $"{resident / 1048576.0:F1} MiB ({managed / 1048576.0:F1} of the collector), {threads} threads";
    }

    public void ThrowIfGrownTo(Usage end)
    {
        if (end.resident - resident > MaxGrowth || end.managed - managed > MaxGrowth / 8)
            throw new LoadException($"the process has grown: {this}, then {end}");
        ThrowIfThreadsAreLeft(end);
    }

    public void ThrowIfThreadsAreLeft(Usage end)
    {
        if (end.threads - threads > MaxThreads)
            throw new LoadException($"{threads} threads, then {end.threads}");
    }
}
