using System;
using System.Collections.Concurrent;
using System.IO;
using System.Net;
using System.Net.Sockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using Moe;

/// <summary>Accepts clients, and answers the requests of each one after the other.</summary>
internal sealed class Server : IDisposable
{
    private static readonly TimeSpan patience = TimeSpan.FromSeconds(10);

    private readonly Service service;
    private readonly TcpListener listener;
    private readonly ConcurrentDictionary<TcpClient, Task> clients = new ConcurrentDictionary<TcpClient, Task>();
    private readonly Task accepting;
    private volatile bool isStopping;

    public Server(Service service, IPAddress address, int port)
    {
        this.service = service;
        listener = new TcpListener(address, port);
        listener.Start(256);
        accepting = Task.Run(Accept);
    }

    public IPEndPoint Address => (IPEndPoint)listener.LocalEndpoint;

    private async Task Accept()
    {
        while (!isStopping)
        {
            try
            {
                var client = await listener.AcceptTcpClientAsync();
                var answering = new Task<Task>(() => Answer(client));
                clients[client] = answering.Unwrap(); // before it can end
                answering.Start();
            }
            catch (Exception error) when (error is SocketException || error is ObjectDisposedException
                || error is InvalidOperationException)
            {
                if (!isStopping)
                    Console.Error.WriteLine("server: " + error.Message);
            }
        }
    }

    private async Task Answer(TcpClient client)
    {
        var next = Task.FromResult(0);
        using (var gone = new CancellationTokenSource())
        {
            try
            {
                client.NoDelay = true;
                var stream = client.GetStream();
                next = NextHeader(stream, gone);
                for (var tokens = await next; tokens > 0; tokens = await next)
                {
                    if (tokens > Service.MaxTokens)
                    {
                        await Wire.WriteRefusal(stream, $"{tokens} tokens, at most {Service.MaxTokens}");
                        break; // the values behind it are not read
                    }
                    var x = await Wire.ReadValues(stream, tokens * service.Hidden);
                    next = NextHeader(stream, gone); // ends when the client goes
                    await AnswerOne(stream, x, gone.Token);
                }
            }
            catch (Exception error) when (error is IOException || error is ObjectDisposedException
                || error is OperationCanceledException)
            {
                // The client has gone.
            }
            client.Close();
            await next;
        }
        clients.TryRemove(client, out _);
    }

    private async Task AnswerOne(Stream stream, float[] x, CancellationToken gone)
    {
        try
        {
            await Wire.WriteValues(stream, x.Length / service.Hidden, await service.Forward(x, gone));
        }
        catch (MoeException error)
        {
            await Wire.WriteRefusal(stream, error.Message);
        }
    }

    /// <summary>The next number of tokens. 0 where there is none: the client has gone then, unless the server stops reading.</summary>
    private async Task<int> NextHeader(Stream stream, CancellationTokenSource gone)
    {
        var tokens = 0;
        try
        {
            tokens = await Wire.ReadHeader(stream);
        }
        catch (Exception error) when (error is IOException || error is ObjectDisposedException)
        {
            // It counts as the end of the stream.
        }
        if (tokens <= 0 && !isStopping)
            gone.Cancel();
        return tokens;
    }

    /// <summary>Accepts nobody any more and reads no request, answers what it has read, and closes the connections.</summary>
    public void Stop()
    {
        if (isStopping)
            return;
        isStopping = true;
        listener.Stop();
        accepting.Wait();
        foreach (var client in clients)
        {
            try
            {
                client.Key.Client.Shutdown(SocketShutdown.Receive);
            }
            catch (Exception error) when (error is SocketException || error is ObjectDisposedException
                || error is NullReferenceException)
            {
                // It has closed meanwhile.
            }
            if (!client.Value.Wait(patience))
                client.Key.Close(); // one that does not read its answer
        }
    }

    public void Dispose() => Stop();
}

/// <summary>The bytes of requests and answers.</summary>
internal static class Wire
{
    /// <summary>The next number of tokens; 0 where the stream ends.</summary>
    public static async Task<int> ReadHeader(Stream stream)
    {
        var bytes = new byte[4];
        return await Fill(stream, bytes) ? BitConverter.ToInt32(bytes, 0) : 0;
    }

    public static async Task<float[]> ReadValues(Stream stream, int count)
    {
        var bytes = new byte[4 * count];
        if (!await Fill(stream, bytes))
            throw new EndOfStreamException();
        var values = new float[count];
        Buffer.BlockCopy(bytes, 0, values, 0, bytes.Length);
        return values;
    }

    public static async Task<string> ReadText(Stream stream, int length)
    {
        var bytes = new byte[length];
        return await Fill(stream, bytes) ? Encoding.UTF8.GetString(bytes) : "";
    }

    public static Task WriteValues(Stream stream, int tokens, float[] values)
    {
        var bytes = new byte[4 + 4 * values.Length];
        Buffer.BlockCopy(BitConverter.GetBytes(tokens), 0, bytes, 0, 4);
        Buffer.BlockCopy(values, 0, bytes, 4, 4 * values.Length);
        return stream.WriteAsync(bytes, 0, bytes.Length);
    }

    public static async Task WriteRefusal(Stream stream, string why)
    {
        var text = Encoding.UTF8.GetBytes(why);
        await stream.WriteAsync(BitConverter.GetBytes(-text.Length), 0, 4);
        await stream.WriteAsync(text, 0, text.Length);
    }

    /// <summary>False if the stream ends before the first byte.</summary>
    private static async Task<bool> Fill(Stream stream, byte[] bytes)
    {
        for (var done = 0; done < bytes.Length;)
        {
            var count = await stream.ReadAsync(bytes, done, bytes.Length - done);
            if (count == 0)
                return done == 0 ? false : throw new EndOfStreamException();
            done += count;
        }
        return true;
    }
}
