// libmoe for the languages of SWIG: moe.h as it is, with what a generator cannot know. Handles are classes that end what they
// hold, structs know their size, a status that is not MOE_OK is the language's error, texts come back as texts.
//
// Each language adds two things in its own file: how an error is raised (%exception), and what memory is (the typemaps of the
// pointers in the structs). Callbacks are C's alone.
%module moe
%{
#include <stdlib.h>
#include <string.h>
#include "moe/moe.h"
#include "moe/moe_dl.h"

/* The outcome of what stands in an %extend below: raised behind the call. The sentence is the library's, unless here is one. */
static __thread moe_status moe_swig_status;
static __thread const char *moe_swig_sentence;

static void moe_swig_fail(moe_status status, const char *sentence) {
    moe_swig_status = status;
    moe_swig_sentence = sentence;
}

static const char *moe_swig_message(void) {
    const char *own = moe_swig_sentence;
    moe_swig_sentence = NULL;
    return own ? own : moe_last_error();
}

/* 32 digits and a NUL, of malloc. */
static char *moe_swig_hex(const uint8_t bytes[16]) {
    char *text = (char *)malloc(33);
    int i;
    if (!text) moe_swig_fail(MOE_ERROR_OUT_OF_MEMORY, "out of memory");
    for (i = 0; text && i < 16; i++) {
        text[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    if (text) text[32] = 0;
    return text;
}
%}

%include <stdint.i>
%include <exception.i>

// --- names -------------------------------------------------------------------------------------------------------

%ignore struct_size;
%ignore reserved;
%ignore reserved2;
%ignore reserved3;

// Callbacks, and what only C can fill in.
%ignore moe_allocator;
%ignore moe_runtime_desc::allocator;
%ignore moe_runtime_desc::parallel_for;
%ignore moe_runtime_desc::parallel_for_user_data;
%ignore moe_runtime_desc::log;
%ignore moe_runtime_desc::log_user_data;
%ignore progress;
%ignore progress_user_data;
%ignore moe_tensor::data_per_expert;
%ignore moe_tensor::scales_per_expert;
%ignore moe_memory_report::role_bytes;

// These are methods of the classes below.
%ignore moe_runtime_create;
%ignore moe_runtime_destroy;
%ignore moe_checkpoint_open;
%ignore moe_checkpoint_destroy;
%ignore moe_checkpoint_layer_at;
%ignore moe_checkpoint_formats;
%ignore moe_checkpoint_tensor;
%ignore moe_plan_create;
%ignore moe_plan_destroy;
%ignore moe_plan_key;
%ignore moe_plan_layout_id;
%ignore moe_plan_device;
%ignore moe_plan_kernel;
%ignore moe_plan_explain;
%ignore moe_weights_size;
%ignore moe_weights_load;
%ignore moe_weights_load_checkpoint;
%ignore moe_weights_open;
%ignore moe_weights_destroy;
%ignore moe_weights_layout_id;
%ignore moe_workspace_create;
%ignore moe_workspace_destroy;
%ignore moe_device_count;
%ignore moe_format_size;
%ignore moe_scale_layout_size;
%ignore moe_last_error_copy;

// Memory that a struct refers to is a buffer of the host in these languages.
%ignore moe_memory_allocate;
%ignore moe_memory_free;
%ignore moe_memory_copy;
%ignore moe_memory_zero;
%ignore moe_stream_create;
%ignore moe_stream_synchronize;
%ignore moe_stream_destroy;

// What a load in the background refers to must stay until it is done, which these languages cannot see.
%ignore moe_loading;
%ignore moe_loading_progress;
%ignore moe_loading_start;
%ignore moe_loading_start_checkpoint;
%ignore moe_loading_poll;
%ignore moe_loading_wait;
%ignore moe_loading_cancel;
%ignore moe_loading_destroy;

%ignore moe_plan_desc::formats_per_expert;
%ignore moe_plan_desc::n_formats_per_expert;
%ignore moe_plan_desc::formats;
%ignore moe_plan_desc::n_formats;
%ignore moe_weights_desc::tensors;
%ignore moe_weights_desc::n_tensors;

// --- functions ------------------------------------------------------------------------------------------------------

// The names of functions are those of moe.h without the prefix, as methods and structs have none either.
%define MOE_FUNCTION(name, lower)
#if defined(SWIGJAVA)
%rename(lower) moe_ ## name;
#else
%rename(name) moe_ ## name;
#endif
%enddef
MOE_FUNCTION(version, version)
MOE_FUNCTION(abi_version, abiVersion)
MOE_FUNCTION(version_string, versionString)
MOE_FUNCTION(build_info, buildInfo)
MOE_FUNCTION(status_name, statusName)
MOE_FUNCTION(last_error, lastError)
MOE_FUNCTION(role_name, roleName)
MOE_FUNCTION(type_name, typeName)
MOE_FUNCTION(device_get_info, deviceGetInfo)
MOE_FUNCTION(layer_validate, layerValidate)
MOE_FUNCTION(format_name_at, formatNameAt)
MOE_FUNCTION(format_by_name, formatByName)
MOE_FUNCTION(format_get_info, formatGetInfo)
MOE_FUNCTION(supports, supports)
MOE_FUNCTION(plan_workspace_size, planWorkspaceSize)
MOE_FUNCTION(candidates, candidates)
MOE_FUNCTION(weights_update, weightsUpdate)
MOE_FUNCTION(weights_memory, weightsMemory)
MOE_FUNCTION(weights_save, weightsSave)
MOE_FUNCTION(workspace_status, workspaceStatus)
MOE_FUNCTION(forward, forward)
MOE_FUNCTION(forward_spmd, forwardSpmd)
MOE_FUNCTION(route, route)
MOE_FUNCTION(dispatch, dispatch)
MOE_FUNCTION(gather, gather)
MOE_FUNCTION(experts, experts)
MOE_FUNCTION(combine, combine)
MOE_FUNCTION(finish, finish)
MOE_FUNCTION(checkpoint_get_info, checkpointGetInfo)
MOE_FUNCTION(checkpoint_family_at, checkpointFamilyAt)
MOE_FUNCTION(checkpoint_layer, checkpointLayer)
MOE_FUNCTION(quantize, quantize)
MOE_FUNCTION(dequantize, dequantize)
MOE_FUNCTION(convert_scales, convertScales)

#if defined(SWIGJAVA)
%include "moe_java.i"
#elif defined(SWIGLUA)
%include "moe_lua.i"
#else
#error "moe.i has typemaps for Java and Lua"
#endif

// --- structs -----------------------------------------------------------------------------------------------------

// Texts in structs are copies of the struct's own.
%typemap(memberin) const char * {
    free((char *)$1);
    $1 = $input ? strdup($input) : NULL;
}

%define MOE_STRUCT(name, Name, owned)
%rename(Name) name;
%extend name {
    name() {
        name *made = (name *)calloc(1, sizeof(name));
        if (made) made->struct_size = sizeof(name);
        else moe_swig_fail(MOE_ERROR_OUT_OF_MEMORY, "out of memory");
        return made;
    }
    ~name() {
        if (!$self) return;
        owned
        free($self);
    }
}
%enddef

MOE_STRUCT(moe_runtime_desc, RuntimeDesc, { free((char *)$self->cublaslt_path); free((char *)$self->nccl_path); })
MOE_STRUCT(moe_device_info, DeviceInfo, )
MOE_STRUCT(moe_layer_desc, LayerDesc, )
MOE_STRUCT(moe_format, Format, )
MOE_STRUCT(moe_format_info, FormatInfo, )
MOE_STRUCT(moe_tensor, Tensor, )
MOE_STRUCT(moe_slice, Slice, )
MOE_STRUCT(moe_plan_desc, PlanDesc,
           { free((void *)$self->formats); free((char *)$self->kernel_filter); free((char *)$self->tuning_path); })
MOE_STRUCT(moe_workspace_need, WorkspaceNeed, )
MOE_STRUCT(moe_candidate, Candidate, )
MOE_STRUCT(moe_weights_desc, WeightsDesc, { free((void *)$self->tensors); })
MOE_STRUCT(moe_memory_report, MemoryReport, )
MOE_STRUCT(moe_workspace_desc, WorkspaceDesc, )
MOE_STRUCT(moe_workspace_faults, WorkspaceFaults, )
MOE_STRUCT(moe_forward_args, ForwardArgs, )
MOE_STRUCT(moe_route_args, RouteArgs, )
MOE_STRUCT(moe_dispatch_args, DispatchArgs, )
MOE_STRUCT(moe_gather_args, GatherArgs, )
MOE_STRUCT(moe_experts_args, ExpertsArgs, )
MOE_STRUCT(moe_combine_args, CombineArgs, )
MOE_STRUCT(moe_finish_args, FinishArgs, )
MOE_STRUCT(moe_checkpoint_options, CheckpointOptions, { free((char *)$self->family); free((char *)$self->overrides); })
MOE_STRUCT(moe_checkpoint_info, CheckpointInfo, )
MOE_STRUCT(moe_load_options, LoadOptions, )
MOE_STRUCT(moe_quantize_args, QuantizeArgs, )
MOE_STRUCT(moe_convert_scales_args, ConvertScalesArgs, )
%immutable moe_candidate::kernel;
%immutable moe_candidate::reason_code;
%immutable moe_candidate::reason;

%extend moe_plan_desc {
    // The format of a role; the description refers to it until it is gone.
    void set_format(moe_role role, const moe_format *of_role) {
        if (role < 0 || role >= MOE_ROLE_COUNT) {
            moe_swig_fail(MOE_ERROR_INVALID_ARGUMENT, "role: is none of MOE_ROLE_*");
            return;
        }
        if (!$self->formats) $self->formats = (const moe_format **)calloc(MOE_ROLE_COUNT, sizeof(moe_format *));
        if (!$self->formats) {
            moe_swig_fail(MOE_ERROR_OUT_OF_MEMORY, "out of memory");
            return;
        }
        ((const moe_format **)$self->formats)[role] = of_role;
        $self->n_formats = MOE_ROLE_COUNT;
    }
}

%extend moe_weights_desc {
    // One tensor more; the description refers to it until it is gone.
    void add_tensor(const moe_tensor *one_more) {
        const moe_tensor **all = (const moe_tensor **)realloc((void *)$self->tensors, ($self->n_tensors + 1) * sizeof *all);
        if (!all) {
            moe_swig_fail(MOE_ERROR_OUT_OF_MEMORY, "out of memory");
            return;
        }
        all[$self->n_tensors++] = one_more;
        $self->tensors = all;
    }
}

%extend moe_memory_report {
    uint64_t bytes_of(moe_role role) {
        return role >= 0 && role < 32 ? $self->role_bytes[role] : 0;
    }
}

// --- handles -----------------------------------------------------------------------------------------------------

%define MOE_HANDLE(name, Name)
%rename(Name) name;
struct name {
    %extend {
        ~name() { name ## _destroy($self); }
    }
};
%enddef

%nodefaultctor moe_runtime;
%nodefaultctor moe_checkpoint;
%nodefaultctor moe_plan;
%nodefaultctor moe_weights;
%nodefaultctor moe_workspace;
MOE_HANDLE(moe_runtime, Runtime)
MOE_HANDLE(moe_checkpoint, Checkpoint)
MOE_HANDLE(moe_plan, Plan)
MOE_HANDLE(moe_weights, Weights)
MOE_HANDLE(moe_workspace, Workspace)

%include "moe/moe.h"

%extend moe_runtime {
    moe_runtime(const moe_runtime_desc *desc) {
        moe_runtime *made = NULL;
        moe_swig_status = moe_runtime_create(desc, &made);
        return made;
    }
}

%newobject moe_checkpoint::tensor_of_index;
%extend moe_checkpoint {
    moe_checkpoint(moe_runtime *runtime, const char *path, const moe_checkpoint_options *options) {
        moe_checkpoint *made = NULL;
        moe_swig_status = moe_checkpoint_open(runtime, path, options, &made);
        return made;
    }
    int32_t layer_of_index(int32_t index) {
        int32_t layer = 0;
        moe_swig_status = moe_checkpoint_layer_at($self, index, &layer);
        return layer;
    }
    // A tensor whose bytes lie in the mapping: valid until the checkpoint is closed. Its format is behind it in one block.
    moe_tensor *tensor_of_index(int32_t layer, uint32_t index) {
        struct { moe_tensor tensor; moe_format format; } *made = calloc(1, sizeof *made);
        if (!made) {
            moe_swig_fail(MOE_ERROR_OUT_OF_MEMORY, "out of memory");
            return NULL;
        }
        made->tensor.struct_size = sizeof made->tensor;
        made->format.struct_size = sizeof made->format;
        moe_swig_status = moe_checkpoint_tensor($self, layer, index, &made->tensor, &made->format);
        if (moe_swig_status == MOE_OK) return &made->tensor;
        free(made);
        return NULL;
    }
    // Fills in the format of one role; its type is MOE_TYPE_NONE if the layer does not have the role.
    void format_of(int32_t layer, moe_role role, moe_format *out_format) {
        moe_format *formats[MOE_ROLE_COUNT] = {0};
        if (role < 0 || role >= MOE_ROLE_COUNT) {
            moe_swig_fail(MOE_ERROR_INVALID_ARGUMENT, "role: is none of MOE_ROLE_*");
            return;
        }
        formats[role] = out_format;
        moe_swig_status = moe_checkpoint_formats($self, layer, formats, MOE_ROLE_COUNT);
    }
}

%newobject moe_plan::explanation;
%newobject moe_plan::layout;
%newobject moe_plan::key_of;
%extend moe_plan {
    moe_plan(moe_runtime *runtime, const moe_plan_desc *desc) {
        moe_plan *made = NULL;
        moe_swig_status = moe_plan_create(runtime, desc, &made);
        return made;
    }
    // 32 digits, equal for descriptions that make equal plans.
    static char *key_of(moe_runtime *runtime, const moe_plan_desc *desc) {
        uint8_t key[16];
        moe_swig_status = moe_plan_key(runtime, desc, key);
        return moe_swig_status == MOE_OK ? moe_swig_hex(key) : NULL;
    }
    // 32 digits, equal for plans and weights that go together.
    char *layout(void) {
        uint8_t id[16];
        moe_swig_status = moe_plan_layout_id($self, id);
        return moe_swig_status == MOE_OK ? moe_swig_hex(id) : NULL;
    }
    moe_device_kind device_kind(void) {
        moe_device_kind kind = MOE_DEVICE_AUTO;
        int32_t index = 0;
        moe_swig_status = moe_plan_device($self, &kind, &index, NULL);
        return kind;
    }
    int32_t device_index(void) {
        moe_device_kind kind = MOE_DEVICE_AUTO;
        int32_t index = 0;
        moe_swig_status = moe_plan_device($self, &kind, &index, NULL);
        return index;
    }
    const char *device_reason(void) {
        moe_device_kind kind = MOE_DEVICE_AUTO;
        int32_t index = 0;
        const char *reason = NULL;
        moe_swig_status = moe_plan_device($self, &kind, &index, &reason);
        return reason;
    }
    const char *kernel_of(moe_stage stage, int64_t n_tokens) {
        const char *name = NULL;
        moe_swig_status = moe_plan_kernel($self, stage, n_tokens, &name);
        return name;
    }
    char *explanation(moe_explain_form form) {
        uint64_t size = 0;
        char *text = NULL;
        moe_swig_status = moe_plan_explain($self, form, NULL, 0, &size);
        if (moe_swig_status != MOE_OK) return NULL;
        text = (char *)malloc(size);
        if (text) moe_swig_status = moe_plan_explain($self, form, text, size, &size);
        else moe_swig_fail(MOE_ERROR_OUT_OF_MEMORY, "out of memory");
        return text;
    }
}

%newobject moe_weights::of_tensors;
%newobject moe_weights::of_checkpoint;
%newobject moe_weights::of_file;
%newobject moe_weights::layout;
%extend moe_weights {
    static moe_weights *of_tensors(const moe_plan *plan, const moe_weights_desc *desc) {
        moe_weights *made = NULL;
        moe_swig_status = moe_weights_load(plan, desc, &made);
        return made;
    }
    static moe_weights *of_checkpoint(const moe_plan *plan, const moe_checkpoint *checkpoint, int32_t layer,
                                      const moe_load_options *options) {
        moe_weights *made = NULL;
        moe_swig_status = moe_weights_load_checkpoint(plan, checkpoint, layer, options, &made);
        return made;
    }
    static moe_weights *of_file(const moe_plan *plan, const char *path) {
        moe_weights *made = NULL;
        moe_swig_status = moe_weights_open(plan, path, &made);
        return made;
    }
    static uint64_t bytes_for(const moe_plan *plan, const moe_weights_desc *desc) {
        uint64_t bytes = 0;
        moe_swig_status = moe_weights_size(plan, desc, &bytes);
        return bytes;
    }
    char *layout(void) {
        uint8_t id[16];
        moe_swig_status = moe_weights_layout_id($self, id);
        return moe_swig_status == MOE_OK ? moe_swig_hex(id) : NULL;
    }
}

%extend moe_workspace {
    moe_workspace(moe_runtime *runtime, const moe_workspace_desc *desc) {
        moe_workspace *made = NULL;
        moe_swig_status = moe_workspace_create(runtime, desc, &made);
        return made;
    }
}

%extend moe_format {
    uint64_t data_bytes(int64_t rows, int64_t columns) {
        uint64_t data = 0, scales = 0;
        moe_swig_status = moe_format_size($self, rows, columns, &data, &scales);
        return data;
    }
    uint64_t scale_bytes(int64_t rows, int64_t columns) {
        uint64_t data = 0, scales = 0;
        moe_swig_status = moe_format_size($self, rows, columns, &data, &scales);
        return scales;
    }
}

%rename(check) moe_swig_check;
#if defined(SWIGJAVA)
%rename(deviceCount) moe_swig_device_count;
%rename(scaleLayoutSize) moe_swig_scale_layout_size;
#else
%rename(device_count) moe_swig_device_count;
%rename(scale_layout_size) moe_swig_scale_layout_size;
#endif
%newobject moe_swig_gate;
%inline %{
/* What is wrong with the library that was linked, or NULL: its ABI version is compared before its functions are looked for. */
static char *moe_swig_gate(void) {
    char *said = (char *)malloc(256);
    void *library = dlopen(MOE_DL_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    const char *missing = NULL;
    unsigned found = moe_abi_version();
    if (!said || !library) return said ? strcpy(said, "libmoe: " MOE_DL_LIBRARY " is not what was loaded") : NULL;
    if (found != MOE_ABI_VERSION) {
        snprintf(said, 256, "libmoe: found ABI version %u, wanted %u", found, (unsigned)MOE_ABI_VERSION);
        return said;
    }
#define MOE_SWIG_LOOK(name) if (!missing && !dlsym(library, "moe_" #name)) missing = "moe_" #name;
    MOE_DL_FUNCTIONS(MOE_SWIG_LOOK)
    if (!missing) {
        free(said);
        return NULL;
    }
    snprintf(said, 256, "libmoe: the library found lacks the symbol %s", missing);
    return said;
}

/* Raises what a call with that status raises. */
static moe_status moe_swig_check(moe_status status) { return status; }

static int32_t moe_swig_device_count(moe_device_kind kind) {
    int32_t count = 0;
    moe_swig_status = moe_device_count(kind, &count);
    return count;
}

static uint64_t moe_swig_scale_layout_size(moe_scale_layout layout, int64_t rows, int64_t columns) {
    uint64_t bytes = 0;
    moe_swig_status = moe_scale_layout_size(layout, rows, columns, &bytes);
    return bytes;
}
%}
