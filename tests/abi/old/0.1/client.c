/*
 * A program of libmoe 0.1, kept with the header it was written for and never changed: later
 * libraries of the same ABI version must serve it. It runs a small layer whole and stage by stage,
 * compares with loops of its own, and passes every struct in four ways: as its header has it; as a
 * program of an older header would (cut after the last field that is set); as one of a newer header
 * would (64 bytes longer, zeros); and, one struct after the other, with something in that tail that
 * the library cannot know, which it must refuse.
 */
#include <math.h>
#include <moe/moe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HIDDEN = 32,
    INTERMEDIATE = 16,
    EXPERTS = 4,
    TOP_K = 2,
    TOKENS = 3,
    ROWS = TOKENS * TOP_K,
    TAIL = 64
};

typedef enum manner { EXACT, OLDER, NEWER } manner;

static manner current;
static int n_passed,
    tainted; /* structs passed so far in this run; the one whose tail is not zero, or -1 */
static void* copies[256];
static int n_copies;

static void fail(const char* what) {
    fprintf(stderr, "client of 0.1: %s: \"%s\"\n", what, moe_last_error());
    exit(1);
}

/* ---- structs, as programs of other headers have them */

static void* kept(size_t bytes) {
    void* copy = calloc(1, bytes);
    if (!copy || n_copies == 256) fail("no memory for a struct");
    return copies[n_copies++] = copy;
}

static void forget_copies(void) {
    while (n_copies > 0) free(copies[--n_copies]);
}

/* Eight bytes hold one field or two halves, so a multiple of eight never cuts one. */
static uint32_t used_size(const unsigned char* bytes, uint32_t size) {
    uint32_t used = size;
    while (used > 4 && !bytes[used - 1]) --used;
    used = (used + 7) / 8 * 8;
    return used < size ? used : size;
}

static const void* in(const void* whole, uint32_t size) {
    const int is_tainted = n_passed++ == tainted;
    unsigned char* copy = kept(size + TAIL);
    uint32_t given = current == OLDER ? used_size(whole, size) : size;
    if (current == NEWER || is_tainted) given = size + TAIL;
    memcpy(copy, whole, size);
    memcpy(copy, &given, sizeof given);
    if (given < size)
        memset(copy + given, 0x5A, size + TAIL - given); /* not the library's to read */
    if (is_tainted) copy[size + TAIL - 1] = 1;
    return copy;
}

#define IN(type, value) ((const type*)in(&(value), (uint32_t)sizeof(type)))

/* A struct that the library fills: as long as the header has it, or longer with old bytes in the
 * tail. */
static void* out(uint32_t size) {
    unsigned char* bytes = kept(size + 2 * TAIL);
    uint32_t given = current == NEWER ? size + TAIL : size;
    memset(bytes, 0x5A, size + 2 * TAIL);
    memcpy(bytes, &given, sizeof given);
    return bytes;
}

static const void* filled(const void* given, uint32_t size) {
    const unsigned char* bytes = given;
    uint32_t said, i;
    memcpy(&said, bytes, sizeof said);
    if (said != (current == NEWER ? size + TAIL : size))
        fail("struct_size of an output was changed");
    for (i = size; i < said; ++i)
        if (bytes[i]) fail("an output is not zero beyond what the library knows");
    for (i = said; i < said + TAIL; ++i)
        if (bytes[i] != 0x5A) fail("an output was written beyond its struct_size");
    return given;
}

#define OUT(type) ((type*)out((uint32_t)sizeof(type)))
#define FILLED(type, given) (*(const type*)filled(given, (uint32_t)sizeof(type)))

/* ---- the layer */

typedef struct layer {
    float router[EXPERTS * HIDDEN], gate[EXPERTS * INTERMEDIATE * HIDDEN],
        up[EXPERTS * INTERMEDIATE * HIDDEN];
    float down[EXPERTS * HIDDEN * INTERMEDIATE], x[TOKENS * HIDDEN], wanted[TOKENS * HIDDEN];
} layer;

typedef struct handles {
    moe_runtime* runtime;
    moe_plan* plan;
    moe_weights* weights;
    moe_workspace* workspace;
} handles;

static void fill(float* values, size_t count, float scale, unsigned* state) {
    size_t i;
    for (i = 0; i < count; ++i) {
        *state = *state * 1664525u + 1013904223u;
        values[i] = scale * ((float)(*state >> 8) / 8388608.0f - 1.0f);
    }
}

static double dot(const float* a, const float* b, int n) {
    double sum = 0;
    int i;
    for (i = 0; i < n; ++i) sum += (double)a[i] * b[i];
    return sum;
}

static void add_expert(const layer* l, int expert, double weight, const float* x, double* sum) {
    double act[INTERMEDIATE];
    int i, j;
    for (i = 0; i < INTERMEDIATE; ++i) {
        const size_t row = ((size_t)expert * INTERMEDIATE + (size_t)i) * HIDDEN;
        const double g = dot(l->gate + row, x, HIDDEN);
        act[i] = g / (1 + exp(-g)) * dot(l->up + row, x, HIDDEN);
    }
    for (j = 0; j < HIDDEN; ++j)
        for (i = 0; i < INTERMEDIATE; ++i)
            sum[j] += weight *
                      l->down[((size_t)expert * HIDDEN + (size_t)j) * INTERMEDIATE + (size_t)i] *
                      act[i];
}

/* softmax, the two largest, divided by their sum, which leaves the softmax of the two. */
static void own_forward(layer* l) {
    int t, e, j;
    for (t = 0; t < TOKENS; ++t) {
        const float* x = l->x + t * HIDDEN;
        double z[EXPERTS], sum[HIDDEN] = {0}, first;
        int best = 0, second;
        for (e = 0; e < EXPERTS; ++e) z[e] = dot(l->router + e * HIDDEN, x, HIDDEN);
        for (e = 1; e < EXPERTS; ++e) best = z[e] > z[best] ? e : best;
        second = best == 0 ? 1 : 0;
        for (e = 0; e < EXPERTS; ++e) second = e != best && z[e] > z[second] ? e : second;
        first = 1 / (1 + exp(z[second] - z[best]));
        add_expert(l, best, first, x, sum);
        add_expert(l, second, 1 - first, x, sum);
        for (j = 0; j < HIDDEN; ++j) l->wanted[t * HIDDEN + j] = (float)sum[j];
    }
}

static void make_layer(layer* l) {
    unsigned state = 1;
    fill(l->router, EXPERTS * HIDDEN, 0.5f, &state);
    fill(l->gate, EXPERTS * INTERMEDIATE * HIDDEN, 0.3f, &state);
    fill(l->up, EXPERTS * INTERMEDIATE * HIDDEN, 0.3f, &state);
    fill(l->down, EXPERTS * HIDDEN * INTERMEDIATE, 0.3f, &state);
    fill(l->x, TOKENS * HIDDEN, 1, &state);
    own_forward(l);
}

static void compare(const layer* l, const float* got, const char* what) {
    double error = 0, size = 0;
    int i;
    for (i = 0; i < TOKENS * HIDDEN; ++i) {
        error += pow((double)got[i] - l->wanted[i], 2);
        size += pow(l->wanted[i], 2);
    }
    if (!(error <= 1e-10 * size) || size == 0) fail(what);
}

/* ---- calls: each answers the first status that is not MOE_OK */

static uint64_t allocated;

static void* MOE_CALL allocate(uint64_t bytes, uint64_t alignment, moe_space space, void* stream,
                               void* user_data) {
    unsigned char *base, *memory;
    (void)stream;
    if (space != MOE_SPACE_HOST || user_data != &allocated || bytes == 0) return NULL;
    base = malloc((size_t)(bytes + alignment + sizeof base));
    if (!base) return NULL;
    memory = base + sizeof base;
    memory += (alignment - (uintptr_t)memory % alignment) % alignment;
    memcpy(memory - sizeof base, &base, sizeof base);
    allocated += bytes;
    return memory;
}

static void MOE_CALL release(void* memory, uint64_t bytes, uint64_t alignment, moe_space space,
                             void* stream, void* user_data) {
    void* base;
    (void)alignment, (void)space, (void)stream, (void)user_data;
    memcpy(&base, (unsigned char*)memory - sizeof base, sizeof base);
    allocated -= bytes;
    free(base);
}

#define TRY(call)                              \
    do {                                       \
        const moe_status status_ = (call);     \
        if (status_ != MOE_OK) return status_; \
    } while (0)

static moe_status make_runtime(handles* h) {
    moe_allocator allocator = {0};
    moe_runtime_desc desc = {0};
    allocator.allocate = allocate;
    allocator.release = release;
    allocator.user_data = &allocated;
    desc.n_threads = 2;
    desc.allocator = IN(moe_allocator, allocator);
    return moe_runtime_create(IN(moe_runtime_desc, desc), &h->runtime);
}

static moe_status make_plan(handles* h, const moe_format* format) {
    const moe_format* formats[MOE_ROLE_DOWN + 1] = {0};
    moe_layer_desc math = {0};
    moe_slice slice = {0};
    moe_plan_desc desc = {0};
    math.hidden = HIDDEN;
    math.intermediate = INTERMEDIATE;
    math.n_experts = EXPERTS;
    math.top_k = TOP_K;
    math.has_router = 1;
    math.score = MOE_SCORE_SOFTMAX;
    math.renormalize = MOE_RENORMALIZE_SUM_ADD;
    math.activation = MOE_ACTIVATION_SILU;
    math.is_gated = 1;
    TRY(moe_layer_validate(IN(moe_layer_desc, math)));
    formats[MOE_ROLE_ROUTER] = formats[MOE_ROLE_GATE] = formats[MOE_ROLE_UP] =
        formats[MOE_ROLE_DOWN] = format;
    desc.device = MOE_DEVICE_CPU;
    desc.x_type = MOE_TYPE_F32;
    desc.layer = IN(moe_layer_desc, math);
    desc.formats = formats;
    desc.n_formats = MOE_ROLE_DOWN + 1;
    desc.max_tokens = TOKENS;
    TRY(moe_plan_create(h->runtime, IN(moe_plan_desc, desc), &h->plan));
    slice.has_expert_range = 1;
    slice.expert_count = EXPERTS / 2;
    desc.partial = 1;
    desc.slice = IN(moe_slice, slice);
    return moe_supports(h->runtime, IN(moe_plan_desc, desc));
}

static moe_tensor stack(moe_role role, const moe_format* format, int rows, int columns,
                        const float* data) {
    moe_tensor tensor = {0};
    const int64_t n = role == MOE_ROLE_ROUTER ? 1 : EXPERTS;
    tensor.role = role;
    tensor.expert = MOE_ALL_EXPERTS;
    tensor.format = format;
    tensor.n_experts = EXPERTS;
    tensor.rows = rows;
    tensor.columns = columns;
    tensor.data = data;
    tensor.data_bytes = (uint64_t)(n * rows * columns) * sizeof *data;
    return tensor;
}

static moe_status load(handles* h, const layer* l, const moe_format* format) {
    const moe_tensor router = stack(MOE_ROLE_ROUTER, format, EXPERTS, HIDDEN, l->router);
    const moe_tensor gate = stack(MOE_ROLE_GATE, format, INTERMEDIATE, HIDDEN, l->gate);
    const moe_tensor up = stack(MOE_ROLE_UP, format, INTERMEDIATE, HIDDEN, l->up);
    const moe_tensor down = stack(MOE_ROLE_DOWN, format, HIDDEN, INTERMEDIATE, l->down);
    const moe_tensor* tensors[4];
    moe_weights_desc desc = {0};
    moe_memory_report* report = OUT(moe_memory_report);
    tensors[0] = IN(moe_tensor, router);
    tensors[1] = IN(moe_tensor, gate);
    tensors[2] = IN(moe_tensor, up);
    tensors[3] = IN(moe_tensor, down);
    desc.tensors = tensors;
    desc.n_tensors = 4;
    TRY(moe_weights_load(h->plan, IN(moe_weights_desc, desc), &h->weights));
    TRY(moe_weights_memory(h->weights, report));
    if (FILLED(moe_memory_report, report).role_bytes[MOE_ROLE_UP] != sizeof l->up)
        fail("bytes of the up matrices");
    return MOE_OK;
}

static moe_status make_workspace(handles* h) {
    moe_workspace_need* need = OUT(moe_workspace_need);
    moe_candidate* candidate = OUT(moe_candidate);
    moe_workspace_desc desc = {0};
    TRY(moe_plan_workspace_size(h->plan, TOKENS, need));
    if (!FILLED(moe_workspace_need, need).host_bytes) fail("host bytes of a workspace");
    TRY(moe_candidates(h->plan, 0, candidate));
    if (FILLED(moe_candidate, candidate).stage != MOE_STAGE_ROUTE)
        fail("stage of the first candidate");
    desc.plan = h->plan;
    return moe_workspace_create(h->runtime, IN(moe_workspace_desc, desc), &h->workspace);
}

static moe_status whole(handles* h, const layer* l) {
    float result[TOKENS * HIDDEN] = {0};
    moe_workspace_faults* faults = OUT(moe_workspace_faults);
    moe_forward_args args = {0};
    args.n_tokens = TOKENS;
    args.x = l->x;
    args.out = result;
    TRY(moe_forward(h->plan, h->weights, h->workspace, IN(moe_forward_args, args)));
    compare(l, result, "moe_forward differs from the client's own loops");
    TRY(moe_workspace_status(h->workspace, faults));
    if (FILLED(moe_workspace_faults, faults).faults) fail("faults of a good call");
    return MOE_OK;
}

typedef struct routed {
    int32_t ids[ROWS], row_ids[ROWS];
    float weights[ROWS];
    int64_t offsets[EXPERTS + 1];
} routed;

static moe_status route_and_dispatch(handles* h, const layer* l, routed* r) {
    moe_route_args route = {0};
    moe_dispatch_args dispatch = {0};
    route.n_tokens = dispatch.n_tokens = TOKENS;
    route.x = l->x;
    route.out_ids = r->ids;
    route.out_weights = r->weights;
    TRY(moe_route(h->plan, h->weights, h->workspace, IN(moe_route_args, route)));
    dispatch.ids = r->ids;
    dispatch.out_offsets = r->offsets;
    dispatch.out_row_ids = r->row_ids;
    dispatch.row_capacity = ROWS;
    return moe_dispatch(h->plan, h->workspace, IN(moe_dispatch_args, dispatch));
}

static moe_status stages(handles* h, const layer* l) {
    routed r = {{0}, {0}, {0}, {0}};
    float rows[ROWS * HIDDEN] = {0}, sum[TOKENS * HIDDEN] = {0}, result[TOKENS * HIDDEN] = {0};
    moe_experts_args experts = {0};
    moe_combine_args combine = {0};
    moe_finish_args finish = {0};
    TRY(route_and_dispatch(h, l, &r));
    experts.n_tokens = combine.n_tokens = finish.n_tokens = TOKENS;
    experts.out_layout = MOE_OUT_ROWS;
    experts.x = l->x;
    experts.offsets = r.offsets;
    experts.row_ids = r.row_ids;
    experts.n_rows = combine.n_rows = ROWS;
    experts.out = rows;
    TRY(moe_experts(h->plan, h->weights, h->workspace, IN(moe_experts_args, experts)));
    combine.rows_layout = MOE_IN_SORTED;
    combine.rows = rows;
    combine.row_ids = r.row_ids;
    combine.ids = r.ids;
    combine.weights = r.weights;
    combine.out = sum;
    TRY(moe_combine(h->plan, h->workspace, IN(moe_combine_args, combine)));
    finish.routed = sum;
    finish.out = result;
    TRY(moe_finish(h->plan, h->weights, h->workspace, IN(moe_finish_args, finish)));
    compare(l, result, "the stages differ from the client's own loops");
    return MOE_OK;
}

static moe_status host_tools(const layer* l) {
    unsigned char codes[HIDDEN * sizeof(uint16_t)];
    float back[HIDDEN];
    moe_format* format = OUT(moe_format);
    moe_format_info* info = OUT(moe_format_info);
    moe_quantize_args args = {0};
    moe_tensor tensor;
    int i;
    TRY(moe_format_by_name("bf16", format));
    format = (moe_format*)IN(moe_format, FILLED(moe_format, format));
    TRY(moe_format_get_info(format, info));
    if (strcmp(FILLED(moe_format_info, info).name, "bf16") != 0) fail("name of a format");
    args.format = format;
    args.source = l->x;
    args.rows = 1;
    args.columns = HIDDEN;
    args.data = codes;
    args.data_bytes = sizeof codes;
    TRY(moe_quantize(IN(moe_quantize_args, args)));
    tensor = stack(MOE_ROLE_ROUTER, format, 1, HIDDEN, NULL);
    tensor.data = codes;
    tensor.data_bytes = sizeof codes;
    TRY(moe_dequantize(IN(moe_tensor, tensor), 0, back, HIDDEN));
    for (i = 0; i < HIDDEN; ++i)
        if (!(fabs(back[i] - l->x[i]) <= fabs(l->x[i]) / 256)) fail("bf16 there and back");
    return MOE_OK;
}

static moe_status questions(void) {
    moe_device_info* device = OUT(moe_device_info);
    moe_checkpoint_options options = {0};
    moe_checkpoint* checkpoint = NULL;
    moe_status status;
    TRY(moe_device_get_info(MOE_DEVICE_CPU, 0, device));
    if (FILLED(moe_device_info, device).kind != MOE_DEVICE_CPU) fail("kind of the CPU");
    options.io = MOE_IO_READ;
    status =
        moe_checkpoint_open(NULL, "/nonexistent", IN(moe_checkpoint_options, options), &checkpoint);
    if (status == MOE_OK || checkpoint) fail("a checkpoint that is not there was opened");
    return status == MOE_ERROR_ABI ? status : MOE_OK;
}

static moe_status calls(handles* h, const layer* l) {
    moe_format* format = OUT(moe_format);
    TRY(moe_format_by_name("f32", format));
    format = (moe_format*)IN(moe_format, FILLED(moe_format, format));
    TRY(make_runtime(h));
    TRY(make_plan(h, format));
    TRY(load(h, l, format));
    TRY(make_workspace(h));
    TRY(whole(h, l));
    TRY(stages(h, l));
    TRY(host_tools(l));
    return questions();
}

static moe_status run(const layer* l, manner m, int tainted_struct) {
    handles h = {0};
    moe_status status;
    current = m;
    tainted = tainted_struct;
    n_passed = 0;
    status = calls(&h, l);
    if (status != MOE_OK && tainted_struct < 0) fail("a call failed");
    moe_runtime_destroy(h.runtime);
    moe_plan_destroy(h.plan);
    moe_weights_destroy(h.weights);
    moe_workspace_destroy(h.workspace);
    forget_copies();
    if (allocated) fail("memory of the allocator was not given back");
    return status;
}

/* What a program of 0.1 has compiled into it. */
static void check_numbers(void) {
    static const char* const names[] = {"MOE_OK",
                                        "MOE_ERROR_INVALID_ARGUMENT",
                                        "MOE_ERROR_OUT_OF_MEMORY",
                                        "MOE_ERROR_UNSUPPORTED",
                                        "MOE_ERROR_NOT_BUILT",
                                        "MOE_ERROR_NO_DEVICE",
                                        "MOE_ERROR_LAYOUT_MISMATCH",
                                        "MOE_ERROR_WORKSPACE_TOO_SMALL",
                                        "MOE_ERROR_CANCELLED",
                                        "MOE_ERROR_FORKED",
                                        "MOE_ERROR_IO",
                                        "MOE_ERROR_CORRUPT_FILE",
                                        "MOE_ERROR_NOT_FOUND",
                                        "MOE_ERROR_ABI",
                                        "MOE_ERROR_DEVICE",
                                        "MOE_ERROR_BUSY",
                                        "MOE_ERROR_BUFFER_TOO_SMALL",
                                        "MOE_ERROR_INTERNAL"};
    int i;
    if (moe_abi_version() != MOE_ABI_VERSION) fail("the library has another ABI version");
    if (moe_version() < MOE_VERSION_NUMBER) fail("the library is older than this client");
    for (i = 0; i < (int)(sizeof names / sizeof *names); ++i)
        if (strcmp(moe_status_name(-i), names[i]) != 0) fail(names[i]);
    if (strcmp(moe_role_name(MOE_ROLE_LATENT_NORM), "latent_norm") != 0) fail("the last role");
    if (strcmp(moe_type_name(MOE_TYPE_F8_E4M4), "f8_e4m4") != 0) fail("a type");
}

int main(void) {
    static layer l;
    int i, n_structs;
    make_layer(&l);
    check_numbers();
    run(&l, EXACT, -1);
    n_structs = n_passed;
    run(&l, OLDER, -1);
    run(&l, NEWER, -1);
    for (i = 0; i < n_structs; ++i)
        if (run(&l, EXACT, i) != MOE_ERROR_ABI)
            return fprintf(stderr, "struct %d: a tail that is not zero was accepted\n", i), 1;
    printf("%d structs passed as older, exact and newer; each refused with an unknown tail\n",
           n_structs);
    return 0;
}
