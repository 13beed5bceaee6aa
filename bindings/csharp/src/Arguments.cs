using System;

namespace Moe
{
    /// <summary>Checks the values of one call against the shape of its plan, and holds them where they lie until it is
    /// disposed. Those that are not given are null, and become NULL.</summary>
    internal sealed class Arguments : IDisposable
    {
        private static readonly ElementType[] idTypes = { ElementType.I32, ElementType.I64 };
        private readonly CallMemory memory = new CallMemory();

        public Arguments(Plan plan)
        {
            Shape = plan.Shape;
        }

        public Shape Shape { get; }

        public void Dispose() => memory.Dispose();

        /// <summary>The address of [rows, columns] that is read.</summary>
        public IntPtr Rows(string name, Values values, long rows, long columns, out long stride, params ElementType[] types)
        {
            stride = values?.Stride ?? 0;
            if (values == null)
                return IntPtr.Zero;
            if (values.IsBounded && !Shape.IsCpu)
                throw new ArgumentException($"{name} is host memory; the plan wants memory of its device", name);
            values.Check(name, rows, columns, types);
            return memory.Address(values);
        }

        /// <summary>The same of one that is written.</summary>
        public IntPtr Output(string name, Values values, long rows, long columns, out long stride, ElementType type)
        {
            if (values != null && !values.IsWritable)
                throw new ArgumentException($"{name} is read-only", name);
            return Rows(name, values, rows, columns, out stride, type);
        }

        public IntPtr Ids(string name, Values values, long rows, out long stride, out ElementType type)
        {
            type = values?.Type ?? ElementType.None;
            return Rows(name, values, rows, Shape.TopK, out stride, idTypes);
        }

        /// <summary>The address of values that have no stride.</summary>
        public IntPtr Dense(string name, Values values, long elements, params ElementType[] types)
        {
            if (values == null)
                return IntPtr.Zero;
            if (values.HasGaps)
                throw new ArgumentException($"{name} must be dense", name);
            if (values.Rows < 0)
                return Rows(name, values, 1, elements, out _, types);
            if (values.Elements != elements)
                throw new ArgumentException($"{name} has {values.Elements} elements, must have {elements}", name);
            return Rows(name, values, values.Rows, values.Columns, out _, types);
        }

        public IntPtr DenseOutput(string name, Values values, long elements, ElementType type)
        {
            if (values != null && !values.IsWritable)
                throw new ArgumentException($"{name} is read-only", name);
            return Dense(name, values, elements, type);
        }

        public IntPtr DenseIds(string name, Values values, long elements, out ElementType type)
        {
            type = values?.Type ?? ElementType.None;
            return Dense(name, values, elements, idTypes);
        }

        /// <summary>The map and how many experts it has.</summary>
        public IntPtr ExpertMap(Values values, out int count)
        {
            count = values == null ? 0 : (int)Shape.NExperts;
            return Dense("ExpertMap", values, Shape.NExperts, ElementType.I32);
        }

        public IntPtr TrueTokens(Values values) => Dense("NTokensDevice", values, 1, ElementType.I32);

        public static void Require(string name, Values values)
        {
            if (values == null)
                throw new ArgumentException($"{name} must be given", name);
        }

        public static Routing RoutingOf(Values logits, Values ids, Values weights)
        {
            if (weights != null)
                return Routing.IdsAndWeights;
            if (ids != null)
                return Routing.Ids;
            return logits != null ? Routing.Logits : Routing.Compute;
        }
    }
}
