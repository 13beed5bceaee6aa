// Runs a layer through the assembly and the library of an unpacked NuGet package, on a fixture of tests/oracle, and holds the
// result to what is stored beside it: Program FIXTURE
using System;
using System.IO;
using Moe;

internal static class Program
{
    private const double Tolerance = 1e-4; // relative L2 of each token; the stored values are from float32

    public static int Main(string[] arguments)
    {
        var x = Floats(Path.Combine(arguments[0], "x.npy"));
        var wanted = Floats(Path.Combine(arguments[0], "y.npy"));
        var output = new float[x.Length];
        using (var layer = new Layer(arguments[0]))
        {
            layer.Forward(new ForwardArgs { X = x, Out = output });
            var error = WorstRow(output, wanted, (int)layer.Hidden);
            Console.WriteLine($"{Library.Path}: relative error {error:e1}");
            return error <= Tolerance ? 0 : 1;
        }
    }

    /// <summary>The largest of |got - wanted| / |wanted| over rows; zeros are 1.</summary>
    private static double WorstRow(float[] got, float[] wanted, int width)
    {
        double worst = got.Length == wanted.Length && got.Length > 0 ? 0 : double.PositiveInfinity;
        for (var row = 0; row < got.Length / width; row++)
        {
            double difference = 0, norm = 0;
            for (var i = row * width; i < (row + 1) * width; i++)
            {
                difference += Math.Pow((double)got[i] - wanted[i], 2);
                norm += Math.Pow(wanted[i], 2);
            }
            worst = difference <= worst * worst * norm ? worst : Math.Sqrt(difference / norm);
        }
        return worst;
    }

    /// <summary>The values of a .npy file of float32: they follow a header whose length stands at byte 8.</summary>
    private static float[] Floats(string path)
    {
        var file = File.ReadAllBytes(path);
        var start = 10 + BitConverter.ToUInt16(file, 8);
        var values = new float[(file.Length - start) / sizeof(float)];
        Buffer.BlockCopy(file, start, values, 0, values.Length * sizeof(float));
        return values;
    }
}
