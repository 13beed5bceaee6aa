// Written by generate.py from include/moe/moe.h; change those.
using System;
using System.Runtime.CompilerServices;

namespace Moe
{
    /// <summary>The functions with failures thrown. Library.Native is the only way to one: the library is loaded
    /// before any of these methods is compiled, which is when Mono binds what it imports; so none may be
    /// inlined.</summary>
    internal sealed unsafe class Native
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public uint moe_version()
        {
            return Imports.moe_version();
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public uint moe_abi_version()
        {
            return Imports.moe_abi_version();
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public IntPtr moe_version_string()
        {
            return Imports.moe_version_string();
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public IntPtr moe_build_info()
        {
            return Imports.moe_build_info();
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public IntPtr moe_status_name(Status status)
        {
            return Imports.moe_status_name(status);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public IntPtr moe_role_name(Role role)
        {
            return Imports.moe_role_name(role);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public IntPtr moe_type_name(ElementType type)
        {
            return Imports.moe_type_name(type);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_runtime_create(moe_runtime_desc* desc, out RuntimeHandle out_runtime)
        {
            MoeException.Check("moe_runtime_create", Imports.moe_runtime_create(desc, out out_runtime));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_device_count(DeviceKind kind, out int out_count)
        {
            MoeException.Check("moe_device_count", Imports.moe_device_count(kind, out out_count));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_device_get_info(DeviceKind kind, int index, moe_device_info* out_info)
        {
            MoeException.Check("moe_device_get_info", Imports.moe_device_get_info(kind, index, out_info));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_memory_allocate(RuntimeHandle runtime, DeviceKind kind, int index, Space space, ulong bytes,
            IntPtr out_memory)
        {
            MoeException.Check("moe_memory_allocate", Imports.moe_memory_allocate(runtime, kind, index, space, bytes,
                out_memory));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_memory_free(RuntimeHandle runtime, DeviceKind kind, int index, Space space, ulong bytes,
            IntPtr memory)
        {
            MoeException.Check("moe_memory_free", Imports.moe_memory_free(runtime, kind, index, space, bytes, memory));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_memory_copy(DeviceKind kind, int index, IntPtr to, IntPtr from, ulong bytes, IntPtr stream)
        {
            MoeException.Check("moe_memory_copy", Imports.moe_memory_copy(kind, index, to, from, bytes, stream));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_memory_zero(DeviceKind kind, int index, IntPtr memory, ulong bytes, IntPtr stream)
        {
            MoeException.Check("moe_memory_zero", Imports.moe_memory_zero(kind, index, memory, bytes, stream));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_stream_create(DeviceKind kind, int index, IntPtr out_stream)
        {
            MoeException.Check("moe_stream_create", Imports.moe_stream_create(kind, index, out_stream));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_stream_synchronize(DeviceKind kind, int index, IntPtr stream)
        {
            MoeException.Check("moe_stream_synchronize", Imports.moe_stream_synchronize(kind, index, stream));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_stream_destroy(DeviceKind kind, int index, IntPtr stream)
        {
            MoeException.Check("moe_stream_destroy", Imports.moe_stream_destroy(kind, index, stream));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_layer_validate(moe_layer_desc* layer)
        {
            MoeException.Check("moe_layer_validate", Imports.moe_layer_validate(layer));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public IntPtr moe_format_name_at(uint index)
        {
            return Imports.moe_format_name_at(index);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_format_by_name(IntPtr name, moe_format* out_format)
        {
            MoeException.Check("moe_format_by_name", Imports.moe_format_by_name(name, out_format));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_format_get_info(moe_format* format, moe_format_info* out_info)
        {
            MoeException.Check("moe_format_get_info", Imports.moe_format_get_info(format, out_info));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_format_size(moe_format* format, long rows, long columns, out ulong out_data_bytes,
            out ulong out_scale_bytes)
        {
            MoeException.Check("moe_format_size", Imports.moe_format_size(format, rows, columns, out out_data_bytes,
                out out_scale_bytes));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_plan_create(RuntimeHandle runtime, moe_plan_desc* desc, out PlanHandle out_plan)
        {
            MoeException.Check("moe_plan_create", Imports.moe_plan_create(runtime, desc, out out_plan));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_supports(RuntimeHandle runtime, moe_plan_desc* desc)
        {
            MoeException.Check("moe_supports", Imports.moe_supports(runtime, desc));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_plan_key(RuntimeHandle runtime, moe_plan_desc* desc, byte* out_key)
        {
            MoeException.Check("moe_plan_key", Imports.moe_plan_key(runtime, desc, out_key));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_plan_layout_id(PlanHandle plan, byte* out_id)
        {
            MoeException.Check("moe_plan_layout_id", Imports.moe_plan_layout_id(plan, out_id));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_plan_device(PlanHandle plan, out DeviceKind out_kind, out int out_index, out IntPtr out_reason)
        {
            MoeException.Check("moe_plan_device", Imports.moe_plan_device(plan, out out_kind, out out_index,
                out out_reason));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_plan_workspace_size(PlanHandle plan, long n_tokens, moe_workspace_need* out_need)
        {
            MoeException.Check("moe_plan_workspace_size", Imports.moe_plan_workspace_size(plan, n_tokens, out_need));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_plan_kernel(PlanHandle plan, Stage stage, long n_tokens, out IntPtr out_name)
        {
            MoeException.Check("moe_plan_kernel", Imports.moe_plan_kernel(plan, stage, n_tokens, out out_name));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_candidates(PlanHandle plan, uint index, moe_candidate* out_candidate)
        {
            MoeException.Check("moe_candidates", Imports.moe_candidates(plan, index, out_candidate));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_plan_explain(PlanHandle plan, ExplainForm form, IntPtr buffer, ulong capacity,
            out ulong out_size)
        {
            MoeException.Check("moe_plan_explain", Imports.moe_plan_explain(plan, form, buffer, capacity,
                out out_size));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_weights_size(PlanHandle plan, moe_weights_desc* desc, out ulong out_bytes)
        {
            MoeException.Check("moe_weights_size", Imports.moe_weights_size(plan, desc, out out_bytes));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_weights_load(PlanHandle plan, moe_weights_desc* desc, out WeightsHandle out_weights)
        {
            MoeException.Check("moe_weights_load", Imports.moe_weights_load(plan, desc, out out_weights));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_weights_update(WeightsHandle weights, moe_tensor* tensor, IntPtr stream)
        {
            MoeException.Check("moe_weights_update", Imports.moe_weights_update(weights, tensor, stream));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_weights_layout_id(WeightsHandle weights, byte* out_id)
        {
            MoeException.Check("moe_weights_layout_id", Imports.moe_weights_layout_id(weights, out_id));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_weights_memory(WeightsHandle weights, moe_memory_report* out_report)
        {
            MoeException.Check("moe_weights_memory", Imports.moe_weights_memory(weights, out_report));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_weights_save(WeightsHandle weights, IntPtr path)
        {
            MoeException.Check("moe_weights_save", Imports.moe_weights_save(weights, path));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_weights_open(PlanHandle plan, IntPtr path, out WeightsHandle out_weights)
        {
            MoeException.Check("moe_weights_open", Imports.moe_weights_open(plan, path, out out_weights));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_workspace_create(RuntimeHandle runtime, moe_workspace_desc* desc,
            out WorkspaceHandle out_workspace)
        {
            MoeException.Check("moe_workspace_create", Imports.moe_workspace_create(runtime, desc, out out_workspace));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_workspace_status(WorkspaceHandle workspace, moe_workspace_faults* out_faults)
        {
            MoeException.Check("moe_workspace_status", Imports.moe_workspace_status(workspace, out_faults));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_forward(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_forward_args* args)
        {
            MoeException.Check("moe_forward", Imports.moe_forward(plan, weights, workspace, args));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_forward_spmd(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_forward_args* args, int thread_index, int n_threads)
        {
            MoeException.Check("moe_forward_spmd", Imports.moe_forward_spmd(plan, weights, workspace, args,
                thread_index, n_threads));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_route(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace, moe_route_args* args)
        {
            MoeException.Check("moe_route", Imports.moe_route(plan, weights, workspace, args));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_dispatch(PlanHandle plan, WorkspaceHandle workspace, moe_dispatch_args* args)
        {
            MoeException.Check("moe_dispatch", Imports.moe_dispatch(plan, workspace, args));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_gather(PlanHandle plan, WorkspaceHandle workspace, moe_gather_args* args)
        {
            MoeException.Check("moe_gather", Imports.moe_gather(plan, workspace, args));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_experts(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_experts_args* args)
        {
            MoeException.Check("moe_experts", Imports.moe_experts(plan, weights, workspace, args));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_combine(PlanHandle plan, WorkspaceHandle workspace, moe_combine_args* args)
        {
            MoeException.Check("moe_combine", Imports.moe_combine(plan, workspace, args));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_finish(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace, moe_finish_args* args)
        {
            MoeException.Check("moe_finish", Imports.moe_finish(plan, weights, workspace, args));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_checkpoint_open(RuntimeHandle runtime, IntPtr path, moe_checkpoint_options* options,
            out CheckpointHandle out_checkpoint)
        {
            MoeException.Check("moe_checkpoint_open", Imports.moe_checkpoint_open(runtime, path, options,
                out out_checkpoint));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_checkpoint_get_info(CheckpointHandle checkpoint, moe_checkpoint_info* out_info)
        {
            MoeException.Check("moe_checkpoint_get_info", Imports.moe_checkpoint_get_info(checkpoint, out_info));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public IntPtr moe_checkpoint_family_at(uint index)
        {
            return Imports.moe_checkpoint_family_at(index);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_checkpoint_layer_at(CheckpointHandle checkpoint, int index, out int out_layer)
        {
            MoeException.Check("moe_checkpoint_layer_at", Imports.moe_checkpoint_layer_at(checkpoint, index,
                out out_layer));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_checkpoint_layer(CheckpointHandle checkpoint, int layer, moe_layer_desc* out_desc)
        {
            MoeException.Check("moe_checkpoint_layer", Imports.moe_checkpoint_layer(checkpoint, layer, out_desc));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_checkpoint_formats(CheckpointHandle checkpoint, int layer, moe_format** out_formats,
            uint n_formats)
        {
            MoeException.Check("moe_checkpoint_formats", Imports.moe_checkpoint_formats(checkpoint, layer, out_formats,
                n_formats));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_checkpoint_tensor(CheckpointHandle checkpoint, int layer, uint index, moe_tensor* out_tensor,
            moe_format* out_format)
        {
            MoeException.Check("moe_checkpoint_tensor", Imports.moe_checkpoint_tensor(checkpoint, layer, index,
                out_tensor, out_format));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_weights_load_checkpoint(PlanHandle plan, CheckpointHandle checkpoint, int layer,
            moe_load_options* options, out WeightsHandle out_weights)
        {
            MoeException.Check("moe_weights_load_checkpoint", Imports.moe_weights_load_checkpoint(plan, checkpoint,
                layer, options, out out_weights));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_loading_start(PlanHandle plan, moe_weights_desc* desc, out LoadingHandle out_loading)
        {
            MoeException.Check("moe_loading_start", Imports.moe_loading_start(plan, desc, out out_loading));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_loading_start_checkpoint(PlanHandle plan, CheckpointHandle checkpoint, int layer,
            moe_load_options* options, out LoadingHandle out_loading)
        {
            MoeException.Check("moe_loading_start_checkpoint", Imports.moe_loading_start_checkpoint(plan, checkpoint,
                layer, options, out out_loading));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_loading_poll(LoadingHandle loading, moe_loading_progress* out_progress)
        {
            MoeException.Check("moe_loading_poll", Imports.moe_loading_poll(loading, out_progress));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_loading_wait(LoadingHandle loading, out WeightsHandle out_weights)
        {
            MoeException.Check("moe_loading_wait", Imports.moe_loading_wait(loading, out out_weights));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_loading_cancel(LoadingHandle loading)
        {
            MoeException.Check("moe_loading_cancel", Imports.moe_loading_cancel(loading));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_quantize(moe_quantize_args* args)
        {
            MoeException.Check("moe_quantize", Imports.moe_quantize(args));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_dequantize(moe_tensor* tensor, long expert, IntPtr @out, ulong out_elements)
        {
            MoeException.Check("moe_dequantize", Imports.moe_dequantize(tensor, expert, @out, out_elements));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_scale_layout_size(ScaleLayout layout, long rows, long columns, out ulong out_bytes)
        {
            MoeException.Check("moe_scale_layout_size", Imports.moe_scale_layout_size(layout, rows, columns,
                out out_bytes));
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void moe_convert_scales(moe_convert_scales_args* args)
        {
            MoeException.Check("moe_convert_scales", Imports.moe_convert_scales(args));
        }
    }
}
