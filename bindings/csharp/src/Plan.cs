using System;
using System.Collections.Generic;

namespace Moe
{
    /// <summary>The device of a plan, and why that.</summary>
    public sealed class PlanDevice
    {
        internal PlanDevice(DeviceKind kind, int index, string reason)
        {
            Kind = kind;
            Index = index;
            Reason = reason;
        }

        public DeviceKind Kind { get; }
        public int Index { get; }
        public string Reason { get; }
    }

    /// <summary>moe_workspace_need.</summary>
    public sealed class WorkspaceNeed
    {
        internal WorkspaceNeed(moe_workspace_need from)
        {
            DeviceBytes = from.device_bytes;
            HostBytes = from.host_bytes;
            Alignment = from.alignment;
        }

        public ulong DeviceBytes { get; }
        public ulong HostBytes { get; }
        public ulong Alignment { get; }
    }

    /// <summary>moe_candidate: a kernel that was looked at.</summary>
    public sealed class Candidate
    {
        internal Candidate(moe_candidate from)
        {
            Stage = from.stage;
            IsChosen = from.chosen != 0;
            IsApplicable = from.applicable != 0;
            Kernel = Utf8.Read(from.kernel);
            ReasonCode = Utf8.Read(from.reason_code);
            Reason = Utf8.Read(from.reason);
        }

        public Stage Stage { get; }
        public bool IsChosen { get; }
        public bool IsApplicable { get; }
        public string Kernel { get; }
        public string ReasonCode { get; }
        public string Reason { get; }
    }

    /// <summary>Every decision about a layer, made once. Any number of threads may use one, each with a workspace of its own.
    /// Disposing it while calls are inside takes effect when the last of them returns.</summary>
    public sealed unsafe partial class Plan : IDisposable
    {
        private readonly PlanHandle handle;
        private readonly Lazy<Shape> shape;

        /// <summary>Validates and chooses. Nothing of the options is referred to afterwards.</summary>
        public Plan(PlanOptions options)
        {
            PlanHandle made = null;
            options.With((runtime, desc) => Library.Native.moe_plan_create(runtime, desc, out made));
            handle = made;
            Hooks = options.Runtime?.Hooks;
            handle.Keep(Hooks.Keep(Hooks));
            shape = new Lazy<Shape>(() => new Shape(Explain(ExplainForm.Json)));
        }

        internal Hooks Hooks { get; }

        internal PlanHandle Open => !IsClosed ? handle : throw new ObjectDisposedException(nameof(Plan));

        /// <summary>True from Dispose on.</summary>
        public bool IsClosed => handle.IsDisposed;

        public void Dispose() => handle.Dispose();

        /// <summary>Throws what a plan of these options would throw, and makes nothing.</summary>
        public static void CheckSupport(PlanOptions options)
        {
            options.With((runtime, desc) => Library.Native.moe_supports(runtime, desc));
        }

        /// <summary>16 bytes, equal for options that make equal plans, so that layers may share one.</summary>
        public static byte[] KeyOf(PlanOptions options)
        {
            var key = new byte[16];
            options.With((runtime, desc) =>
            {
                fixed (byte* bytes = key)
                    Library.Native.moe_plan_key(runtime, desc, bytes);
            });
            return key;
        }

        /// <summary>16 bytes, equal for plans and weights that go together.</summary>
        public byte[] LayoutId()
        {
            var id = new byte[16];
            fixed (byte* bytes = id)
                Library.Native.moe_plan_layout_id(Open, bytes);
            return id;
        }

        public PlanDevice Device()
        {
            Library.Native.moe_plan_device(Open, out var kind, out var index, out var reason);
            return new PlanDevice(kind, index, Utf8.Read(reason));
        }

        /// <summary>The scratch that calls with up to nTokens tokens need.</summary>
        public WorkspaceNeed WorkspaceSize(long nTokens)
        {
            var need = default(moe_workspace_need);
            need.struct_size = (uint)sizeof(moe_workspace_need);
            Library.Native.moe_plan_workspace_size(Open, nTokens, &need);
            return new WorkspaceNeed(need);
        }

        /// <summary>The kernel that runs a stage for nTokens tokens.</summary>
        public string Kernel(Stage stage, long nTokens)
        {
            Library.Native.moe_plan_kernel(Open, stage, nTokens, out var name);
            return Utf8.Read(name);
        }

        /// <summary>Best first within a stage, stages in order.</summary>
        public IReadOnlyList<Candidate> Candidates()
        {
            var found = new List<Candidate>();
            while (true)
            {
                var one = default(moe_candidate);
                one.struct_size = (uint)sizeof(moe_candidate);
                try
                {
                    Library.Native.moe_candidates(Open, (uint)found.Count, &one);
                }
                catch (MoeException end) when (end.Status == Status.NotFound)
                {
                    return found;
                }
                found.Add(new Candidate(one));
            }
        }

        /// <summary>Facts about the plan, as text or as JSON (docs/explain.schema.json).</summary>
        public string Explain(ExplainForm form = ExplainForm.Text)
        {
            Library.Native.moe_plan_explain(Open, form, IntPtr.Zero, 0, out var size);
            using (var memory = new CallMemory())
            {
                var buffer = memory.Allocate(checked((int)size));
                Library.Native.moe_plan_explain(Open, form, buffer, size, out size);
                return Utf8.Read(buffer);
            }
        }

        /// <summary>Read from the explanation, once.</summary>
        public Shape Shape => shape.Value;
    }
}
