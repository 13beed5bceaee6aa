// Loads one MoE layer of a checkpoint and computes it for many clients at once, over TCP.
//
//   server CHECKPOINT [-port N] [-workers N]                 until Ctrl-C or the end of standard input
//   server CHECKPOINT -load SECONDS [-clients N]             serve clients of its own for that long, and check everything
//
// A request is the number of tokens T as int32 and x [T, hidden] as float32, in little endian; the answer is T and as many values,
// or minus the length of a text, and the text. A client that goes away cancels its request. Without a checkpoint at hand, the
// command moe makes one: moe make-model qwen3-30b-a3b /tmp/qwen3 --reduced
using System;
using System.Globalization;
using System.IO;
using System.Net;
using System.Net.Sockets;
using System.Threading;
using Moe;

internal static class Program
{
    public static int Main(string[] arguments)
    {
        try
        {
            var given = new Arguments(arguments);
            if (given.LoadSeconds > 0)
                Load.Run(given.Path, given.Workers, given.Clients, TimeSpan.FromSeconds(given.LoadSeconds));
            else
                Serve(given);
            return 0;
        }
        catch (FormatException error)
        {
            Console.Error.WriteLine("usage: server CHECKPOINT [-port N] [-workers N] [-load SECONDS] [-clients N]: " + error.Message);
            return 2;
        }
        catch (Exception error) when (error is MoeException || error is LoadException || error is SocketException)
        {
            Console.Error.WriteLine("server: " + error.Message);
            return 1;
        }
    }

    private static void Serve(Arguments given)
    {
        using (var service = new Service(given.Path, given.Workers))
        using (var server = new Server(service, IPAddress.Loopback, given.Port))
        using (var stop = new ManualResetEventSlim())
        {
            Console.CancelKeyPress += (sender, pressed) =>
            {
                pressed.Cancel = true;
                stop.Set();
            };
            new Thread(() => WaitForEnd(Console.OpenStandardInput(), stop)) { IsBackground = true }.Start();
            Console.WriteLine($"listening on {server.Address}: hidden {service.Hidden}, {given.Workers} workers");
            stop.Wait();
            server.Stop();
            Console.WriteLine("stopped: " + service.Counts);
        }
    }

    private static void WaitForEnd(Stream input, ManualResetEventSlim stop)
    {
        var ignored = new byte[256];
        while (input.Read(ignored, 0, ignored.Length) > 0)
        {
        }
        stop.Set();
    }

    private sealed class Arguments
    {
        public readonly string Path;
        public readonly int Port = 8472;
        public readonly int Workers = Environment.ProcessorCount;
        public readonly int Clients = 16;
        public readonly double LoadSeconds;

        public Arguments(string[] given)
        {
            if (given.Length % 2 != 1)
                throw new FormatException("a checkpoint, then names and values");
            Path = given[0];
            for (var i = 1; i < given.Length; i += 2)
            {
                var value = double.Parse(given[i + 1], CultureInfo.InvariantCulture);
                switch (given[i])
                {
                    case "-port": Port = (int)value; break;
                    case "-workers": Workers = (int)value; break;
                    case "-clients": Clients = (int)value; break;
                    case "-load": LoadSeconds = value; break;
                    default: throw new FormatException("unknown: " + given[i]);
                }
            }
            if (Workers < 1 || Clients < 1)
                throw new FormatException("workers and clients are at least 1");
        }
    }
}
