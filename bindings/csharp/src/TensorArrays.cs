using System;
using System.Collections.Generic;
using System.Linq;

namespace Moe
{
    /// <summary>What arrays a tensor takes: of the types that its format says, and how their rows lie.</summary>
    public sealed unsafe partial class Tensor
    {
        /// <summary>Bytes that are not looked into: every format may be given as them.</summary>
        private static readonly ElementType[] raw = { ElementType.U8, ElementType.I8 };

        private static readonly ElementType[] floats = { ElementType.F32 };

        /// <summary>Of values that hold codes of the format.</summary>
        private ElementType[] CodeTypes()
        {
            switch (Format.Packing)
            {
                case Packing.BitPlanes:
                case Packing.BitStream:
                case Packing.Gptq:
                case Packing.Awq:
                    return AndRaw(ElementType.I32); // in words
                default:
                    return AndRaw(Format.Type);
            }
        }

        private ElementType[] ScaleTypes() => Format.NestedScales ? raw : AndRaw(Format.ScaleType);

        private static ElementType[] AndRaw(ElementType type) => new[] { type }.Concat(raw).ToArray();

        /// <summary>Compares types, by which values would be other ones, and what has gaps. Whether the format has the buffer, and
        /// its bytes, is the library's to say.</summary>
        private void CheckArrays()
        {
            CheckPart("global_scale", GlobalScale, floats);
            CheckPart("input_scale", InputScale, floats);
            CheckPart("codebook", Codebook, floats);
            CheckPart("nested_scales", NestedScales, floats);
            CheckPart("nested_codebook", NestedCodebook, floats);
            CheckPart("permutation", Permutation, new[] { ElementType.I32 });
            CheckPart("pre_quant_scale", PreQuantScale, AndRaw(ElementType.F32));
            NestedCodebook?.Check("nested_codebook", 1, 256, ElementType.F32);
            if (Format == null)
                return;
            CheckPart("data", Data, CodeTypes(), true);
            CheckParts("data_per_expert", DataPerExpert, CodeTypes(), true);
            CheckPart("scales", Scales, ScaleTypes());
            CheckParts("scales_per_expert", ScalesPerExpert, ScaleTypes());
            CheckPart("zero_points", ZeroPoints, Format.ZeroPoint == ZeroPoint.Float ? ScaleTypes() : CodeTypes());
        }

        private static void CheckParts(string name, IReadOnlyList<Values> all, ElementType[] types, bool mayHaveGaps = false)
        {
            for (var i = 0; all != null && i < all.Count; i++)
            {
                CheckPart(name, all[i], types, mayHaveGaps);
                if ((all[i].HasGaps || all[0].HasGaps) && all[i].Stride != all[0].Stride)
                    throw new ArgumentException($"{name}[{i}] has other gaps than the first", name);
            }
        }

        /// <summary>No type is that of a part that the format does not have.</summary>
        private static void CheckPart(string name, Values values, ElementType[] types, bool mayHaveGaps = false)
        {
            if (values == null || types[0] == ElementType.None)
                return;
            values.CheckType(name, types);
            if (values.HasGaps && !mayHaveGaps)
                throw new ArgumentException($"{name} must be dense", name);
            if (values.Rows >= 0)
                values.Check(name, values.Rows, values.Columns, types);
        }

        /// <summary>Gives the tensor the row stride of values that are one matrix, or a stack of n, with gaps.</summary>
        private void SetStride(moe_tensor* made, string name, Values values, long n)
        {
            if (values == null || !values.HasGaps || Format == null)
                return;
            var matrix = (long)Format.Size(Rows, Columns).DataBytes;
            var rows = Orientation == Orientation.InOut ? Columns : Rows; // as stored
            n = Math.Max(n, 1);
            var size = Values.BytesOf(values.Type);
            if (rows <= 0 || values.Rows % n != 0 || values.Rows / n != rows || matrix % (rows * size) != 0
                || values.Columns != matrix / rows / size)
                throw new ArgumentException($"{name} is [{values.Rows}, {values.Columns}] with gaps, must have the {rows} rows of "
                    + $"{n} matrices of {matrix} bytes", name);
            var stride = checked(values.Stride * size);
            if (RowStride != 0 && RowStride != stride)
                throw new ArgumentException($"{name} has rows {stride} bytes apart, RowStride is {RowStride}", name);
            if (n > 1 && ExpertStride != 0 && ExpertStride != rows * stride)
                throw new ArgumentException($"{name} has experts {rows * stride} bytes apart, ExpertStride is {ExpertStride}", name);
            made->row_stride = stride;
            if (n > 1)
                made->expert_stride = checked(rows * stride);
        }
    }
}
