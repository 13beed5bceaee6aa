/* forward.c - the way through moe.h: one layer of a checkpoint, a few random tokens. */
#include <moe/moe.h>
#include <stdio.h>
#include <stdlib.h>

static void check(moe_status status) {
    if (status != MOE_OK) exit((fprintf(stderr, "forward: %s\n", moe_last_error()), 1));
}

int main(int argc, char** argv) {
    enum { n_tokens = 4 };
    moe_layer_desc layer = {.struct_size = sizeof layer};
    moe_plan_desc desc = {.struct_size = sizeof desc,
                          .device = MOE_DEVICE_CPU, /* x and out are host memory */
                          .x_type = MOE_TYPE_F32,
                          .max_tokens = n_tokens};
    moe_workspace_desc scratch = {.struct_size = sizeof scratch};
    moe_forward_args args = {.struct_size = sizeof args, .n_tokens = n_tokens};
    moe_checkpoint* checkpoint;
    moe_plan* plan;
    moe_weights* weights;
    moe_workspace* workspace;

    if (argc != 2) return fprintf(stderr, "usage: forward CHECKPOINT\n"), 2;
    check(moe_checkpoint_open(NULL, argv[1], NULL, &checkpoint));
    check(moe_checkpoint_layer_at(checkpoint, 0, &desc.checkpoint_layer));
    check(moe_checkpoint_layer(checkpoint, desc.checkpoint_layer, &layer));
    desc.checkpoint = checkpoint;
    check(moe_plan_create(NULL, &desc, &plan));
    check(moe_weights_load_checkpoint(plan, checkpoint, desc.checkpoint_layer, NULL, &weights));
    scratch.plan = plan;
    check(moe_workspace_create(NULL, &scratch, &workspace));

    float* x = malloc(sizeof(float) * n_tokens * (size_t)layer.hidden);
    float* out = malloc(sizeof(float) * n_tokens * (size_t)layer.hidden);
    for (int i = 0; i < n_tokens * layer.hidden; i++) x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    args.x = x;
    args.out = out;
    check(moe_forward(plan, weights, workspace, &args));
    for (int t = 0; t < n_tokens; t++) printf("token %d: %g ...\n", t, out[t * layer.hidden]);

    free(x), free(out);
    moe_workspace_destroy(workspace);
    moe_weights_destroy(weights);
    moe_plan_destroy(plan);
    moe_checkpoint_destroy(checkpoint);
    return 0;
}
