using System;
using System.Buffers;
using System.Collections.Generic;
using System.Runtime.InteropServices;

namespace Moe
{
    /// <summary>What the arguments of a call point to: structs and texts in memory of C, arrays that are pinned. It is given
    /// back after the call, or after the weights that borrow from it.</summary>
    internal sealed unsafe class CallMemory : IDisposable
    {
        private readonly List<IntPtr> allocated = new List<IntPtr>();
        private readonly List<MemoryHandle> pins = new List<MemoryHandle>();

        /// <summary>Zeroed.</summary>
        public IntPtr Allocate(int bytes)
        {
            var made = Marshal.AllocHGlobal(Math.Max(bytes, 1));
            allocated.Add(made);
            for (var i = 0; i < bytes; i++)
                ((byte*)made)[i] = 0;
            return made;
        }

        public IntPtr Text(string text)
        {
            var bytes = Utf8.Bytes(text);
            var made = Allocate(bytes.Length);
            Marshal.Copy(bytes, 0, made, bytes.Length);
            return made;
        }

        /// <summary>NULL for null or nothing.</summary>
        public IntPtr OptionalText(string text) => string.IsNullOrEmpty(text) ? IntPtr.Zero : Text(text);

        public IntPtr Put(Format format)
        {
            var made = (moe_format*)Allocate(sizeof(moe_format));
            *made = format.ToNative();
            return (IntPtr)made;
        }

        /// <summary>The address of values, which stay where they are for as long as this lives.</summary>
        public IntPtr Address(Values values)
        {
            if (values == null)
                return IntPtr.Zero;
            if (!values.IsManaged)
                return values.Address;
            var pin = values.Pin();
            pins.Add(pin);
            return (IntPtr)pin.Pointer;
        }

        public void Dispose()
        {
            foreach (var one in pins)
                one.Dispose();
            foreach (var one in allocated)
                Marshal.FreeHGlobal(one);
            pins.Clear();
            allocated.Clear();
        }
    }
}
