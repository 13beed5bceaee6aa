using System;
using System.Collections.Generic;
using System.Linq;

namespace Moe
{
    /// <summary>moe_tensor: a matrix or vector, of one expert or of all stacked. Its memory is not copied; byte counts are
    /// those of the values.</summary>
    public sealed unsafe partial class Tensor
    {
        /// <summary>As <see cref="Expert"/>, a stack of experts.</summary>
        public const int AllExperts = Header.AllExperts;

        private static readonly Dictionary<ElementType, string> dense = new Dictionary<ElementType, string>
        {
            { ElementType.F32, "f32" }, { ElementType.F16, "f16" }, { ElementType.BF16, "bf16" },
        };

        public Role Role { get; set; }

        /// <summary>Global id, or <see cref="AllExperts"/>; ignored for roles without experts.</summary>
        public int Expert { get; set; }

        public Orientation Orientation { get; set; }
        public GateUpOrder GateUpOrder { get; set; }
        public Space Space { get; set; }
        public Format Format { get; set; }

        /// <summary>Of a stack.</summary>
        public long NExperts { get; set; }

        /// <summary>Of one expert, logical.</summary>
        public long Rows { get; set; }

        public long Columns { get; set; }

        /// <summary>In bytes; 0: dense. So are the other strides.</summary>
        public long RowStride { get; set; }

        public long ExpertStride { get; set; }
        public Values Data { get; set; }

        /// <summary>Instead of <see cref="Data"/>.</summary>
        public IReadOnlyList<Values> DataPerExpert { get; set; }

        public Values Scales { get; set; }
        public IReadOnlyList<Values> ScalesPerExpert { get; set; }
        public long ScaleRowStride { get; set; }
        public long ScaleExpertStride { get; set; }
        public ScaleLayout ScaleLayout { get; set; }

        /// <summary>float, one or one per expert.</summary>
        public Values GlobalScale { get; set; }

        /// <summary>float, 2^bits.</summary>
        public Values Codebook { get; set; }

        public Values ZeroPoints { get; set; }

        /// <summary>int, the group of each column.</summary>
        public Values Permutation { get; set; }

        public Values NestedScales { get; set; }

        /// <summary>float, 256.</summary>
        public Values NestedCodebook { get; set; }

        public float NestedOffset { get; set; }

        /// <summary>float, one or one per expert.</summary>
        public Values InputScale { get; set; }

        public Values PreQuantScale { get; set; }

        /// <summary>What the memory belongs to, where that is a checkpoint: its mapping does not end before this is
        /// collected.</summary>
        internal CheckpointHandle Owner { get; private set; }

        /// <summary>float, <see cref="Float16"/> or <see cref="BFloat16"/> [rows, columns], or a stack of experts if data
        /// has more than one of them.</summary>
        public static Tensor Dense(Role role, Values data, long rows, long columns)
        {
            data.CheckType("data", ElementType.F32, ElementType.F16, ElementType.BF16);
            var length = data.Length;
            if (rows <= 0 || columns <= 0 || rows > length / columns || length % (rows * columns) != 0)
                throw new ArgumentException($"data has {length} elements, no multiple of {rows} x {columns}", "data");
            var stack = length / (rows * columns);
            return new Tensor
            {
                Role = role, Expert = AllExperts, Format = Format.ByName(dense[data.Type]), Rows = rows, Columns = columns,
                Data = data, NExperts = stack > 1 ? stack : 0,
            };
        }

        /// <summary>Writes a float matrix [rows, columns] in a format that has an encoder. codebook, of 2^bits values, is for
        /// formats that are given one.</summary>
        public static Tensor Quantize(Role role, Values matrix, long rows, long columns, Format format, Values codebook = null)
        {
            matrix.Check("matrix", rows, columns, ElementType.F32);
            codebook?.Check("codebook", 1, 1L << (format.Bits & 31), ElementType.F32);
            var size = format.Size(rows, columns);
            var made = new Tensor { Role = role, Format = format, Rows = rows, Columns = columns, Codebook = codebook };
            made.Data = new byte[size.DataBytes];
            if (size.ScaleBytes > 0)
                made.Scales = new byte[size.ScaleBytes];
            if (format.GlobalScale != Moe.GlobalScale.None)
                made.GlobalScale = new float[1];
            using (var memory = new CallMemory())
            {
                var args = default(moe_quantize_args);
                args.struct_size = (uint)sizeof(moe_quantize_args);
                args.format = memory.Put(format);
                args.source = memory.Address(matrix);
                args.rows = rows;
                args.columns = columns;
                args.data = memory.Address(made.Data);
                args.data_bytes = size.DataBytes;
                args.scales = memory.Address(made.Scales);
                args.scale_bytes = size.ScaleBytes;
                args.global_scale = memory.Address(made.GlobalScale);
                args.codebook = memory.Address(codebook);
                Library.Native.moe_quantize(&args);
            }
            return made;
        }

        /// <summary>One expert (0 for a single matrix) as float [Rows, Columns], as it lies.</summary>
        public float[] Dequantize(long expert = 0)
        {
            if (Rows <= 0 || Columns <= 0 || Rows > int.MaxValue / Columns)
                throw new ArgumentException($"{Rows} x {Columns} is no matrix that an array holds", "rows");
            var elements = new float[Rows * Columns];
            using (var memory = new CallMemory())
            using (new Lease(Owner))
            {
                var tensor = (moe_tensor*)ToNative(memory);
                Library.Native.moe_dequantize(tensor, expert, memory.Address(elements), (ulong)elements.Length);
            }
            return elements;
        }

        /// <summary>Bytes of the scales of one matrix in a layout; columns counts groups of columns.</summary>
        public static ulong ScaleLayoutSize(ScaleLayout layout, long rows, long columns)
        {
            Library.Native.moe_scale_layout_size(layout, rows, columns, out var bytes);
            return bytes;
        }

        /// <summary>The scales of one matrix, [rows, columns] of one byte, in another layout. columns counts groups of
        /// columns.</summary>
        public static byte[] ConvertScales(Values scales, ScaleLayout from, ScaleLayout to, long rows, long columns)
        {
            var bytes = ScaleLayoutSize(to, rows, columns);
            if (bytes > int.MaxValue)
                throw new ArgumentException($"{rows} x {columns} scales are not in an array", "rows");
            var made = new byte[bytes];
            using (var memory = new CallMemory())
            {
                var args = default(moe_convert_scales_args);
                args.struct_size = (uint)sizeof(moe_convert_scales_args);
                args.source_layout = from;
                args.layout = to;
                args.rows = rows;
                args.columns = columns;
                args.source = memory.Address(scales);
                args.source_bytes = BytesOf(scales);
                args.scales = memory.Address(made);
                args.scale_bytes = bytes;
                Library.Native.moe_convert_scales(&args);
            }
            return made;
        }

        /// <summary>The bytes of <see cref="Data"/> in memory that is not an array's, where it lies. Those of a checkpoint lie in
        /// its mapping: they are there until it is disposed, and asking for them afterwards is an
        /// <see cref="ObjectDisposedException"/>. What nobody disposed the finalizer does, and the span does not hold it up, the
        /// tensor does: keep that for as long as the bytes are read, by GC.KeepAlive(tensor) behind the last of them.</summary>
        public ReadOnlySpan<byte> Mapped()
        {
            Owner?.ThrowIfDisposed();
            if (Data == null || Data.IsManaged || Space == Space.Device)
                return ReadOnlySpan<byte>.Empty;
            return new ReadOnlySpan<byte>((void*)Data.Address, checked((int)Data.Bytes));
        }

        /// <summary>The struct and what it points to, for as long as the memory lives.</summary>
        internal IntPtr ToNative(CallMemory memory)
        {
            CheckArrays();
            var made = (moe_tensor*)memory.Allocate(sizeof(moe_tensor));
            made->struct_size = (uint)sizeof(moe_tensor);
            made->role = Role;
            made->expert = Expert;
            made->orientation = Orientation;
            made->gate_up_order = GateUpOrder;
            made->space = Space;
            made->format = Format == null ? IntPtr.Zero : memory.Put(Format);
            made->n_experts = NExperts;
            made->rows = Rows;
            made->columns = Columns;
            made->row_stride = RowStride;
            made->expert_stride = ExpertStride;
            made->scale_row_stride = ScaleRowStride;
            made->scale_expert_stride = ScaleExpertStride;
            made->scale_layout = ScaleLayout;
            made->nested_offset = NestedOffset;
            made->data = memory.Address(Data);
            made->data_bytes = BytesOf(Data);
            made->scales = memory.Address(Scales);
            made->scale_bytes = BytesOf(Scales);
            made->zero_points = memory.Address(ZeroPoints);
            made->zero_point_bytes = BytesOf(ZeroPoints);
            made->pre_quant_scale = memory.Address(PreQuantScale);
            made->pre_quant_scale_bytes = BytesOf(PreQuantScale);
            made->codebook = memory.Address(Codebook);
            made->codebook_bytes = BytesOf(Codebook);
            made->nested_scales = memory.Address(NestedScales);
            made->nested_scale_bytes = BytesOf(NestedScales);
            made->permutation = memory.Address(Permutation);
            made->permutation_bytes = BytesOf(Permutation);
            made->nested_codebook = memory.Address(NestedCodebook);
            made->global_scale = memory.Address(GlobalScale);
            made->n_global_scales = GlobalScale?.Length ?? 0;
            made->input_scale = memory.Address(InputScale);
            made->n_input_scales = InputScale?.Length ?? 0;
            SetStride(made, "data", Data, NExperts);
            if (DataPerExpert != null)
            {
                SetStride(made, "data_per_expert", DataPerExpert.FirstOrDefault(), 1);
                made->data_per_expert = PerExpert("data_per_expert", DataPerExpert, memory, out made->data_bytes);
                made->n_experts = DataPerExpert.Count;
            }
            if (ScalesPerExpert != null)
                made->scales_per_expert = PerExpert("scales_per_expert", ScalesPerExpert, memory, out made->scale_bytes);
            return (IntPtr)made;
        }

        private static ulong BytesOf(Values values) => values == null ? 0 : (ulong)values.Bytes;

        private static IntPtr PerExpert(string name, IReadOnlyList<Values> all, CallMemory memory, out ulong bytes)
        {
            bytes = all.Count > 0 ? (ulong)all[0].Bytes : 0;
            var addresses = (IntPtr*)memory.Allocate(checked(all.Count * sizeof(IntPtr)));
            for (var i = 0; i < all.Count; i++)
            {
                if ((ulong)all[i].Bytes != bytes)
                    throw new ArgumentException($"{name}[{i}] has {all[i].Bytes} bytes, the first {bytes}", name);
                addresses[i] = memory.Address(all[i]);
            }
            return (IntPtr)addresses;
        }

        internal static Tensor FromNative(moe_tensor* from, CheckpointHandle owner)
        {
            return new Tensor
            {
                Role = from->role, Expert = from->expert, Orientation = from->orientation, GateUpOrder = from->gate_up_order,
                Space = from->space, Format = Format.FromNative(*(moe_format*)from->format), NExperts = from->n_experts,
                Rows = from->rows, Columns = from->columns, RowStride = from->row_stride, ExpertStride = from->expert_stride,
                ScaleRowStride = from->scale_row_stride, ScaleExpertStride = from->scale_expert_stride,
                ScaleLayout = from->scale_layout,
                Data = BytesAt(from->data, from->data_bytes), Scales = BytesAt(from->scales, from->scale_bytes),
                DataPerExpert = EachAt(from->data_per_expert, from->n_experts, from->data_bytes),
                ScalesPerExpert = EachAt(from->scales_per_expert, from->n_experts, from->scale_bytes),
                GlobalScale = FloatsAt(from->global_scale, from->n_global_scales),
                Codebook = FloatsAt(from->codebook, (long)from->codebook_bytes / 4),
                ZeroPoints = BytesAt(from->zero_points, from->zero_point_bytes),
                Permutation = from->permutation == IntPtr.Zero ? null
                    : Values.At(from->permutation, ElementType.I32, 1, (long)from->permutation_bytes / 4),
                NestedScales = FloatsAt(from->nested_scales, (long)from->nested_scale_bytes / 4),
                NestedCodebook = FloatsAt(from->nested_codebook, 256), NestedOffset = from->nested_offset,
                InputScale = FloatsAt(from->input_scale, from->n_input_scales),
                PreQuantScale = BytesAt(from->pre_quant_scale, from->pre_quant_scale_bytes), Owner = owner,
            };
        }

        private static Values BytesAt(IntPtr address, ulong bytes)
        {
            return address == IntPtr.Zero ? null : Values.At(address, ElementType.U8, 1, checked((long)bytes));
        }

        private static Values FloatsAt(IntPtr address, long count)
        {
            return address == IntPtr.Zero ? null : Values.At(address, ElementType.F32, 1, count);
        }

        private static IReadOnlyList<Values> EachAt(IntPtr addresses, long count, ulong bytes)
        {
            if (addresses == IntPtr.Zero)
                return null;
            var found = new List<Values>();
            for (long i = 0; i < count; i++)
                found.Add(BytesAt(((IntPtr*)addresses)[i], bytes));
            return found;
        }
    }
}
