using System;
using System.Collections.Generic;
using System.Threading;

namespace Moe
{
    /// <summary>How weights are loaded. Under <see cref="Ownership.Borrow"/> the matrices are read where they lie until the
    /// weights are disposed; arrays are pinned as long.</summary>
    public sealed class LoadOptions
    {
        public Ownership Ownership { get; set; }

        /// <summary>For <see cref="Ownership.Caller"/>: takes the bytes.</summary>
        public Values Memory { get; set; }

        /// <summary>Of Memory that is an address.</summary>
        public Space MemorySpace { get; set; }

        public IntPtr Stream { get; set; }
        public LoadProgress Progress { get; set; }

        /// <summary>Cancels the load: <see cref="OperationCanceledException"/>.</summary>
        public CancellationToken Cancellation { get; set; }
    }

    /// <summary>moe_memory_report.</summary>
    public sealed unsafe class MemoryReport
    {
        internal MemoryReport(moe_memory_report from)
        {
            NLocalExperts = from.n_local_experts;
            HostBytes = from.host_bytes;
            PinnedBytes = from.pinned_bytes;
            DeviceBytes = from.device_bytes;
            BorrowedBytes = from.borrowed_bytes;
            BookkeepingBytes = from.bookkeeping_bytes;
            var roles = new Dictionary<Role, ulong>();
            for (var role = 0; role < Header.RoleCount; role++)
                if (from.role_bytes[role] != 0)
                    roles[(Role)role] = from.role_bytes[role];
            RoleBytes = roles;
        }

        public uint NLocalExperts { get; }
        public ulong HostBytes { get; }
        public ulong PinnedBytes { get; }
        public ulong DeviceBytes { get; }
        public ulong BorrowedBytes { get; }
        public ulong BookkeepingBytes { get; }
        public IReadOnlyDictionary<Role, ulong> RoleBytes { get; }
    }

    /// <summary>The tensors of one layer in a plan's layout. They refer to no plan. Any number of threads may use them, but
    /// not while <see cref="Update"/> runs.</summary>
    public sealed unsafe class Weights : IDisposable
    {
        private readonly WeightsHandle handle;
        private readonly bool borrows;
        private readonly Updates updates = new Updates();

        private Weights(WeightsHandle handle, LoadOptions options, IDisposable memory, params Hooks[] hooks)
        {
            this.handle = handle;
            borrows = options.Ownership == Ownership.Borrow;
            foreach (var one in hooks)
                handle.Keep(Hooks.Keep(one));
            handle.Keep(updates);
            if (options.Ownership == Ownership.Copy)
                memory.Dispose();
            else
                handle.Keep(memory);
        }

        private WeightsHandle OpenHandle => !IsClosed ? handle : throw new ObjectDisposedException(nameof(Weights));

        internal static WeightsHandle HandleOf(Weights weights)
        {
            return weights != null ? weights.OpenHandle : throw new ArgumentNullException(nameof(weights));
        }

        /// <summary>True from Dispose on.</summary>
        public bool IsClosed => handle.IsDisposed;

        public void Dispose() => handle.Dispose();

        /// <summary>One layer of a checkpoint, only the bytes that the plan needs.</summary>
        public static Weights Load(Plan plan, Checkpoint checkpoint, int layer, LoadOptions options = null)
        {
            options = options ?? new LoadOptions();
            var kept = new CallMemory();
            WeightsHandle made = null;
            try
            {
                using (var progress = new ProgressHook(options))
                {
                    var desc = default(moe_load_options);
                    desc.struct_size = (uint)sizeof(moe_load_options);
                    desc.ownership = options.Ownership;
                    desc.memory = kept.Address(options.Memory);
                    desc.memory_bytes = (ulong)(options.Memory?.Bytes ?? 0);
                    desc.stream = options.Stream;
                    desc.progress = progress.Function;
                    desc.progress_user_data = progress.User;
                    var at = (IntPtr)(&desc);
                    progress.Run(() => Library.Native.moe_weights_load_checkpoint(plan.Open, checkpoint.Open, layer,
                        (moe_load_options*)at, out made));
                }
            }
            catch
            {
                kept.Dispose();
                throw;
            }
            return new Weights(made, options, kept, plan.Hooks, checkpoint.Hooks);
        }

        /// <summary>Tensors given by hand.</summary>
        public static Weights Load(Plan plan, IReadOnlyList<Tensor> tensors, LoadOptions options = null)
        {
            options = options ?? new LoadOptions();
            var kept = new Together();
            WeightsHandle made = null;
            try
            {
                using (var progress = new ProgressHook(options))
                {
                    var desc = Describe(tensors, options, kept);
                    desc.progress = progress.Function;
                    desc.progress_user_data = progress.User;
                    var at = (IntPtr)(&desc);
                    progress.Run(() => Library.Native.moe_weights_load(plan.Open, (moe_weights_desc*)at, out made));
                }
            }
            catch
            {
                kept.Dispose();
                throw;
            }
            return new Weights(made, options, kept, plan.Hooks);
        }

        /// <summary>Bytes of memory that the tensors take under <see cref="Ownership.Copy"/> and
        /// <see cref="Ownership.Caller"/>.</summary>
        public static ulong Size(Plan plan, IReadOnlyList<Tensor> tensors)
        {
            var kept = new Together();
            try
            {
                var desc = Describe(tensors, new LoadOptions(), kept);
                Library.Native.moe_weights_size(plan.Open, &desc, out var bytes);
                return bytes;
            }
            finally
            {
                kept.Dispose();
            }
        }

        /// <summary>The description; what it points to, and the checkpoints the tensors lie in, are held by kept.</summary>
        private static moe_weights_desc Describe(IReadOnlyList<Tensor> tensors, LoadOptions options, Together kept)
        {
            var memory = new CallMemory();
            kept.Add(memory);
            var desc = default(moe_weights_desc);
            desc.struct_size = (uint)sizeof(moe_weights_desc);
            desc.ownership = options.Ownership;
            var pointers = (IntPtr*)memory.Allocate(checked(tensors.Count * sizeof(IntPtr)));
            for (var i = 0; i < tensors.Count; i++)
            {
                if (tensors[i] == null)
                    throw new ArgumentException($"tensors[{i}] is null", nameof(tensors));
                kept.Add(new Lease(tensors[i].Owner));
                pointers[i] = tensors[i].ToNative(memory);
            }
            desc.tensors = (IntPtr)pointers;
            desc.n_tensors = (uint)tensors.Count;
            desc.memory = memory.Address(options.Memory);
            desc.memory_bytes = (ulong)(options.Memory?.Bytes ?? 0);
            desc.memory_space = options.MemorySpace;
            desc.stream = options.Stream;
            return desc;
        }

        /// <summary>Replaces the tensor of one expert, or of a role without experts. No forward may be running on the
        /// CPU.</summary>
        public void Update(Tensor tensor, IntPtr stream = default(IntPtr))
        {
            var kept = new Together();
            try
            {
                var memory = new CallMemory();
                kept.Add(memory);
                kept.Add(new Lease(tensor.Owner));
                Library.Native.moe_weights_update(OpenHandle, (moe_tensor*)tensor.ToNative(memory), stream);
                if (borrows)
                    kept = updates.Hold(tensor, kept);
            }
            finally
            {
                kept.Dispose();
            }
        }

        /// <summary>What updates of borrowed weights lie in, until another update of the same place or the end.</summary>
        private sealed class Updates : IDisposable
        {
            private readonly Dictionary<(Role, int), Together> held = new Dictionary<(Role, int), Together>();

            /// <summary>What is not needed any more.</summary>
            public Together Hold(Tensor tensor, Together memory)
            {
                lock (held)
                {
                    var place = (tensor.Role, tensor.Expert);
                    held.TryGetValue(place, out var before);
                    held[place] = memory;
                    return before ?? new Together();
                }
            }

            public void Dispose()
            {
                lock (held)
                    foreach (var one in held.Values)
                        one.Dispose();
            }
        }

        /// <summary>16 bytes, equal for weights and plans that go together.</summary>
        public byte[] LayoutId()
        {
            var id = new byte[16];
            fixed (byte* bytes = id)
                Library.Native.moe_weights_layout_id(OpenHandle, bytes);
            return id;
        }

        /// <summary>Where the bytes are.</summary>
        public MemoryReport Memory()
        {
            var report = default(moe_memory_report);
            report.struct_size = (uint)sizeof(moe_memory_report);
            Library.Native.moe_weights_memory(OpenHandle, &report);
            return new MemoryReport(report);
        }

        /// <summary>Writes packed weights to a file.</summary>
        public void Save(string path)
        {
            using (var memory = new CallMemory())
                Library.Native.moe_weights_save(OpenHandle, memory.Text(path));
        }

        /// <summary>Reads packed weights from a file that <see cref="Save"/> wrote.</summary>
        public static Weights Open(Plan plan, string path)
        {
            using (var memory = new CallMemory())
            {
                Library.Native.moe_weights_open(plan.Open, memory.Text(path), out var made);
                return new Weights(made, new LoadOptions(), memory, plan.Hooks);
            }
        }
    }
}
