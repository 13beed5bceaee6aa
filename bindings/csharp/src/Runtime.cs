using System;

namespace Moe
{
    /// <summary>What a runtime is made of; what is left out is the library's own. The functions are called from any thread.
    /// One that refers to the runtime itself keeps it from being collected: such a runtime must be disposed.</summary>
    public sealed class RuntimeOptions
    {
        /// <summary>CPU threads, the caller's included; 0: one per core that the process may use.</summary>
        public int NThreads { get; set; }

        /// <summary>Lines without a newline; null: standard error.</summary>
        public Action<LogLevel, string> Log { get; set; }

        public LogLevel LogLevel { get; set; }

        public IAllocator Allocator { get; set; }

        public ParallelFor ParallelFor { get; set; }

        /// <summary>Gets an exception of one of the above; null: standard error.</summary>
        public Action<Exception> OnError { get; set; }

        public string CublasltPath { get; set; }

        public string NcclPath { get; set; }
    }

    /// <summary>Memory, threads and log. Where one is requested, null is the process default. Any number of threads may use
    /// one; what was made with it goes on working when it is disposed.</summary>
    public sealed unsafe class Runtime : IDisposable
    {
        private readonly RuntimeHandle handle;

        public Runtime(RuntimeOptions options = null)
        {
            options = options ?? new RuntimeOptions();
            var desc = default(moe_runtime_desc);
            var allocator = default(moe_allocator);
            Hooks = new Hooks(options);
            var kept = Hooks.Keep(Hooks);
            try
            {
                using (var memory = new CallMemory())
                {
                    desc.struct_size = (uint)sizeof(moe_runtime_desc);
                    desc.n_threads = options.NThreads;
                    desc.log_level = options.LogLevel;
                    desc.cublaslt_path = memory.OptionalText(options.CublasltPath);
                    desc.nccl_path = memory.OptionalText(options.NcclPath);
                    Hooks.Set(ref desc, &allocator);
                    Library.Native.moe_runtime_create(&desc, out handle);
                }
            }
            catch
            {
                kept.Dispose();
                throw;
            }
            handle.Keep(kept);
        }

        internal Hooks Hooks { get; }

        /// <summary>True from Dispose on.</summary>
        public bool IsClosed => handle.IsDisposed;

        public void Dispose() => handle.Dispose();

        internal static RuntimeHandle HandleOf(Runtime runtime)
        {
            if (runtime == null)
                return RuntimeHandle.Default;
            return !runtime.IsClosed ? runtime.handle : throw new ObjectDisposedException(nameof(Runtime));
        }
    }

    /// <summary>moe_device_info.</summary>
    public sealed unsafe class DeviceInfo
    {
        private DeviceInfo(moe_device_info from)
        {
            Kind = from.kind;
            Index = from.index;
            NCores = from.n_cores;
            MemoryBytes = from.memory_bytes;
            ArchMajor = from.arch_major;
            ArchMinor = from.arch_minor;
            Name = Utf8.Read((IntPtr)from.name);
            Features = Utf8.Read((IntPtr)from.features);
        }

        public DeviceKind Kind { get; }

        public int Index { get; }

        /// <summary>CPU: cores this process may use; CUDA: multiprocessors.</summary>
        public int NCores { get; }

        public ulong MemoryBytes { get; }

        /// <summary>CUDA: compute capability.</summary>
        public int ArchMajor { get; }

        public int ArchMinor { get; }

        public string Name { get; }

        /// <summary>CPU: "avx2 fma f16c ...".</summary>
        public string Features { get; }

        /// <summary>How many devices of a kind there are.</summary>
        public static int Count(DeviceKind kind)
        {
            Library.Native.moe_device_count(kind, out var count);
            return count;
        }

        public static DeviceInfo Of(DeviceKind kind, int index = 0)
        {
            var info = default(moe_device_info);
            info.struct_size = (uint)sizeof(moe_device_info);
            Library.Native.moe_device_get_info(kind, index, &info);
            return new DeviceInfo(info);
        }
    }
}
