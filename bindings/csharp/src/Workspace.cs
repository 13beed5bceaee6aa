using System;

namespace Moe
{
    /// <summary>moe_workspace_desc. Sizes left 0 are what the plan needs at its MaxTokens.</summary>
    public sealed class WorkspaceOptions
    {
        public Runtime Runtime { get; set; }
        public DeviceKind Device { get; set; }
        public int DeviceIndex { get; set; }
        public ulong DeviceBytes { get; set; }

        /// <summary>Zero: from the allocator. Else the caller's until the workspace is disposed.</summary>
        public IntPtr DeviceMemory { get; set; }

        public ulong HostBytes { get; set; }

        /// <summary>Likewise.</summary>
        public IntPtr HostMemory { get; set; }

        public IntPtr Stream { get; set; }
    }

    /// <summary>Scratch: one for each thread or stream that calls at the same time. A second user at once gets
    /// <see cref="Status.Busy"/>.</summary>
    public sealed unsafe class Workspace : IDisposable
    {
        private readonly WorkspaceHandle handle;

        /// <summary>For a plan, or with null of the sizes that the options give.</summary>
        public Workspace(Plan plan, WorkspaceOptions options = null)
        {
            options = options ?? new WorkspaceOptions();
            using (var held = new Lease(plan?.Open))
            {
                var desc = default(moe_workspace_desc);
                desc.struct_size = (uint)sizeof(moe_workspace_desc);
                desc.device = options.Device;
                desc.device_index = options.DeviceIndex;
                desc.plan = held.Pointer;
                desc.device_bytes = options.DeviceBytes;
                desc.device_memory = options.DeviceMemory;
                desc.host_bytes = options.HostBytes;
                desc.host_memory = options.HostMemory;
                desc.stream = options.Stream;
                Library.Native.moe_workspace_create(Runtime.HandleOf(options.Runtime), &desc, out handle);
            }
            handle.Keep(Hooks.Keep(options.Runtime?.Hooks));
            handle.Keep(Hooks.Keep(plan?.Hooks));
        }

        private WorkspaceHandle Open => !IsClosed ? handle : throw new ObjectDisposedException(nameof(Workspace));

        internal static WorkspaceHandle HandleOf(Workspace workspace)
        {
            return workspace != null ? workspace.Open : throw new ArgumentNullException(nameof(workspace));
        }

        /// <summary>True from Dispose on.</summary>
        public bool IsClosed => handle.IsDisposed;

        public void Dispose() => handle.Dispose();

        /// <summary>What went wrong at run time in calls that have finished, and how many slots or rows were skipped. It is
        /// then forgotten.</summary>
        public (Faults Faults, long NSkipped) TakeFaults()
        {
            var found = default(moe_workspace_faults);
            found.struct_size = (uint)sizeof(moe_workspace_faults);
            Library.Native.moe_workspace_status(Open, &found);
            return ((Faults)found.faults, found.n_skipped);
        }
    }
}
