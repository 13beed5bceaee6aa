/* gguf_layer.c - a layer of a GGUF file used where it lies: the file is mapped, the matrices are
 * borrowed from the mapping, and no copy of them exists. The checkpoint may be closed at once, the
 * weights keep the mapping alive. A CUDA plan copies its weights, so this example is the CPU's.
 *
 *   gguf_layer FILE.gguf [LAYER]      the first MoE layer unless said otherwise */
#include <moe/moe.h>
#include <stdio.h>
#include <stdlib.h>

static void check(moe_status status) {
    if (status == MOE_OK) return;
    fprintf(stderr, "gguf_layer: %s\n", moe_last_error());
    exit(1);
}

typedef struct loaded_layer {
    moe_layer_desc desc;
    moe_plan* plan;
    moe_weights* weights;
} loaded_layer;

static moe_plan* make_plan(const moe_checkpoint* checkpoint, int32_t number,
                           moe_layer_desc* layer) {
    moe_format formats[MOE_ROLE_COUNT], *by_role[MOE_ROLE_COUNT];
    moe_plan_desc desc = {.struct_size = sizeof desc,
                          .device = MOE_DEVICE_CPU,
                          .x_type = MOE_TYPE_F32,
                          .max_tokens = 1};
    moe_plan* plan = NULL;
    for (int role = 0; role < MOE_ROLE_COUNT; role++) {
        formats[role] = (moe_format){.struct_size = sizeof(moe_format)};
        by_role[role] = &formats[role];
    }
    check(moe_checkpoint_layer(checkpoint, number, layer));
    check(moe_checkpoint_formats(checkpoint, number, by_role, MOE_ROLE_COUNT));
    desc.layer = layer;
    desc.formats = (const moe_format* const*)by_role;
    desc.n_formats = MOE_ROLE_COUNT;
    check(moe_plan_create(NULL, &desc, &plan));
    return plan;
}

static loaded_layer load(const char* path, int32_t number) {
    loaded_layer layer = {.desc = {.struct_size = sizeof layer.desc}};
    moe_checkpoint_info info = {.struct_size = sizeof info};
    moe_load_options options = {.struct_size = sizeof options, .ownership = MOE_OWN_BORROW};
    moe_checkpoint* checkpoint = NULL;
    check(moe_checkpoint_open(NULL, path, NULL, &checkpoint));
    check(moe_checkpoint_get_info(checkpoint, &info));
    if (!info.is_gguf) fprintf(stderr, "gguf_layer: %s is no GGUF file\n", path), exit(1);
    if (number < 0) check(moe_checkpoint_layer_at(checkpoint, 0, &number));
    layer.plan = make_plan(checkpoint, number, &layer.desc);
    check(moe_weights_load_checkpoint(layer.plan, checkpoint, number, &options, &layer.weights));
    moe_checkpoint_destroy(checkpoint);
    printf("%s: layer %d of %s, %d experts, top-%d\n", path, (int)number, info.model_type,
           (int)layer.desc.n_experts, (int)layer.desc.top_k);
    return layer;
}

static void print_memory(const moe_weights* weights) {
    static const char* const names[] = {"", "router", "", "", "", "", "", "gate", "up", "down"};
    moe_memory_report report = {.struct_size = sizeof report};
    check(moe_weights_memory(weights, &report));
    printf("borrowed    %12llu bytes of the mapped file\n",
           (unsigned long long)report.borrowed_bytes);
    printf("own         %12llu bytes\n", (unsigned long long)report.host_bytes);
    printf("bookkeeping %12llu bytes\n", (unsigned long long)report.bookkeeping_bytes);
    for (int role = MOE_ROLE_ROUTER; role <= MOE_ROLE_DOWN; role++)
        if (names[role][0])
            printf("  %-9s %12llu bytes\n", names[role],
                   (unsigned long long)report.role_bytes[role]);
}

static void forward_one(const loaded_layer* layer) {
    const size_t hidden = (size_t)layer->desc.hidden;
    float *x = malloc(sizeof *x * hidden), *out = malloc(sizeof *out * hidden);
    moe_workspace_desc scratch = {.struct_size = sizeof scratch, .plan = layer->plan};
    moe_forward_args args = {.struct_size = sizeof args, .n_tokens = 1, .x = x, .out = out};
    moe_workspace* workspace = NULL;
    if (!x || !out) fprintf(stderr, "gguf_layer: out of memory\n"), exit(1);
    for (size_t i = 0; i < hidden; i++) x[i] = (float)(i % 7) / 3.0f - 1.0f;
    check(moe_workspace_create(NULL, &scratch, &workspace));
    check(moe_forward(layer->plan, layer->weights, workspace, &args));
    printf("out %.4f %.4f %.4f ...\n", out[0], out[1], out[2]);
    moe_workspace_destroy(workspace);
    free(x);
    free(out);
}

int main(int argc, char** argv) {
    if (argc < 2) return fprintf(stderr, "usage: gguf_layer FILE.gguf [LAYER]\n"), 2;
    loaded_layer layer = load(argv[1], argc > 2 ? atoi(argv[2]) : -1);
    print_memory(layer.weights);
    forward_one(&layer);
    moe_weights_destroy(layer.weights);
    moe_plan_destroy(layer.plan);
    return 0;
}
