using System;
using System.Linq;
using Moe;

/// <summary>Memory and streams of a device; on the CPU they are the host's.</summary>
internal static class DeviceTests
{
    [Test("MEM-01")]
    public static void MemoryGoesInAndOut()
    {
        var n = (int)new Case("MEM-01").Whole("elements");
        var values = Enumerable.Range(1, n).Select(i => (float)i).ToArray();
        using (var runtime = new Runtime(new RuntimeOptions { NThreads = 1 }))
        using (var stream = new DeviceStream(DeviceKind.Cpu))
        {
            foreach (var space in new[] { Space.Host, Space.Pinned, Space.Device })
                using (var memory = new DeviceMemory(DeviceKind.Cpu, 0, space, 4 * (ulong)n, runtime))
                {
                    var got = new float[n];
                    memory.Upload(values, stream);
                    memory.Download(got, stream);
                    Check.That(got.SequenceEqual(values), $"{space}: other values");
                    memory.Zero(stream);
                    memory.Download(got, stream);
                    Check.That(got.All(one => one == 0), $"{space}: not zero");
                    Refused("from", () => memory.Upload(new float[n + 1], stream));
                    Refused("to", () => memory.Download(new float[n + 1], stream));
                }
            stream.Synchronize();
        }
        Absent(() => new DeviceMemory(DeviceKind.Cpu, 7, Space.Device, 64));
        Absent(() => new DeviceStream(DeviceKind.Auto));
    }

    private static void Refused(string name, Action act)
    {
        var error = Check.Throws<ArgumentException>(act);
        Check.That(error.ParamName == name, $"{error}");
    }

    private static void Absent(Action act)
    {
        var error = Check.Throws<MoeException>(act);
        Check.That(error.Status == Status.InvalidArgument, $"{error}");
    }
}
