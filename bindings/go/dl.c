//go:build moe_dlopen && cgo

/*
 * Under the build tag moe_dlopen the functions of moe.h are these: each calls the one of the library that was opened. They are
 * hidden, so that the library keeps to its own. moego_open() has run before any of them is called.
 */
#include "moego.h"
#include "moe/moe_dl.h"

static moe_api library;

moe_status moego_open(const char *path, char *error, uint64_t capacity) {
    moe_api found;
    moe_status status = moe_dl_open(&found, path, error, capacity);
    if (status != MOE_OK) return status;
    if (library.handle)
        moe_dl_close(&found);
    else
        library = found;
    return status;
}

uint32_t moe_version(void) {
    return library.version();
}
uint32_t moe_abi_version(void) {
    return library.abi_version();
}
const char *moe_version_string(void) {
    return library.version_string();
}
const char *moe_build_info(void) {
    return library.build_info();
}
const char *moe_status_name(moe_status status) {
    return library.status_name(status);
}
const char *moe_last_error(void) {
    return library.last_error();
}
moe_status moe_last_error_copy(char *buffer, uint64_t capacity, uint64_t *out_size) {
    return library.last_error_copy(buffer, capacity, out_size);
}
const char *moe_role_name(moe_role role) {
    return library.role_name(role);
}
const char *moe_type_name(moe_type type) {
    return library.type_name(type);
}
moe_status moe_runtime_create(const moe_runtime_desc *desc, moe_runtime **out_runtime) {
    return library.runtime_create(desc, out_runtime);
}
void moe_runtime_destroy(moe_runtime *runtime) {
    library.runtime_destroy(runtime);
}
moe_status moe_device_count(moe_device_kind kind, int32_t *out_count) {
    return library.device_count(kind, out_count);
}
moe_status moe_device_get_info(moe_device_kind kind, int32_t index, moe_device_info *out_info) {
    return library.device_get_info(kind, index, out_info);
}
moe_status moe_memory_allocate(moe_runtime *runtime, moe_device_kind kind, int32_t index, moe_space space, uint64_t bytes,
    void **out_memory) {
    return library.memory_allocate(runtime, kind, index, space, bytes, out_memory);
}
moe_status moe_memory_free(moe_runtime *runtime, moe_device_kind kind, int32_t index, moe_space space, uint64_t bytes,
    void *memory) {
    return library.memory_free(runtime, kind, index, space, bytes, memory);
}
moe_status moe_memory_copy(moe_device_kind kind, int32_t index, void *to, const void *from, uint64_t bytes, void *stream) {
    return library.memory_copy(kind, index, to, from, bytes, stream);
}
moe_status moe_memory_zero(moe_device_kind kind, int32_t index, void *memory, uint64_t bytes, void *stream) {
    return library.memory_zero(kind, index, memory, bytes, stream);
}
moe_status moe_stream_create(moe_device_kind kind, int32_t index, void **out_stream) {
    return library.stream_create(kind, index, out_stream);
}
moe_status moe_stream_synchronize(moe_device_kind kind, int32_t index, void *stream) {
    return library.stream_synchronize(kind, index, stream);
}
moe_status moe_stream_destroy(moe_device_kind kind, int32_t index, void *stream) {
    return library.stream_destroy(kind, index, stream);
}
moe_status moe_layer_validate(const moe_layer_desc *layer) {
    return library.layer_validate(layer);
}
const char *moe_format_name_at(uint32_t index) {
    return library.format_name_at(index);
}
moe_status moe_format_by_name(const char *name, moe_format *out_format) {
    return library.format_by_name(name, out_format);
}
moe_status moe_format_get_info(const moe_format *format, moe_format_info *out_info) {
    return library.format_get_info(format, out_info);
}
moe_status moe_format_size(const moe_format *format, int64_t rows, int64_t columns, uint64_t *out_data_bytes,
    uint64_t *out_scale_bytes) {
    return library.format_size(format, rows, columns, out_data_bytes, out_scale_bytes);
}
moe_status moe_plan_create(moe_runtime *runtime, const moe_plan_desc *desc, moe_plan **out_plan) {
    return library.plan_create(runtime, desc, out_plan);
}
void moe_plan_destroy(moe_plan *plan) {
    library.plan_destroy(plan);
}
moe_status moe_supports(moe_runtime *runtime, const moe_plan_desc *desc) {
    return library.supports(runtime, desc);
}
moe_status moe_plan_key(moe_runtime *runtime, const moe_plan_desc *desc, uint8_t out_key[16]) {
    return library.plan_key(runtime, desc, out_key);
}
moe_status moe_plan_layout_id(const moe_plan *plan, uint8_t out_id[16]) {
    return library.plan_layout_id(plan, out_id);
}
moe_status moe_plan_device(const moe_plan *plan, moe_device_kind *out_kind, int32_t *out_index,
    const char **out_reason) {
    return library.plan_device(plan, out_kind, out_index, out_reason);
}
moe_status moe_plan_workspace_size(const moe_plan *plan, int64_t n_tokens, moe_workspace_need *out_need) {
    return library.plan_workspace_size(plan, n_tokens, out_need);
}
moe_status moe_plan_kernel(const moe_plan *plan, moe_stage stage, int64_t n_tokens, const char **out_name) {
    return library.plan_kernel(plan, stage, n_tokens, out_name);
}
moe_status moe_candidates(const moe_plan *plan, uint32_t index, moe_candidate *out_candidate) {
    return library.candidates(plan, index, out_candidate);
}
moe_status moe_plan_explain(const moe_plan *plan, moe_explain_form form, char *buffer, uint64_t capacity,
    uint64_t *out_size) {
    return library.plan_explain(plan, form, buffer, capacity, out_size);
}
moe_status moe_weights_size(const moe_plan *plan, const moe_weights_desc *desc, uint64_t *out_bytes) {
    return library.weights_size(plan, desc, out_bytes);
}
moe_status moe_weights_load(const moe_plan *plan, const moe_weights_desc *desc, moe_weights **out_weights) {
    return library.weights_load(plan, desc, out_weights);
}
void moe_weights_destroy(moe_weights *weights) {
    library.weights_destroy(weights);
}
moe_status moe_weights_update(moe_weights *weights, const moe_tensor *tensor, void *stream) {
    return library.weights_update(weights, tensor, stream);
}
moe_status moe_weights_layout_id(const moe_weights *weights, uint8_t out_id[16]) {
    return library.weights_layout_id(weights, out_id);
}
moe_status moe_weights_memory(const moe_weights *weights, moe_memory_report *out_report) {
    return library.weights_memory(weights, out_report);
}
moe_status moe_weights_save(const moe_weights *weights, const char *path) {
    return library.weights_save(weights, path);
}
moe_status moe_weights_open(const moe_plan *plan, const char *path, moe_weights **out_weights) {
    return library.weights_open(plan, path, out_weights);
}
moe_status moe_workspace_create(moe_runtime *runtime, const moe_workspace_desc *desc, moe_workspace **out_workspace) {
    return library.workspace_create(runtime, desc, out_workspace);
}
void moe_workspace_destroy(moe_workspace *workspace) {
    library.workspace_destroy(workspace);
}
moe_status moe_workspace_status(moe_workspace *workspace, moe_workspace_faults *out_faults) {
    return library.workspace_status(workspace, out_faults);
}
moe_status moe_forward(const moe_plan *plan, const moe_weights *weights, moe_workspace *workspace,
    const moe_forward_args *args) {
    return library.forward(plan, weights, workspace, args);
}
moe_status moe_forward_spmd(const moe_plan *plan, const moe_weights *weights, moe_workspace *workspace,
    const moe_forward_args *args, int32_t thread_index, int32_t n_threads) {
    return library.forward_spmd(plan, weights, workspace, args, thread_index, n_threads);
}
moe_status moe_route(const moe_plan *plan, const moe_weights *weights, moe_workspace *workspace,
    const moe_route_args *args) {
    return library.route(plan, weights, workspace, args);
}
moe_status moe_dispatch(const moe_plan *plan, moe_workspace *workspace, const moe_dispatch_args *args) {
    return library.dispatch(plan, workspace, args);
}
moe_status moe_gather(const moe_plan *plan, moe_workspace *workspace, const moe_gather_args *args) {
    return library.gather(plan, workspace, args);
}
moe_status moe_experts(const moe_plan *plan, const moe_weights *weights, moe_workspace *workspace,
    const moe_experts_args *args) {
    return library.experts(plan, weights, workspace, args);
}
moe_status moe_combine(const moe_plan *plan, moe_workspace *workspace, const moe_combine_args *args) {
    return library.combine(plan, workspace, args);
}
moe_status moe_finish(const moe_plan *plan, const moe_weights *weights, moe_workspace *workspace,
    const moe_finish_args *args) {
    return library.finish(plan, weights, workspace, args);
}
moe_status moe_checkpoint_open(moe_runtime *runtime, const char *path, const moe_checkpoint_options *options,
    moe_checkpoint **out_checkpoint) {
    return library.checkpoint_open(runtime, path, options, out_checkpoint);
}
void moe_checkpoint_destroy(moe_checkpoint *checkpoint) {
    library.checkpoint_destroy(checkpoint);
}
moe_status moe_checkpoint_get_info(const moe_checkpoint *checkpoint, moe_checkpoint_info *out_info) {
    return library.checkpoint_get_info(checkpoint, out_info);
}
const char *moe_checkpoint_family_at(uint32_t index) {
    return library.checkpoint_family_at(index);
}
moe_status moe_checkpoint_layer_at(const moe_checkpoint *checkpoint, int32_t index, int32_t *out_layer) {
    return library.checkpoint_layer_at(checkpoint, index, out_layer);
}
moe_status moe_checkpoint_layer(const moe_checkpoint *checkpoint, int32_t layer, moe_layer_desc *out_desc) {
    return library.checkpoint_layer(checkpoint, layer, out_desc);
}
moe_status moe_checkpoint_formats(const moe_checkpoint *checkpoint, int32_t layer, moe_format *const *out_formats,
    uint32_t n_formats) {
    return library.checkpoint_formats(checkpoint, layer, out_formats, n_formats);
}
moe_status moe_checkpoint_tensor(const moe_checkpoint *checkpoint, int32_t layer, uint32_t index,
    moe_tensor *out_tensor, moe_format *out_format) {
    return library.checkpoint_tensor(checkpoint, layer, index, out_tensor, out_format);
}
moe_status moe_weights_load_checkpoint(const moe_plan *plan, const moe_checkpoint *checkpoint, int32_t layer,
    const moe_load_options *options, moe_weights **out_weights) {
    return library.weights_load_checkpoint(plan, checkpoint, layer, options, out_weights);
}
moe_status moe_loading_start(const moe_plan *plan, const moe_weights_desc *desc, moe_loading **out_loading) {
    return library.loading_start(plan, desc, out_loading);
}
moe_status moe_loading_start_checkpoint(const moe_plan *plan, const moe_checkpoint *checkpoint, int32_t layer,
    const moe_load_options *options, moe_loading **out_loading) {
    return library.loading_start_checkpoint(plan, checkpoint, layer, options, out_loading);
}
moe_status moe_loading_poll(const moe_loading *loading, moe_loading_progress *out_progress) {
    return library.loading_poll(loading, out_progress);
}
moe_status moe_loading_wait(moe_loading *loading, moe_weights **out_weights) {
    return library.loading_wait(loading, out_weights);
}
moe_status moe_loading_cancel(moe_loading *loading) {
    return library.loading_cancel(loading);
}
void moe_loading_destroy(moe_loading *loading) {
    library.loading_destroy(loading);
}
moe_status moe_quantize(const moe_quantize_args *args) {
    return library.quantize(args);
}
moe_status moe_dequantize(const moe_tensor *tensor, int64_t expert, float *out, uint64_t out_elements) {
    return library.dequantize(tensor, expert, out, out_elements);
}
moe_status moe_scale_layout_size(moe_scale_layout layout, int64_t rows, int64_t columns, uint64_t *out_bytes) {
    return library.scale_layout_size(layout, rows, columns, out_bytes);
}
moe_status moe_convert_scales(const moe_convert_scales_args *args) {
    return library.convert_scales(args);
}
