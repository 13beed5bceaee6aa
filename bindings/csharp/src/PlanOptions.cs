using System;
using System.Collections.Generic;

namespace Moe
{
    /// <summary>The part of a layer that a plan computes; one needs <see cref="PlanOptions.Partial"/>. A range that is null
    /// leaves its dimension whole.</summary>
    public sealed unsafe class Slice
    {
        public (int Begin, int Count)? Experts { get; set; }

        /// <summary>Instead of a range: local index or -1 for every expert.</summary>
        public int[] ExpertToLocal { get; set; }

        public (int Begin, int Count)? Intermediate { get; set; }
        public (int Begin, int Count)? Shared { get; set; }

        internal IntPtr ToNative(CallMemory memory)
        {
            var made = (moe_slice*)memory.Allocate(sizeof(moe_slice));
            made->struct_size = (uint)sizeof(moe_slice);
            made->has_expert_range = Experts.HasValue ? 1 : 0;
            made->expert_begin = Experts?.Begin ?? 0;
            made->expert_count = Experts?.Count ?? 0;
            made->expert_to_local = memory.Address(ExpertToLocal);
            made->n_expert_to_local = ExpertToLocal?.Length ?? 0;
            made->has_intermediate_range = Intermediate.HasValue ? 1 : 0;
            made->intermediate_begin = Intermediate?.Begin ?? 0;
            made->intermediate_count = Intermediate?.Count ?? 0;
            made->has_shared_range = Shared.HasValue ? 1 : 0;
            made->shared_begin = Shared?.Begin ?? 0;
            made->shared_count = Shared?.Count ?? 0;
            return (IntPtr)made;
        }
    }

    /// <summary>moe_plan_desc. XType and MaxTokens are required, and a Layer with Formats or a Checkpoint.</summary>
    public sealed unsafe class PlanOptions
    {
        public Runtime Runtime { get; set; }
        public DeviceKind Device { get; set; }
        public int DeviceIndex { get; set; }
        public ElementType XType { get; set; }
        public ElementType RouterInputType { get; set; }
        public ElementType OutType { get; set; }
        public ElementType IntermediateType { get; set; }
        public Stage Stages { get; set; }
        public Checkpoint Checkpoint { get; set; }
        public int CheckpointLayer { get; set; }
        public LayerDesc Layer { get; set; }
        public IDictionary<Role, Format> Formats { get; set; }
        public bool Partial { get; set; }
        public Slice Slice { get; set; }
        public long MaxTokens { get; set; }
        public ulong MaxWorkspaceBytes { get; set; }
        public Residency Residency { get; set; }
        public ActivationQuantization ActivationQuantization { get; set; }
        public bool BatchInvariant { get; set; }
        public bool Unfused { get; set; }
        public string KernelFilter { get; set; }
        public string TuningPath { get; set; }

        internal PlanOptions Copy() => (PlanOptions)MemberwiseClone();

        internal delegate void DescFunction(RuntimeHandle runtime, moe_plan_desc* desc);

        /// <summary>Calls a function with the description; the checkpoint is held open for it.</summary>
        internal void With(DescFunction run)
        {
            using (var memory = new CallMemory())
            using (var checkpoint = new Lease(Checkpoint?.Open))
            {
                var desc = default(moe_plan_desc);
                desc.struct_size = (uint)sizeof(moe_plan_desc);
                desc.checkpoint = checkpoint.Pointer;
                SetScalars(ref desc);
                desc.kernel_filter = memory.OptionalText(KernelFilter);
                desc.tuning_path = memory.OptionalText(TuningPath);
                var layer = default(moe_layer_desc);
                if (Layer != null)
                {
                    layer = Layer.ToNative();
                    desc.layer = (IntPtr)(&layer);
                }
                if (Slice != null)
                    desc.slice = Slice.ToNative(memory);
                if (Formats != null && Formats.Count > 0)
                    SetFormats(ref desc, memory);
                run(Runtime.HandleOf(Runtime), &desc);
            }
        }

        private void SetScalars(ref moe_plan_desc desc)
        {
            desc.device = Device;
            desc.device_index = DeviceIndex;
            desc.x_type = XType;
            desc.router_input_type = RouterInputType;
            desc.out_type = OutType;
            desc.intermediate_type = IntermediateType;
            desc.stages = (uint)Stages;
            desc.checkpoint_layer = CheckpointLayer;
            desc.partial = Partial ? 1 : 0;
            desc.max_tokens = MaxTokens;
            desc.max_workspace_bytes = MaxWorkspaceBytes;
            desc.residency = Residency;
            desc.activation_quantization = ActivationQuantization;
            desc.batch_invariant = BatchInvariant ? 1 : 0;
            desc.unfused = Unfused ? 1 : 0;
        }

        private void SetFormats(ref moe_plan_desc desc, CallMemory memory)
        {
            var count = 0;
            foreach (var one in Formats)
            {
                if (one.Key < 0 || (int)one.Key >= 4096)
                    throw new ArgumentException($"{one.Key} is no role", "Formats");
                count = Math.Max(count, (int)one.Key + 1);
            }
            var pointers = (IntPtr*)memory.Allocate(count * sizeof(IntPtr));
            foreach (var one in Formats)
                pointers[(int)one.Key] = memory.Put(one.Value);
            desc.formats = (IntPtr)pointers;
            desc.n_formats = (uint)count;
        }
    }
}
