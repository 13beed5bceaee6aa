using System;

namespace Moe
{
    public sealed unsafe partial class LayerDesc
    {
        /// <summary>Checks the description as a plan would; the error names the first wrong field.</summary>
        public void Validate()
        {
            var layer = ToNative();
            Library.Native.moe_layer_validate(&layer);
        }
    }

    public sealed unsafe partial class Format
    {
        /// <summary>A named format, like "nvfp4"; <see cref="Library.FormatNames"/> has them all.</summary>
        public static Format ByName(string name)
        {
            var found = Empty();
            using (var memory = new CallMemory())
                Library.Native.moe_format_by_name(memory.Text(name), &found);
            return FromNative(found);
        }

        internal static moe_format Empty()
        {
            var made = default(moe_format);
            made.struct_size = (uint)sizeof(moe_format);
            return made;
        }

        public FormatInfo Info()
        {
            var format = ToNative();
            var info = default(moe_format_info);
            info.struct_size = (uint)sizeof(moe_format_info);
            Library.Native.moe_format_get_info(&format, &info);
            return new FormatInfo(info);
        }

        /// <summary>Bytes of the codes and of the scales of one dense matrix.</summary>
        public (ulong DataBytes, ulong ScaleBytes) Size(long rows, long columns)
        {
            var format = ToNative();
            Library.Native.moe_format_size(&format, rows, columns, out var data, out var scales);
            return (data, scales);
        }
    }

    /// <summary>moe_format_info.</summary>
    public sealed unsafe class FormatInfo
    {
        internal FormatInfo(moe_format_info from)
        {
            BlockRows = from.block_rows;
            BlockColumns = from.block_columns;
            HasDecode = from.has_decode != 0;
            HasEncode = from.has_encode != 0;
            BitsPerWeight = from.bits_per_weight;
            Name = Utf8.Read((IntPtr)from.name);
        }

        public string Name { get; }

        /// <summary>The smallest unit that decodes alone.</summary>
        public int BlockRows { get; }

        public int BlockColumns { get; }

        /// <summary>The library reads it.</summary>
        public bool HasDecode { get; }

        /// <summary><see cref="Tensor.Quantize"/> writes it.</summary>
        public bool HasEncode { get; }

        public double BitsPerWeight { get; }
    }
}
