/* forward.c - the way through moe.h: one layer of a checkpoint, a few random tokens.
 *
 *   forward CHECKPOINT [cpu|cuda]      on the CPU "device memory" is host memory, the stream NULL
 */
#include <moe/moe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(moe_status status) {
    if (status != MOE_OK) exit((fprintf(stderr, "forward: %s\n", moe_last_error()), 1));
}

int main(int argc, char** argv) {
    enum { n_tokens = 4 };
    const int on_cuda = argc > 2 && !strcmp(argv[2], "cuda");
    const moe_device_kind device = on_cuda ? MOE_DEVICE_CUDA : MOE_DEVICE_CPU;
    moe_layer_desc layer = {.struct_size = sizeof layer};
    moe_plan_desc desc = {.struct_size = sizeof desc,
                          .device = device,
                          .x_type = MOE_TYPE_F32,
                          .max_tokens = n_tokens};
    moe_workspace_desc scratch = {.struct_size = sizeof scratch};
    moe_forward_args args = {.struct_size = sizeof args, .n_tokens = n_tokens};
    moe_checkpoint* checkpoint;
    moe_plan* plan;
    moe_weights* weights;
    moe_workspace* workspace;
    void *x_there, *out_there; /* memory of the device */

    if (argc < 2) return fprintf(stderr, "usage: forward CHECKPOINT [cpu|cuda]\n"), 2;
    check(moe_checkpoint_open(NULL, argv[1], NULL, &checkpoint));
    check(moe_checkpoint_layer_at(checkpoint, 0, &desc.checkpoint_layer));
    check(moe_checkpoint_layer(checkpoint, desc.checkpoint_layer, &layer));
    desc.checkpoint = checkpoint;
    check(moe_plan_create(NULL, &desc, &plan));
    check(moe_weights_load_checkpoint(plan, checkpoint, desc.checkpoint_layer, NULL, &weights));
    scratch.plan = plan;
    check(moe_workspace_create(NULL, &scratch, &workspace));

    const size_t bytes = sizeof(float) * n_tokens * (size_t)layer.hidden;
    float *x = malloc(bytes), *out = malloc(bytes);
    for (int i = 0; i < n_tokens * layer.hidden; i++) x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    check(moe_stream_create(device, 0, &args.stream));
    check(moe_memory_allocate(NULL, device, 0, MOE_SPACE_DEVICE, bytes, &x_there));
    check(moe_memory_allocate(NULL, device, 0, MOE_SPACE_DEVICE, bytes, &out_there));
    args.x = x_there;
    args.out = out_there;
    check(moe_memory_copy(device, 0, x_there, x, bytes, args.stream));
    check(moe_forward(plan, weights, workspace, &args));
    check(moe_memory_copy(device, 0, out, out_there, bytes, args.stream));
    check(moe_stream_synchronize(device, 0, args.stream));
    for (int t = 0; t < n_tokens; t++) printf("token %d: %g ...\n", t, out[t * layer.hidden]);

    free(x), free(out);
    moe_memory_free(NULL, device, 0, MOE_SPACE_DEVICE, bytes, x_there);
    moe_memory_free(NULL, device, 0, MOE_SPACE_DEVICE, bytes, out_there);
    moe_stream_destroy(device, 0, args.stream);
    moe_workspace_destroy(workspace);
    moe_weights_destroy(weights);
    moe_plan_destroy(plan);
    moe_checkpoint_destroy(checkpoint);
    return 0;
}
