// Written by generate.py from include/moe/moe.h; change those.
using System;
using System.Runtime.InteropServices;

namespace Moe
{
    /// <summary>The functions as they are. The library must be open.</summary>
    internal static unsafe partial class Imports
    {
        /// <summary>All of them, in the order of moe.h.</summary>
        public static readonly string[] Names =
        {
            "moe_version",
            "moe_abi_version",
            "moe_version_string",
            "moe_build_info",
            "moe_status_name",
            "moe_last_error",
            "moe_last_error_copy",
            "moe_role_name",
            "moe_type_name",
            "moe_runtime_create",
            "moe_runtime_destroy",
            "moe_device_count",
            "moe_device_get_info",
            "moe_memory_allocate",
            "moe_memory_free",
            "moe_memory_copy",
            "moe_memory_zero",
            "moe_stream_create",
            "moe_stream_synchronize",
            "moe_stream_destroy",
            "moe_layer_validate",
            "moe_format_name_at",
            "moe_format_by_name",
            "moe_format_get_info",
            "moe_format_size",
            "moe_plan_create",
            "moe_plan_destroy",
            "moe_supports",
            "moe_plan_key",
            "moe_plan_layout_id",
            "moe_plan_device",
            "moe_plan_workspace_size",
            "moe_plan_kernel",
            "moe_candidates",
            "moe_plan_explain",
            "moe_weights_size",
            "moe_weights_load",
            "moe_weights_destroy",
            "moe_weights_update",
            "moe_weights_layout_id",
            "moe_weights_memory",
            "moe_weights_save",
            "moe_weights_open",
            "moe_workspace_create",
            "moe_workspace_destroy",
            "moe_workspace_status",
            "moe_forward",
            "moe_forward_spmd",
            "moe_route",
            "moe_dispatch",
            "moe_gather",
            "moe_experts",
            "moe_combine",
            "moe_finish",
            "moe_checkpoint_open",
            "moe_checkpoint_destroy",
            "moe_checkpoint_get_info",
            "moe_checkpoint_family_at",
            "moe_checkpoint_layer_at",
            "moe_checkpoint_layer",
            "moe_checkpoint_formats",
            "moe_checkpoint_tensor",
            "moe_weights_load_checkpoint",
            "moe_loading_start",
            "moe_loading_start_checkpoint",
            "moe_loading_poll",
            "moe_loading_wait",
            "moe_loading_cancel",
            "moe_loading_destroy",
            "moe_quantize",
            "moe_dequantize",
            "moe_scale_layout_size",
            "moe_convert_scales",
        };

#if MOE_LIBRARY_IMPORT

        [LibraryImport(Loader.Name)]
        public static partial uint moe_version();

        [LibraryImport(Loader.Name)]
        public static partial uint moe_abi_version();

        [LibraryImport(Loader.Name)]
        public static partial IntPtr moe_version_string();

        [LibraryImport(Loader.Name)]
        public static partial IntPtr moe_build_info();

        [LibraryImport(Loader.Name)]
        public static partial IntPtr moe_status_name(Status status);

        [LibraryImport(Loader.Name)]
        public static partial IntPtr moe_last_error();

        [LibraryImport(Loader.Name)]
        public static partial Status moe_last_error_copy(IntPtr buffer, ulong capacity, out ulong out_size);

        [LibraryImport(Loader.Name)]
        public static partial IntPtr moe_role_name(Role role);

        [LibraryImport(Loader.Name)]
        public static partial IntPtr moe_type_name(ElementType type);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_runtime_create(moe_runtime_desc* desc, out RuntimeHandle out_runtime);

        [LibraryImport(Loader.Name)]
        public static partial void moe_runtime_destroy(IntPtr runtime);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_device_count(DeviceKind kind, out int out_count);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_device_get_info(DeviceKind kind, int index, moe_device_info* out_info);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_memory_allocate(RuntimeHandle runtime, DeviceKind kind, int index, Space space,
            ulong bytes, IntPtr out_memory);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_memory_free(RuntimeHandle runtime, DeviceKind kind, int index, Space space,
            ulong bytes, IntPtr memory);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_memory_copy(DeviceKind kind, int index, IntPtr to, IntPtr from, ulong bytes,
            IntPtr stream);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_memory_zero(DeviceKind kind, int index, IntPtr memory, ulong bytes,
            IntPtr stream);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_stream_create(DeviceKind kind, int index, IntPtr out_stream);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_stream_synchronize(DeviceKind kind, int index, IntPtr stream);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_stream_destroy(DeviceKind kind, int index, IntPtr stream);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_layer_validate(moe_layer_desc* layer);

        [LibraryImport(Loader.Name)]
        public static partial IntPtr moe_format_name_at(uint index);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_format_by_name(IntPtr name, moe_format* out_format);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_format_get_info(moe_format* format, moe_format_info* out_info);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_format_size(moe_format* format, long rows, long columns,
            out ulong out_data_bytes, out ulong out_scale_bytes);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_plan_create(RuntimeHandle runtime, moe_plan_desc* desc,
            out PlanHandle out_plan);

        [LibraryImport(Loader.Name)]
        public static partial void moe_plan_destroy(IntPtr plan);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_supports(RuntimeHandle runtime, moe_plan_desc* desc);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_plan_key(RuntimeHandle runtime, moe_plan_desc* desc, byte* out_key);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_plan_layout_id(PlanHandle plan, byte* out_id);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_plan_device(PlanHandle plan, out DeviceKind out_kind, out int out_index,
            out IntPtr out_reason);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_plan_workspace_size(PlanHandle plan, long n_tokens,
            moe_workspace_need* out_need);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_plan_kernel(PlanHandle plan, Stage stage, long n_tokens, out IntPtr out_name);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_candidates(PlanHandle plan, uint index, moe_candidate* out_candidate);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_plan_explain(PlanHandle plan, ExplainForm form, IntPtr buffer, ulong capacity,
            out ulong out_size);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_weights_size(PlanHandle plan, moe_weights_desc* desc, out ulong out_bytes);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_weights_load(PlanHandle plan, moe_weights_desc* desc,
            out WeightsHandle out_weights);

        [LibraryImport(Loader.Name)]
        public static partial void moe_weights_destroy(IntPtr weights);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_weights_update(WeightsHandle weights, moe_tensor* tensor, IntPtr stream);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_weights_layout_id(WeightsHandle weights, byte* out_id);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_weights_memory(WeightsHandle weights, moe_memory_report* out_report);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_weights_save(WeightsHandle weights, IntPtr path);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_weights_open(PlanHandle plan, IntPtr path, out WeightsHandle out_weights);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_workspace_create(RuntimeHandle runtime, moe_workspace_desc* desc,
            out WorkspaceHandle out_workspace);

        [LibraryImport(Loader.Name)]
        public static partial void moe_workspace_destroy(IntPtr workspace);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_workspace_status(WorkspaceHandle workspace, moe_workspace_faults* out_faults);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_forward(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_forward_args* args);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_forward_spmd(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_forward_args* args, int thread_index, int n_threads);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_route(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_route_args* args);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_dispatch(PlanHandle plan, WorkspaceHandle workspace, moe_dispatch_args* args);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_gather(PlanHandle plan, WorkspaceHandle workspace, moe_gather_args* args);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_experts(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_experts_args* args);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_combine(PlanHandle plan, WorkspaceHandle workspace, moe_combine_args* args);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_finish(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_finish_args* args);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_checkpoint_open(RuntimeHandle runtime, IntPtr path,
            moe_checkpoint_options* options, out CheckpointHandle out_checkpoint);

        [LibraryImport(Loader.Name)]
        public static partial void moe_checkpoint_destroy(IntPtr checkpoint);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_checkpoint_get_info(CheckpointHandle checkpoint,
            moe_checkpoint_info* out_info);

        [LibraryImport(Loader.Name)]
        public static partial IntPtr moe_checkpoint_family_at(uint index);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_checkpoint_layer_at(CheckpointHandle checkpoint, int index, out int out_layer);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_checkpoint_layer(CheckpointHandle checkpoint, int layer,
            moe_layer_desc* out_desc);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_checkpoint_formats(CheckpointHandle checkpoint, int layer,
            moe_format** out_formats, uint n_formats);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_checkpoint_tensor(CheckpointHandle checkpoint, int layer, uint index,
            moe_tensor* out_tensor, moe_format* out_format);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_weights_load_checkpoint(PlanHandle plan, CheckpointHandle checkpoint,
            int layer, moe_load_options* options, out WeightsHandle out_weights);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_loading_start(PlanHandle plan, moe_weights_desc* desc,
            out LoadingHandle out_loading);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_loading_start_checkpoint(PlanHandle plan, CheckpointHandle checkpoint,
            int layer, moe_load_options* options, out LoadingHandle out_loading);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_loading_poll(LoadingHandle loading, moe_loading_progress* out_progress);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_loading_wait(LoadingHandle loading, out WeightsHandle out_weights);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_loading_cancel(LoadingHandle loading);

        [LibraryImport(Loader.Name)]
        public static partial void moe_loading_destroy(IntPtr loading);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_quantize(moe_quantize_args* args);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_dequantize(moe_tensor* tensor, long expert, IntPtr @out, ulong out_elements);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_scale_layout_size(ScaleLayout layout, long rows, long columns,
            out ulong out_bytes);

        [LibraryImport(Loader.Name)]
        public static partial Status moe_convert_scales(moe_convert_scales_args* args);

#else

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern uint moe_version();

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern uint moe_abi_version();

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern IntPtr moe_version_string();

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern IntPtr moe_build_info();

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern IntPtr moe_status_name(Status status);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern IntPtr moe_last_error();

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_last_error_copy(IntPtr buffer, ulong capacity, out ulong out_size);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern IntPtr moe_role_name(Role role);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern IntPtr moe_type_name(ElementType type);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_runtime_create(moe_runtime_desc* desc, out RuntimeHandle out_runtime);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern void moe_runtime_destroy(IntPtr runtime);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_device_count(DeviceKind kind, out int out_count);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_device_get_info(DeviceKind kind, int index, moe_device_info* out_info);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_memory_allocate(RuntimeHandle runtime, DeviceKind kind, int index, Space space,
            ulong bytes, IntPtr out_memory);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_memory_free(RuntimeHandle runtime, DeviceKind kind, int index, Space space,
            ulong bytes, IntPtr memory);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_memory_copy(DeviceKind kind, int index, IntPtr to, IntPtr from, ulong bytes,
            IntPtr stream);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_memory_zero(DeviceKind kind, int index, IntPtr memory, ulong bytes,
            IntPtr stream);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_stream_create(DeviceKind kind, int index, IntPtr out_stream);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_stream_synchronize(DeviceKind kind, int index, IntPtr stream);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_stream_destroy(DeviceKind kind, int index, IntPtr stream);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_layer_validate(moe_layer_desc* layer);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern IntPtr moe_format_name_at(uint index);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_format_by_name(IntPtr name, moe_format* out_format);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_format_get_info(moe_format* format, moe_format_info* out_info);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_format_size(moe_format* format, long rows, long columns,
            out ulong out_data_bytes, out ulong out_scale_bytes);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_plan_create(RuntimeHandle runtime, moe_plan_desc* desc,
            out PlanHandle out_plan);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern void moe_plan_destroy(IntPtr plan);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_supports(RuntimeHandle runtime, moe_plan_desc* desc);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_plan_key(RuntimeHandle runtime, moe_plan_desc* desc, byte* out_key);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_plan_layout_id(PlanHandle plan, byte* out_id);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_plan_device(PlanHandle plan, out DeviceKind out_kind, out int out_index,
            out IntPtr out_reason);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_plan_workspace_size(PlanHandle plan, long n_tokens,
            moe_workspace_need* out_need);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_plan_kernel(PlanHandle plan, Stage stage, long n_tokens, out IntPtr out_name);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_candidates(PlanHandle plan, uint index, moe_candidate* out_candidate);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_plan_explain(PlanHandle plan, ExplainForm form, IntPtr buffer, ulong capacity,
            out ulong out_size);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_weights_size(PlanHandle plan, moe_weights_desc* desc, out ulong out_bytes);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_weights_load(PlanHandle plan, moe_weights_desc* desc,
            out WeightsHandle out_weights);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern void moe_weights_destroy(IntPtr weights);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_weights_update(WeightsHandle weights, moe_tensor* tensor, IntPtr stream);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_weights_layout_id(WeightsHandle weights, byte* out_id);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_weights_memory(WeightsHandle weights, moe_memory_report* out_report);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_weights_save(WeightsHandle weights, IntPtr path);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_weights_open(PlanHandle plan, IntPtr path, out WeightsHandle out_weights);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_workspace_create(RuntimeHandle runtime, moe_workspace_desc* desc,
            out WorkspaceHandle out_workspace);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern void moe_workspace_destroy(IntPtr workspace);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_workspace_status(WorkspaceHandle workspace, moe_workspace_faults* out_faults);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_forward(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_forward_args* args);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_forward_spmd(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_forward_args* args, int thread_index, int n_threads);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_route(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_route_args* args);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_dispatch(PlanHandle plan, WorkspaceHandle workspace, moe_dispatch_args* args);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_gather(PlanHandle plan, WorkspaceHandle workspace, moe_gather_args* args);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_experts(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_experts_args* args);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_combine(PlanHandle plan, WorkspaceHandle workspace, moe_combine_args* args);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_finish(PlanHandle plan, WeightsHandle weights, WorkspaceHandle workspace,
            moe_finish_args* args);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_checkpoint_open(RuntimeHandle runtime, IntPtr path,
            moe_checkpoint_options* options, out CheckpointHandle out_checkpoint);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern void moe_checkpoint_destroy(IntPtr checkpoint);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_checkpoint_get_info(CheckpointHandle checkpoint, moe_checkpoint_info* out_info);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern IntPtr moe_checkpoint_family_at(uint index);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_checkpoint_layer_at(CheckpointHandle checkpoint, int index, out int out_layer);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_checkpoint_layer(CheckpointHandle checkpoint, int layer,
            moe_layer_desc* out_desc);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_checkpoint_formats(CheckpointHandle checkpoint, int layer,
            moe_format** out_formats, uint n_formats);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_checkpoint_tensor(CheckpointHandle checkpoint, int layer, uint index,
            moe_tensor* out_tensor, moe_format* out_format);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_weights_load_checkpoint(PlanHandle plan, CheckpointHandle checkpoint, int layer,
            moe_load_options* options, out WeightsHandle out_weights);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_loading_start(PlanHandle plan, moe_weights_desc* desc,
            out LoadingHandle out_loading);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_loading_start_checkpoint(PlanHandle plan, CheckpointHandle checkpoint,
            int layer, moe_load_options* options, out LoadingHandle out_loading);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_loading_poll(LoadingHandle loading, moe_loading_progress* out_progress);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_loading_wait(LoadingHandle loading, out WeightsHandle out_weights);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_loading_cancel(LoadingHandle loading);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern void moe_loading_destroy(IntPtr loading);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_quantize(moe_quantize_args* args);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_dequantize(moe_tensor* tensor, long expert, IntPtr @out, ulong out_elements);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_scale_layout_size(ScaleLayout layout, long rows, long columns,
            out ulong out_bytes);

        [DllImport(Loader.Name, ExactSpelling = true, CallingConvention = CallingConvention.Cdecl)]
        public static extern Status moe_convert_scales(moe_convert_scales_args* args);

#endif
    }
}
