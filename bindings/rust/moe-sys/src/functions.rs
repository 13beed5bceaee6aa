// Made of moe.h by generate.rs, with bindgen 0.60; do not edit.

functions! {
    pub fn moe_version() -> u32;
    pub fn moe_abi_version() -> u32;
    pub fn moe_version_string() -> *const ::std::os::raw::c_char;
    pub fn moe_build_info() -> *const ::std::os::raw::c_char;
    pub fn moe_status_name(status: moe_status) -> *const ::std::os::raw::c_char;
    pub fn moe_last_error() -> *const ::std::os::raw::c_char;
    pub fn moe_last_error_copy(
        buffer: *mut ::std::os::raw::c_char,
        capacity: u64,
        out_size: *mut u64,
    ) -> moe_status;
    pub fn moe_role_name(role: moe_role) -> *const ::std::os::raw::c_char;
    pub fn moe_type_name(type_: moe_type) -> *const ::std::os::raw::c_char;
    pub fn moe_runtime_create(
        desc: *const moe_runtime_desc,
        out_runtime: *mut *mut moe_runtime,
    ) -> moe_status;
    pub fn moe_runtime_destroy(runtime: *mut moe_runtime);
    pub fn moe_device_count(kind: moe_device_kind, out_count: *mut i32) -> moe_status;
    pub fn moe_device_get_info(
        kind: moe_device_kind,
        index: i32,
        out_info: *mut moe_device_info,
    ) -> moe_status;
    pub fn moe_memory_allocate(
        runtime: *mut moe_runtime,
        kind: moe_device_kind,
        index: i32,
        space: moe_space,
        bytes: u64,
        out_memory: *mut *mut ::std::os::raw::c_void,
    ) -> moe_status;
    pub fn moe_memory_free(
        runtime: *mut moe_runtime,
        kind: moe_device_kind,
        index: i32,
        space: moe_space,
        bytes: u64,
        memory: *mut ::std::os::raw::c_void,
    ) -> moe_status;
    pub fn moe_memory_copy(
        kind: moe_device_kind,
        index: i32,
        to: *mut ::std::os::raw::c_void,
        from: *const ::std::os::raw::c_void,
        bytes: u64,
        stream: *mut ::std::os::raw::c_void,
    ) -> moe_status;
    pub fn moe_memory_zero(
        kind: moe_device_kind,
        index: i32,
        memory: *mut ::std::os::raw::c_void,
        bytes: u64,
        stream: *mut ::std::os::raw::c_void,
    ) -> moe_status;
    pub fn moe_stream_create(
        kind: moe_device_kind,
        index: i32,
        out_stream: *mut *mut ::std::os::raw::c_void,
    ) -> moe_status;
    pub fn moe_stream_synchronize(
        kind: moe_device_kind,
        index: i32,
        stream: *mut ::std::os::raw::c_void,
    ) -> moe_status;
    pub fn moe_stream_destroy(
        kind: moe_device_kind,
        index: i32,
        stream: *mut ::std::os::raw::c_void,
    ) -> moe_status;
    pub fn moe_layer_validate(layer: *const moe_layer_desc) -> moe_status;
    pub fn moe_format_name_at(index: u32) -> *const ::std::os::raw::c_char;
    pub fn moe_format_by_name(name: *const ::std::os::raw::c_char, out_format: *mut moe_format)
        -> moe_status;
    pub fn moe_format_get_info(format: *const moe_format, out_info: *mut moe_format_info) -> moe_status;
    pub fn moe_format_size(
        format: *const moe_format,
        rows: i64,
        columns: i64,
        out_data_bytes: *mut u64,
        out_scale_bytes: *mut u64,
    ) -> moe_status;
    pub fn moe_plan_create(
        runtime: *mut moe_runtime,
        desc: *const moe_plan_desc,
        out_plan: *mut *mut moe_plan,
    ) -> moe_status;
    pub fn moe_plan_destroy(plan: *mut moe_plan);
    pub fn moe_supports(runtime: *mut moe_runtime, desc: *const moe_plan_desc) -> moe_status;
    pub fn moe_plan_key(
        runtime: *mut moe_runtime,
        desc: *const moe_plan_desc,
        out_key: *mut u8,
    ) -> moe_status;
    pub fn moe_plan_layout_id(plan: *const moe_plan, out_id: *mut u8) -> moe_status;
    pub fn moe_plan_device(
        plan: *const moe_plan,
        out_kind: *mut moe_device_kind,
        out_index: *mut i32,
        out_reason: *mut *const ::std::os::raw::c_char,
    ) -> moe_status;
    pub fn moe_plan_workspace_size(
        plan: *const moe_plan,
        n_tokens: i64,
        out_need: *mut moe_workspace_need,
    ) -> moe_status;
    pub fn moe_plan_kernel(
        plan: *const moe_plan,
        stage: moe_stage,
        n_tokens: i64,
        out_name: *mut *const ::std::os::raw::c_char,
    ) -> moe_status;
    pub fn moe_candidates(plan: *const moe_plan, index: u32, out_candidate: *mut moe_candidate)
        -> moe_status;
    pub fn moe_plan_explain(
        plan: *const moe_plan,
        form: moe_explain_form,
        buffer: *mut ::std::os::raw::c_char,
        capacity: u64,
        out_size: *mut u64,
    ) -> moe_status;
    pub fn moe_weights_size(
        plan: *const moe_plan,
        desc: *const moe_weights_desc,
        out_bytes: *mut u64,
    ) -> moe_status;
    pub fn moe_weights_load(
        plan: *const moe_plan,
        desc: *const moe_weights_desc,
        out_weights: *mut *mut moe_weights,
    ) -> moe_status;
    pub fn moe_weights_destroy(weights: *mut moe_weights);
    pub fn moe_weights_update(
        weights: *mut moe_weights,
        tensor: *const moe_tensor,
        stream: *mut ::std::os::raw::c_void,
    ) -> moe_status;
    pub fn moe_weights_layout_id(weights: *const moe_weights, out_id: *mut u8) -> moe_status;
    pub fn moe_weights_memory(weights: *const moe_weights, out_report: *mut moe_memory_report) -> moe_status;
    pub fn moe_weights_save(weights: *const moe_weights, path: *const ::std::os::raw::c_char) -> moe_status;
    pub fn moe_weights_open(
        plan: *const moe_plan,
        path: *const ::std::os::raw::c_char,
        out_weights: *mut *mut moe_weights,
    ) -> moe_status;
    pub fn moe_workspace_create(
        runtime: *mut moe_runtime,
        desc: *const moe_workspace_desc,
        out_workspace: *mut *mut moe_workspace,
    ) -> moe_status;
    pub fn moe_workspace_destroy(workspace: *mut moe_workspace);
    pub fn moe_workspace_status(
        workspace: *mut moe_workspace,
        out_faults: *mut moe_workspace_faults,
    ) -> moe_status;
    pub fn moe_forward(
        plan: *const moe_plan,
        weights: *const moe_weights,
        workspace: *mut moe_workspace,
        args: *const moe_forward_args,
    ) -> moe_status;
    pub fn moe_forward_spmd(
        plan: *const moe_plan,
        weights: *const moe_weights,
        workspace: *mut moe_workspace,
        args: *const moe_forward_args,
        thread_index: i32,
        n_threads: i32,
    ) -> moe_status;
    pub fn moe_route(
        plan: *const moe_plan,
        weights: *const moe_weights,
        workspace: *mut moe_workspace,
        args: *const moe_route_args,
    ) -> moe_status;
    pub fn moe_dispatch(
        plan: *const moe_plan,
        workspace: *mut moe_workspace,
        args: *const moe_dispatch_args,
    ) -> moe_status;
    pub fn moe_gather(
        plan: *const moe_plan,
        workspace: *mut moe_workspace,
        args: *const moe_gather_args,
    ) -> moe_status;
    pub fn moe_experts(
        plan: *const moe_plan,
        weights: *const moe_weights,
        workspace: *mut moe_workspace,
        args: *const moe_experts_args,
    ) -> moe_status;
    pub fn moe_combine(
        plan: *const moe_plan,
        workspace: *mut moe_workspace,
        args: *const moe_combine_args,
    ) -> moe_status;
    pub fn moe_finish(
        plan: *const moe_plan,
        weights: *const moe_weights,
        workspace: *mut moe_workspace,
        args: *const moe_finish_args,
    ) -> moe_status;
    pub fn moe_checkpoint_open(
        runtime: *mut moe_runtime,
        path: *const ::std::os::raw::c_char,
        options: *const moe_checkpoint_options,
        out_checkpoint: *mut *mut moe_checkpoint,
    ) -> moe_status;
    pub fn moe_checkpoint_destroy(checkpoint: *mut moe_checkpoint);
    pub fn moe_checkpoint_get_info(
        checkpoint: *const moe_checkpoint,
        out_info: *mut moe_checkpoint_info,
    ) -> moe_status;
    pub fn moe_checkpoint_family_at(index: u32) -> *const ::std::os::raw::c_char;
    pub fn moe_checkpoint_layer_at(
        checkpoint: *const moe_checkpoint,
        index: i32,
        out_layer: *mut i32,
    ) -> moe_status;
    pub fn moe_checkpoint_layer(
        checkpoint: *const moe_checkpoint,
        layer: i32,
        out_desc: *mut moe_layer_desc,
    ) -> moe_status;
    pub fn moe_checkpoint_formats(
        checkpoint: *const moe_checkpoint,
        layer: i32,
        out_formats: *const *mut moe_format,
        n_formats: u32,
    ) -> moe_status;
    pub fn moe_checkpoint_tensor(
        checkpoint: *const moe_checkpoint,
        layer: i32,
        index: u32,
        out_tensor: *mut moe_tensor,
        out_format: *mut moe_format,
    ) -> moe_status;
    pub fn moe_weights_load_checkpoint(
        plan: *const moe_plan,
        checkpoint: *const moe_checkpoint,
        layer: i32,
        options: *const moe_load_options,
        out_weights: *mut *mut moe_weights,
    ) -> moe_status;
    pub fn moe_loading_start(
        plan: *const moe_plan,
        desc: *const moe_weights_desc,
        out_loading: *mut *mut moe_loading,
    ) -> moe_status;
    pub fn moe_loading_start_checkpoint(
        plan: *const moe_plan,
        checkpoint: *const moe_checkpoint,
        layer: i32,
        options: *const moe_load_options,
        out_loading: *mut *mut moe_loading,
    ) -> moe_status;
    pub fn moe_loading_poll(
        loading: *const moe_loading,
        out_progress: *mut moe_loading_progress,
    ) -> moe_status;
    pub fn moe_loading_wait(loading: *mut moe_loading, out_weights: *mut *mut moe_weights) -> moe_status;
    pub fn moe_loading_cancel(loading: *mut moe_loading) -> moe_status;
    pub fn moe_loading_destroy(loading: *mut moe_loading);
    pub fn moe_quantize(args: *const moe_quantize_args) -> moe_status;
    pub fn moe_dequantize(
        tensor: *const moe_tensor,
        expert: i64,
        out: *mut f32,
        out_elements: u64,
    ) -> moe_status;
    pub fn moe_scale_layout_size(
        layout: moe_scale_layout,
        rows: i64,
        columns: i64,
        out_bytes: *mut u64,
    ) -> moe_status;
    pub fn moe_convert_scales(args: *const moe_convert_scales_args) -> moe_status;
}
