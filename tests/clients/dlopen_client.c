/*
 * A C program that knows libmoe only by dlopen: a float32 layer from arrays, one forward on the
 * library's own threads, an error that names its field, and after dlclose no trace in the process.
 * Links libc and libm alone. usage: dlopen_client [path of libmoe]
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "moe/moe_dl.h"

enum { HIDDEN = 256, INTERMEDIATE = 96, EXPERTS = 8, TOP_K = 2, TOKENS = 24 };

typedef struct weights_of_layer {
    float router[EXPERTS * HIDDEN];
    float gate[EXPERTS * INTERMEDIATE * HIDDEN];
    float up[EXPERTS * INTERMEDIATE * HIDDEN];
    float down[EXPERTS * HIDDEN * INTERMEDIATE];
} weights_of_layer;

static void fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static void must(const moe_api* api, moe_status status, const char* what) {
    if (status != MOE_OK) fail("%s: %s: %s", what, api->status_name(status), api->last_error());
}

static void fill_random(float* values, size_t count, float scale, unsigned* state) {
    size_t i;
    for (i = 0; i < count; ++i) {
        *state = *state * 1664525u + 1013904223u;
        values[i] = scale * ((float)(*state >> 8) / 8388608.0f - 1.0f);
    }
}

static int entries_of_task_folder(void) {
    int count = 0;
    struct dirent* entry;
    DIR* folder = opendir("/proc/self/task");
    if (!folder) fail("/proc/self/task cannot be read");
    while ((entry = readdir(folder))) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* A joined thread leaves /proc a moment later. */
static int threads_after_settling(int wanted) {
    const struct timespec pause = {0, 10000000};
    int i, count = entries_of_task_folder();
    for (i = 0; i < 200 && count != wanted; ++i) {
        nanosleep(&pause, NULL);
        count = entries_of_task_folder();
    }
    return count;
}

static int is_mapped(const char* name) {
    char line[1024];
    int found = 0;
    FILE* maps = fopen("/proc/self/maps", "r");
    if (!maps) fail("/proc/self/maps cannot be read");
    while (!found && fgets(line, sizeof line, maps)) found = strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

/* ---- the layer's own loops
 * ------------------------------------------------------------------------------------ */

static double dot(const float* row, const double* x, int n) {
    double sum = 0.0;
    int i;
    for (i = 0; i < n; ++i) sum += (double)row[i] * x[i];
    return sum;
}

static int largest(const double* logits, int except) {
    int e, best = -1;
    for (e = 0; e < EXPERTS; ++e)
        if (e != except && (best < 0 || logits[e] > logits[best])) best = e;
    return best;
}

static void add_expert(const weights_of_layer* w, int e, const double* x, double weight,
                       double* out) {
    double activated[INTERMEDIATE];
    int i, h;
    for (i = 0; i < INTERMEDIATE; ++i) {
        const size_t row = ((size_t)e * INTERMEDIATE + (size_t)i) * HIDDEN;
        const double g = dot(w->gate + row, x, HIDDEN);
        activated[i] = g / (1.0 + exp(-g)) * dot(w->up + row, x, HIDDEN);
    }
    for (h = 0; h < HIDDEN; ++h)
        out[h] += weight * dot(w->down + ((size_t)e * HIDDEN + (size_t)h) * INTERMEDIATE, activated,
                               INTERMEDIATE);
}

/* softmax over all experts, the two largest, divided by their sum: only their logits matter. */
static void own_forward(const weights_of_layer* w, const float* x, double* out) {
    double token[HIDDEN], logits[EXPERTS];
    int e, h, first, second;
    for (h = 0; h < HIDDEN; ++h) token[h] = x[h];
    for (e = 0; e < EXPERTS; ++e) logits[e] = dot(w->router + (size_t)e * HIDDEN, token, HIDDEN);
    first = largest(logits, -1);
    second = largest(logits, first);
    memset(out, 0, HIDDEN * sizeof *out);
    add_expert(w, first, token, 1.0 / (1.0 + exp(logits[second] - logits[first])), out);
    add_expert(w, second, token, 1.0 / (1.0 + exp(logits[first] - logits[second])), out);
}

static void compare(const weights_of_layer* w, const float* x, const float* out) {
    double worst = 0.0;
    int t, h;
    for (t = 0; t < TOKENS; ++t) {
        double want[HIDDEN], difference = 0.0, norm = 0.0, error;
        own_forward(w, x + t * HIDDEN, want);
        for (h = 0; h < HIDDEN; ++h) {
            const double d = (double)out[t * HIDDEN + h] - want[h];
            difference += d * d;
            norm += want[h] * want[h];
        }
        error = sqrt(difference / norm);
        if (!(error <= 1e-5)) fail("token %d is off by %g (relative L2)", t, error);
        if (error > worst) worst = error;
    }
    printf("largest relative L2 of a token: %.3g\n", worst);
}

/* ---- libmoe
 * ----------------------------------------------------------------------------------------------------
 */

static moe_tensor stack(moe_role role, const moe_format* format, int64_t n, int64_t rows,
                        int64_t columns, const float* data) {
    moe_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.struct_size = sizeof tensor;
    tensor.role = role;
    tensor.expert = MOE_ALL_EXPERTS;
    tensor.format = format;
    tensor.n_experts = n;
    tensor.rows = rows;
    tensor.columns = columns;
    tensor.data = data;
    tensor.data_bytes = (uint64_t)(n * rows * columns) * sizeof *data;
    return tensor;
}

static moe_layer_desc describe_layer(void) {
    moe_layer_desc layer;
    memset(&layer, 0, sizeof layer);
    layer.struct_size = sizeof layer;
    layer.hidden = HIDDEN;
    layer.intermediate = INTERMEDIATE;
    layer.n_experts = EXPERTS;
    layer.top_k = TOP_K;
    layer.has_router = 1;
    layer.score = MOE_SCORE_SOFTMAX;
    layer.renormalize = MOE_RENORMALIZE_SUM_ADD;
    layer.activation = MOE_ACTIVATION_SILU;
    layer.is_gated = 1;
    return layer;
}

static moe_plan* make_plan(const moe_api* api, moe_runtime* runtime, const moe_format* f32) {
    const moe_layer_desc layer = describe_layer();
    const moe_format* formats[MOE_ROLE_COUNT] = {0};
    moe_plan_desc desc;
    moe_plan* plan = NULL;
    formats[MOE_ROLE_ROUTER] = formats[MOE_ROLE_GATE] = formats[MOE_ROLE_UP] =
        formats[MOE_ROLE_DOWN] = f32;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.device = MOE_DEVICE_CPU;
    desc.x_type = MOE_TYPE_F32;
    desc.layer = &layer;
    desc.formats = formats;
    desc.n_formats = MOE_ROLE_COUNT;
    desc.max_tokens = TOKENS;
    must(api, api->plan_create(runtime, &desc, &plan), "plan_create");
    return plan;
}

static void wrong_field_is_named(const moe_api* api) {
    moe_layer_desc layer = describe_layer();
    moe_status status;
    layer.hidden = 33;
    status = api->layer_validate(&layer);
    printf("hidden = 33: %s: %s\n", api->status_name(status), api->last_error());
    if (status != MOE_ERROR_INVALID_ARGUMENT) fail("hidden = 33 was accepted");
    if (!strstr(api->last_error(), "hidden") || !strstr(api->last_error(), "33"))
        fail("the error names neither field nor value: %s", api->last_error());
}

static moe_weights* load_weights(const moe_api* api, const moe_plan* plan, const moe_format* f32,
                                 const weights_of_layer* w) {
    const moe_tensor router = stack(MOE_ROLE_ROUTER, f32, 1, EXPERTS, HIDDEN, w->router);
    const moe_tensor gate = stack(MOE_ROLE_GATE, f32, EXPERTS, INTERMEDIATE, HIDDEN, w->gate);
    const moe_tensor up = stack(MOE_ROLE_UP, f32, EXPERTS, INTERMEDIATE, HIDDEN, w->up);
    const moe_tensor down = stack(MOE_ROLE_DOWN, f32, EXPERTS, HIDDEN, INTERMEDIATE, w->down);
    const moe_tensor* tensors[4];
    moe_weights_desc desc;
    moe_weights* weights = NULL;
    tensors[0] = &router;
    tensors[1] = &gate;
    tensors[2] = &up;
    tensors[3] = &down;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.tensors = tensors;
    desc.n_tensors = 4;
    must(api, api->weights_load(plan, &desc, &weights), "weights_load");
    return weights;
}

static moe_workspace* make_workspace(const moe_api* api, moe_runtime* runtime,
                                     const moe_plan* plan) {
    moe_workspace_desc desc;
    moe_workspace* workspace = NULL;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.plan = plan;
    must(api, api->workspace_create(runtime, &desc, &workspace), "workspace_create");
    return workspace;
}

static moe_runtime* make_runtime(const moe_api* api) {
    moe_runtime_desc desc;
    moe_runtime* runtime = NULL;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.n_threads = 3;
    must(api, api->runtime_create(&desc, &runtime), "runtime_create");
    return runtime;
}

static void run_layer(const moe_api* api, const weights_of_layer* w, const float* x) {
    static float out[TOKENS * HIDDEN];
    const int threads_before = entries_of_task_folder();
    moe_runtime* runtime = make_runtime(api);
    moe_format f32;
    moe_plan* plan;
    moe_weights* weights;
    moe_workspace* workspace;
    moe_forward_args args;

    memset(&f32, 0, sizeof f32);
    f32.struct_size = sizeof f32;
    must(api, api->format_by_name("f32", &f32), "format_by_name");
    plan = make_plan(api, runtime, &f32);
    weights = load_weights(api, plan, &f32, w);
    workspace = make_workspace(api, runtime, plan);
    if (entries_of_task_folder() != threads_before)
        fail("threads were started before the first forward");

    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.n_tokens = TOKENS;
    args.x = x;
    args.out = out;
    must(api, api->forward(plan, weights, workspace, &args), "forward");
    printf("threads: %d before, %d with the library's own\n", threads_before,
           entries_of_task_folder());
    if (entries_of_task_folder() != threads_before + 2)
        fail("n_threads 3 are the caller and two more");
    compare(w, x, out);

    api->runtime_destroy(runtime); /* any order: what is still needed lives on */
    api->plan_destroy(plan);
    api->workspace_destroy(workspace);
    api->weights_destroy(weights);
    if (threads_after_settling(threads_before) != threads_before)
        fail("a thread outlives the handles");
}

int main(int argc, char** argv) {
    static weights_of_layer w;
    static float x[TOKENS * HIDDEN];
    const int threads_before = entries_of_task_folder();
    unsigned state = 1;
    char error[1024];
    moe_api api;

    if (is_mapped("libmoe.so"))
        fail("libmoe is mapped before it is opened: this test would prove nothing");
    if (moe_dl_open(&api, argc > 1 ? argv[1] : NULL, error, sizeof error) != MOE_OK)
        fail("%s", error);
    if (!is_mapped("libmoe.so")) fail("libmoe is open but not mapped");
    printf("libmoe %s\n%s\n", api.version_string(), api.build_info());

    fill_random(w.router, EXPERTS * HIDDEN, 0.2f, &state);
    fill_random(w.gate, EXPERTS * INTERMEDIATE * HIDDEN, 0.1f, &state);
    fill_random(w.up, EXPERTS * INTERMEDIATE * HIDDEN, 0.1f, &state);
    fill_random(w.down, EXPERTS * HIDDEN * INTERMEDIATE, 0.15f, &state);
    fill_random(x, TOKENS * HIDDEN, 1.0f, &state);

    wrong_field_is_named(&api);
    run_layer(&api, &w, x);
    run_layer(&api, &w, x); /* again from nothing */

    moe_dl_close(&api);
    if (is_mapped("libmoe.so")) fail("libmoe is still mapped after dlclose");
    if (threads_after_settling(threads_before) != threads_before)
        fail("a thread outlives the library");
    puts("dlopen client: good");
    return 0;
}
