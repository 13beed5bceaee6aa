using System;

namespace Moe
{
    /// <summary>A stream of a device, through moe.h. On the CPU its address is zero.</summary>
    public sealed unsafe class DeviceStream : IDisposable
    {
        public DeviceStream(DeviceKind kind, int index = 0)
        {
            Kind = kind;
            Index = index;
            var made = IntPtr.Zero;
            Library.Native.moe_stream_create(kind, index, (IntPtr)(&made));
            Address = made;
        }

        public DeviceKind Kind { get; }

        public int Index { get; }

        /// <summary>For the Stream of a call.</summary>
        public IntPtr Address { get; private set; }

        /// <summary>Waits for all work on it.</summary>
        public void Synchronize() => Library.Native.moe_stream_synchronize(Kind, Index, Address);

        /// <summary>Work on it runs to its end. A second time does nothing.</summary>
        public void Dispose()
        {
            var address = Address;
            Address = IntPtr.Zero;
            Library.Native.moe_stream_destroy(Kind, Index, address);
        }
    }

    /// <summary>Memory of a device, through moe.h; on the CPU, of the host. Its address goes into Values.At. Nothing but
    /// Dispose frees it, while its runtime is not disposed.</summary>
    public sealed unsafe class DeviceMemory : IDisposable
    {
        private readonly Runtime runtime;

        /// <summary>From the runtime's allocator; null is the default.</summary>
        public DeviceMemory(DeviceKind kind, int index, Space space, ulong bytes, Runtime runtime = null)
        {
            Kind = kind;
            Index = index;
            Space = space;
            Bytes = bytes;
            this.runtime = runtime;
            var made = IntPtr.Zero;
            Library.Native.moe_memory_allocate(Runtime.HandleOf(runtime), kind, index, space, bytes, (IntPtr)(&made));
            Address = made;
        }

        public DeviceKind Kind { get; }

        public int Index { get; }

        public Space Space { get; }

        public ulong Bytes { get; }

        public IntPtr Address { get; private set; }

        /// <summary>Copies an array to its beginning, behind the work on the stream, and waits.</summary>
        public void Upload(float[] from, DeviceStream stream)
        {
            fixed (float* host = Checked(from, nameof(from)))
                Copy(Address, (IntPtr)host, from, stream);
        }

        /// <summary>Copies its beginning into an array, behind the work on the stream, and waits.</summary>
        public void Download(float[] to, DeviceStream stream)
        {
            fixed (float* host = Checked(to, nameof(to)))
                Copy((IntPtr)host, Address, to, stream);
        }

        /// <summary>Sets all of it to zero, behind the work on the stream, and waits.</summary>
        public void Zero(DeviceStream stream)
        {
            Library.Native.moe_memory_zero(Kind, Index, Address, Bytes, stream.Address);
            stream.Synchronize();
        }

        /// <summary>Work that uses it must have ended. A second time does nothing.</summary>
        public void Dispose()
        {
            if (Address == IntPtr.Zero)
                return;
            Library.Native.moe_memory_free(Runtime.HandleOf(runtime), Kind, Index, Space, Bytes, Address);
            Address = IntPtr.Zero;
        }

        private float[] Checked(float[] host, string name)
        {
            if (host == null)
                throw new ArgumentNullException(name);
            if ((ulong)host.LongLength * sizeof(float) > Bytes)
                throw new ArgumentException($"{name} has {host.LongLength} elements, the memory {Bytes} bytes", name);
            return host;
        }

        private void Copy(IntPtr to, IntPtr from, float[] host, DeviceStream stream)
        {
            Library.Native.moe_memory_copy(Kind, Index, to, from, (ulong)host.LongLength * sizeof(float), stream.Address);
            stream.Synchronize();
        }
    }
}
