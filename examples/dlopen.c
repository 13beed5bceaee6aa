/* dlopen.c - the library loaded at run time: nothing of libmoe is needed to build or to start this
 * program.
 *
 *   dlopen [PATH_OF_LIBMOE [cpu|cuda]]   $MOE_LIBRARY is tried first, then the path if it is not
 *                                        "", then the usual name
 *
 * It plans a layer that is described by hand, gives it weights from memory, and checks the answer
 * against the formula. */
#include <math.h>
#include <moe/moe_dl.h>

enum { HIDDEN = 32, INTERMEDIATE = 16, EXPERTS = 4 };

static moe_api api;
static moe_device_kind device = MOE_DEVICE_CPU;

static void check(moe_status status) {
    if (status == MOE_OK) return;
    fprintf(stderr, "dlopen: %s\n", api.last_error());
    exit(1);
}

/* Expert e has gate 1/H, up (e+1)/H and down 1 everywhere, so that of x = 1 every output is I
 * silu(1) (e+1). */
static float gate[EXPERTS][INTERMEDIATE][HIDDEN], up[EXPERTS][INTERMEDIATE][HIDDEN];
static float down[EXPERTS][HIDDEN][INTERMEDIATE];

static void fill_weights(void) {
    for (int e = 0; e < EXPERTS; e++)
        for (int i = 0; i < INTERMEDIATE; i++)
            for (int h = 0; h < HIDDEN; h++) {
                gate[e][i][h] = 1.0f / HIDDEN;
                up[e][i][h] = (float)(e + 1) / HIDDEN;
                down[e][h][i] = 1.0f;
            }
}

/* No router of its own: ids and weights are given with each call. */
static moe_plan* make_plan(const moe_format* f32) {
    const moe_format* formats[MOE_ROLE_COUNT] = {0};
    moe_layer_desc layer = {.struct_size = sizeof layer,
                            .hidden = HIDDEN,
                            .intermediate = INTERMEDIATE,
                            .n_experts = EXPERTS,
                            .top_k = 2,
                            .activation = MOE_ACTIVATION_SILU,
                            .is_gated = 1};
    moe_plan_desc desc = {.struct_size = sizeof desc,
                          .device = device,
                          .x_type = MOE_TYPE_F32,
                          .layer = &layer,
                          .n_formats = MOE_ROLE_COUNT,
                          .max_tokens = 1};
    moe_plan* plan = NULL;
    formats[MOE_ROLE_GATE] = formats[MOE_ROLE_UP] = formats[MOE_ROLE_DOWN] = f32;
    desc.formats = formats;
    check(api.plan_create(NULL, &desc, &plan));
    return plan;
}

static moe_tensor stack(moe_role role, int64_t rows, int64_t columns, const void* data,
                        const moe_format* f32) {
    moe_tensor tensor = {.struct_size = sizeof tensor,
                         .role = role,
                         .expert = MOE_ALL_EXPERTS,
                         .format = f32,
                         .n_experts = EXPERTS,
                         .rows = rows,
                         .columns = columns,
                         .data = data,
                         .data_bytes = (uint64_t)(EXPERTS * rows * columns) * sizeof(float)};
    return tensor;
}

static moe_weights* load_weights(const moe_plan* plan, const moe_format* f32) {
    const moe_tensor tensors[3] = {stack(MOE_ROLE_GATE, INTERMEDIATE, HIDDEN, gate, f32),
                                   stack(MOE_ROLE_UP, INTERMEDIATE, HIDDEN, up, f32),
                                   stack(MOE_ROLE_DOWN, HIDDEN, INTERMEDIATE, down, f32)};
    const moe_tensor* pointers[3] = {&tensors[0], &tensors[1], &tensors[2]};
    moe_weights_desc desc = {.struct_size = sizeof desc, .tensors = pointers, .n_tensors = 3};
    moe_weights* weights = NULL;
    check(api.weights_load(plan, &desc, &weights));
    return weights;
}

/* What a call reads and writes: one block of the device, filled from the host's and copied back. */
typedef struct one_token {
    float x[HIDDEN], out[HIDDEN], routing_weights[2];
    int32_t ids[2];
} one_token;

static void run(const moe_plan* plan, const moe_weights* weights, one_token* there, void* stream) {
    moe_workspace_desc scratch = {.struct_size = sizeof scratch, .plan = plan, .stream = stream};
    moe_forward_args args = {.struct_size = sizeof args,
                             .routing = MOE_ROUTING_IDS_AND_WEIGHTS,
                             .n_tokens = 1,
                             .x = there->x,
                             .ids = there->ids,
                             .weights = there->routing_weights,
                             .out = there->out,
                             .stream = stream};
    moe_workspace* workspace = NULL;
    check(api.workspace_create(NULL, &scratch, &workspace));
    check(api.forward(plan, weights, workspace, &args));
    check(api.stream_synchronize(device, 0, stream));
    api.workspace_destroy(workspace);
}

static float forward(const moe_plan* plan, const moe_weights* weights) {
    one_token here = {.ids = {0, 3}, .routing_weights = {0.25f, 0.75f}};
    void *there = NULL, *stream = NULL;
    for (int h = 0; h < HIDDEN; h++) here.x[h] = 1.0f;
    check(api.stream_create(device, 0, &stream));
    check(api.memory_allocate(NULL, device, 0, MOE_SPACE_DEVICE, sizeof here, &there));
    check(api.memory_copy(device, 0, there, &here, sizeof here, stream));
    run(plan, weights, there, stream);
    check(api.memory_copy(device, 0, &here, there, sizeof here, stream));
    check(api.stream_synchronize(device, 0, stream));
    check(api.memory_free(NULL, device, 0, MOE_SPACE_DEVICE, sizeof here, there));
    check(api.stream_destroy(device, 0, stream));
    return here.out[HIDDEN - 1];
}

int main(int argc, char** argv) {
    const double silu = 1.0 / (1.0 + exp(-1.0));
    const double expected = INTERMEDIATE * silu * (0.25 * 1 + 0.75 * 4);
    moe_format f32 = {.struct_size = sizeof f32};
    char error[512];
    if (moe_dl_open(&api, argc > 1 ? argv[1] : NULL, error, sizeof error) != MOE_OK)
        return fprintf(stderr, "dlopen: %s\n", error), 1;

    if (argc > 2 && !strcmp(argv[2], "cuda")) device = MOE_DEVICE_CUDA;
    check(api.format_by_name("f32", &f32));
    fill_weights();
    moe_plan* plan = make_plan(&f32);
    moe_weights* weights = load_weights(plan, &f32);
    const float got = forward(plan, weights);
    printf("libmoe %s: got %.6f, expected %.6f\n", api.version_string(), got, expected);

    api.weights_destroy(weights);
    api.plan_destroy(plan);
    moe_dl_close(&api);
    return fabs(got - expected) < 1e-5 * expected ? 0 : 1;
}
