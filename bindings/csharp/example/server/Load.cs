using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net;
using System.Net.Sockets;
using System.Threading;
using Moe;

/// <summary>Why a load is no good.</summary>
internal sealed class LoadException : Exception
{
    public LoadException(string message) : base(message)
    {
    }
}

/// <summary>A request, and its answer as another layer gave it in another arithmetic before the load.</summary>
internal sealed class Question
{
    private const double Tolerance = 1e-5; // relative L2 error of a token

    private readonly float[] answer;
    private readonly int hidden;

    private Question(float[] x, Layer layer)
    {
        X = x;
        hidden = layer.Hidden;
        answer = new float[x.Length];
        layer.Forward(x, answer);
    }

    public float[] X { get; }

    public int Tokens => X.Length / hidden;

    /// <summary>Of random lengths. The answers come from the reference in double, on one thread, in a layer of its own.</summary>
    public static Question[] Make(string path, int count)
    {
        using (var threads = new Runtime(new RuntimeOptions { NThreads = 1 }))
        using (var layer = new Layer(path, new PlanOptions
               { Runtime = threads, IntermediateType = ElementType.F64, MaxTokens = Service.MaxTokens }))
        {
            var random = new Random(1);
            return Enumerable.Range(0, count).Select(_ => new Question(Values(random, layer.Hidden), layer)).ToArray();
        }
    }

    private static float[] Values(Random random, int hidden)
    {
        var x = new float[(1 + random.Next(Service.MaxTokens)) * hidden];
        for (var i = 0; i < x.Length; i++)
            x[i] = (float)(4 * random.NextDouble() - 2);
        return x;
    }

    /// <summary>Throws unless every token is that of the answer.</summary>
    public void Check(float[] got)
    {
        for (var token = 0; token < Tokens; token++)
        {
            double difference = 0, size = 0;
            for (var i = token * hidden; i < (token + 1) * hidden; i++)
            {
                difference += Math.Pow((double)got[i] - answer[i], 2);
                size += Math.Pow(answer[i], 2);
            }
            var off = Math.Sqrt(difference / size);
            if (!(off <= Tolerance))
                throw new LoadException($"token {token} of {Tokens} is off by {off}");
        }
    }
}

/// <summary>A client on a thread of its own, which asks until the time is over.</summary>
internal sealed class Client
{
    private const int CancelEvery = 6; // one request of so many has a client that loses patience
    private const int AMinute = 60000000;

    private readonly IPEndPoint server;
    private readonly Question[] questions;
    private readonly Random random;
    private TcpClient connection;

    public Client(IPEndPoint server, Question[] questions, int seed)
    {
        this.server = server;
        this.questions = questions;
        random = new Random(seed);
    }

    public List<double> Milliseconds { get; } = new List<double>();

    public int Cancelled { get; private set; }

    public List<string> Errors { get; } = new List<string>();

    public void RunUntil(DateTime end)
    {
        while (DateTime.UtcNow < end && Errors.Count < 10)
        {
            try
            {
                var clock = System.Diagnostics.Stopwatch.StartNew();
                var isPatient = random.Next(CancelEvery) != 0;
                if (Ask(questions[random.Next(questions.Length)], isPatient ? AMinute : random.Next(5000)))
                    Milliseconds.Add(clock.Elapsed.TotalMilliseconds);
                else if (isPatient)
                    throw new LoadException("no answer in a minute");
                else
                    Cancelled++;
            }
            catch (Exception error) when (error is IOException || error is SocketException || error is LoadException)
            {
                Errors.Add(error.Message);
                Leave();
            }
        }
        Leave();
    }

    /// <summary>False if the client went away, after so many microseconds without an answer.</summary>
    private bool Ask(Question question, int patience)
    {
        if (connection == null)
        {
            connection = new TcpClient { NoDelay = true };
            connection.Connect(server);
        }
        var stream = connection.GetStream();
        Wire.WriteValues(stream, question.Tokens, question.X).GetAwaiter().GetResult();
        if (!connection.Client.Poll(patience, SelectMode.SelectRead))
        {
            Leave();
            return false;
        }
        var tokens = Wire.ReadHeader(stream).GetAwaiter().GetResult();
        if (tokens < 0)
            throw new LoadException(Wire.ReadText(stream, -tokens).GetAwaiter().GetResult());
        if (tokens != question.Tokens)
            throw new LoadException($"an answer of {tokens} tokens to {question.Tokens}");
        question.Check(Wire.ReadValues(stream, question.X.Length).GetAwaiter().GetResult());
        return true;
    }

    private void Leave()
    {
        connection?.Close();
        connection = null;
    }
}

/// <summary>A server and its clients in one process. Any error, a load without cancelled requests, and growth are its error.</summary>
internal static class Load
{
    public static void Run(string path, int nWorkers, int nClients, TimeSpan duration)
    {
        var questions = Question.Make(path, 64);
        Usage before = Usage.Now(), warm, end;
        List<Client> clients;
        long dropped;
        using (var service = new Service(path, nWorkers))
        using (var server = new Server(service, IPAddress.Loopback, 0))
        {
            // Fills pools, stacks and the heap, and compiles.
            RunClients(server.Address, questions, nClients, TimeSpan.FromTicks(duration.Ticks / 3), 1000);
            warm = Usage.Now();
            clients = RunClients(server.Address, questions, nClients, duration, 1);
            end = Usage.Now();
            server.Stop();
            Console.WriteLine("stopped: " + service.Counts);
            dropped = service.Dropped;
        }
        Report(nWorkers, clients, duration);
        Console.WriteLine($"after warming up {warm}; after the load {end}; after the shutdown {Usage.Now()}");
        if (clients.Sum(client => client.Milliseconds.Count) == 0 || clients.Sum(client => client.Cancelled) == 0 || dropped == 0)
            throw new LoadException("a load without answers, or without requests that were dropped while they waited, shows nothing");
        warm.ThrowIfGrownTo(end);
        before.ThrowIfThreadsAreLeft(Usage.Now());
    }

    private static List<Client> RunClients(IPEndPoint server, Question[] questions, int count, TimeSpan duration, int seed)
    {
        var clients = Enumerable.Range(seed, count).Select(i => new Client(server, questions, i)).ToList();
        var end = DateTime.UtcNow + duration;
        var threads = clients.Select(client => new Thread(() => client.RunUntil(end))).ToList();
        threads.ForEach(thread => thread.Start());
        threads.ForEach(thread => thread.Join());
        return clients;
    }

    private static void Report(int nWorkers, List<Client> clients, TimeSpan duration)
    {
        var sorted = clients.SelectMany(client => client.Milliseconds).OrderBy(one => one).ToList();
        var errors = clients.SelectMany(client => client.Errors).ToList();
        Console.WriteLine($"{nWorkers} workers, {clients.Count} clients, {duration.TotalSeconds} s: {sorted.Count} requests answered "
            + $"and right, {clients.Sum(client => client.Cancelled)} cancelled, {errors.Count} errors");
        Console.WriteLine($"latency p50 {Percentile(sorted, 50):F2} ms, p99 {Percentile(sorted, 99):F2} ms");
        if (errors.Count > 0)
            throw new LoadException($"the first of {errors.Count} errors: {errors[0]}");
    }

    private static double Percentile(List<double> sorted, int p) => sorted.Count == 0 ? 0 : sorted[(sorted.Count - 1) * p / 100];
}
