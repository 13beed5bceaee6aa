using System;
using System.Buffers;

namespace Moe
{
    /// <summary>The bits of a bfloat16.</summary>
    public readonly struct BFloat16
    {
        public BFloat16(ushort bits)
        {
            Bits = bits;
        }

        public ushort Bits { get; }
    }

    /// <summary>The bits of an IEEE half.</summary>
    public readonly struct Float16
    {
        public Float16(ushort bits)
        {
            Bits = bits;
        }

        public ushort Bits { get; }
    }

    /// <summary>Memory that a call reads or writes: an array or <see cref="Memory{T}"/>, used where it lies and pinned for
    /// the call, or an address. Elements are float, double, <see cref="BFloat16"/>, <see cref="Float16"/>, sbyte, byte, int
    /// or long. Immutable: any thread may use it.</summary>
    public sealed class Values
    {
        private readonly Func<MemoryHandle> pin;

        private Values(ElementType type, long elements, long rows, long columns, long stride, Func<MemoryHandle> pin,
            IntPtr address, bool isWritable, bool isBounded)
        {
            Type = type;
            Elements = elements;
            Rows = rows;
            Columns = columns;
            Stride = stride;
            this.pin = pin;
            Address = address;
            IsWritable = isWritable;
            IsBounded = isBounded;
        }

        public ElementType Type { get; }

        /// <summary>Of the memory.</summary>
        public long Elements { get; }

        /// <summary>-1: as many dense ones as there are elements for.</summary>
        internal long Rows { get; }

        internal long Columns { get; }

        /// <summary>In elements; 0: dense.</summary>
        internal long Stride { get; }

        /// <summary>Whether there is anything between the rows.</summary>
        internal bool HasGaps => Rows >= 0 && Stride != 0 && Stride != Columns;

        /// <summary>The elements of all rows, without what lies between and behind them.</summary>
        internal long Length => Rows < 0 ? Elements : checked(Rows * Columns);

        internal IntPtr Address { get; }

        internal bool IsWritable { get; }

        /// <summary>Host memory whose length is known here.</summary>
        internal bool IsBounded { get; }

        internal bool IsManaged => pin != null;

        internal long Bytes => Elements * BytesOf(Type);

        internal MemoryHandle Pin() => pin();

        /// <summary>Dense rows; how many follows from the length. null is none.</summary>
        public static Values Of<T>(T[] array) where T : struct => array == null ? null : Of(new Memory<T>(array));

        /// <summary>Dense rows; how many follows from the length.</summary>
        public static Values Of<T>(Memory<T> memory) where T : struct
        {
            return new Values(TypeOf<T>(), memory.Length, -1, 0, 0, memory.Pin, IntPtr.Zero, true, true);
        }

        /// <summary>Dense rows to be read; how many follows from the length.</summary>
        public static Values Of<T>(ReadOnlyMemory<T> memory) where T : struct
        {
            return new Values(TypeOf<T>(), memory.Length, -1, 0, 0, memory.Pin, IntPtr.Zero, false, true);
        }

        /// <summary>Rows that begin every stride elements.</summary>
        public static Values Strided<T>(Memory<T> memory, long rows, long columns, long stride) where T : struct
        {
            return new Values(TypeOf<T>(), memory.Length, rows, columns, stride, memory.Pin, IntPtr.Zero, true, true);
        }

        /// <summary>Rows that begin every stride elements.</summary>
        public static Values Strided<T>(T[] array, long rows, long columns, long stride) where T : struct
        {
            return Strided(new Memory<T>(array), rows, columns, stride);
        }

        /// <summary>Memory of a device, or of C: rows of columns elements, stride (0: columns) apart. It must stay until
        /// the work on it is done.</summary>
        public static Values At(IntPtr address, ElementType type, long rows, long columns, long stride = 0)
        {
            var elements = stride != 0 && rows > 0 ? checked((rows - 1) * stride + columns) : checked(rows * columns);
            return new Values(type, elements, rows, columns, stride, null, address, true, false);
        }

        /// <summary>A span that its caller has pinned.</summary>
        internal static unsafe Values Pinned(void* address, ElementType type, int elements)
        {
            return new Values(type, elements, -1, 0, 0, null, (IntPtr)address, true, true);
        }

        public static implicit operator Values(float[] array) => Of(array);

        public static implicit operator Values(double[] array) => Of(array);

        public static implicit operator Values(BFloat16[] array) => Of(array);

        public static implicit operator Values(Float16[] array) => Of(array);

        public static implicit operator Values(byte[] array) => Of(array);

        public static implicit operator Values(int[] array) => Of(array);

        public static implicit operator Values(long[] array) => Of(array);

        private static ElementType TypeOf<T>()
        {
            var type = typeof(T);
            if (type == typeof(float)) return ElementType.F32;
            if (type == typeof(double)) return ElementType.F64;
            if (type == typeof(BFloat16)) return ElementType.BF16;
            if (type == typeof(Float16)) return ElementType.F16;
            if (type == typeof(sbyte)) return ElementType.I8;
            if (type == typeof(byte)) return ElementType.U8;
            if (type == typeof(int)) return ElementType.I32;
            if (type == typeof(long)) return ElementType.I64;
            throw new ArgumentException($"elements are {type}; libmoe has no such type");
        }

        internal static long BytesOf(ElementType type)
        {
            switch (type)
            {
                case ElementType.F64:
                case ElementType.I64:
                    return 8;
                case ElementType.F32:
                case ElementType.I32:
                    return 4;
                case ElementType.F16:
                case ElementType.BF16:
                    return 2;
                default:
                    return 1;
            }
        }

        /// <summary>How many rows of that many columns there are.</summary>
        internal long RowsOf(long columns) => Rows >= 0 ? Rows : columns > 0 ? Elements / columns : 0;

        /// <summary>Throws unless this is [rows, columns] of one of the types.</summary>
        internal void Check(string name, long rows, long columns, params ElementType[] types)
        {
            CheckType(name, types);
            if (Rows < 0)
            {
                if (Elements != rows * columns)
                    throw new ArgumentException($"{name} has {Elements} elements, must have {rows} x {columns}", name);
                return;
            }
            if (Rows != rows || Columns != columns)
                throw new ArgumentException($"{name} is [{Rows}, {Columns}], must be [{rows}, {columns}]", name);
            if (Stride != 0 && Stride < columns)
                throw new ArgumentException($"{name}: rows of {columns} elements overlap at a stride of {Stride}", name);
            var step = Stride != 0 ? Stride : columns;
            var isTooLong = Elements < columns || (step > 0 && rows - 1 > (Elements - columns) / step);
            if (IsBounded && rows > 0 && columns > 0 && isTooLong)
                throw new ArgumentException(
                    $"{name}: {rows} rows at a stride of {step} do not fit {Elements} elements", name);
        }

        internal void CheckType(string name, params ElementType[] types)
        {
            if (Array.IndexOf(types, Type) < 0)
                throw new ArgumentException($"{name} is {Type}, must be {string.Join(" or ", types)}", name);
        }
    }
}
