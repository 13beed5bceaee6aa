/* forward.c - the way through moe.h: one layer of a checkpoint, a few random tokens.  forward
 * CHECKPOINT [TOKENS] */
#include <moe/moe.h>
#include <stdio.h>
#include <stdlib.h>

static void check(moe_status status) {
    if (status == MOE_OK) return;
    fprintf(stderr, "forward: %s\n", moe_last_error());
    exit(1);
}

int main(int argc, char** argv) {
    const int64_t n_tokens = argc > 2 ? atoi(argv[2]) : 4;
    moe_format formats[MOE_ROLE_COUNT], *by_role[MOE_ROLE_COUNT];
    moe_layer_desc layer = {.struct_size = sizeof layer};
    moe_plan_desc desc = {
        .struct_size = sizeof desc, .x_type = MOE_TYPE_F32, .max_tokens = n_tokens};
    moe_workspace_desc scratch = {.struct_size = sizeof scratch};
    moe_forward_args args = {.struct_size = sizeof args, .n_tokens = n_tokens};
    moe_checkpoint* checkpoint = NULL;
    moe_plan* plan = NULL;
    moe_weights* weights = NULL;
    moe_workspace* workspace = NULL;
    int32_t number;

    if (argc < 2 || n_tokens < 1) return fprintf(stderr, "usage: forward CHECKPOINT [TOKENS]\n"), 2;
    for (int role = 0; role < MOE_ROLE_COUNT; role++) {
        formats[role] = (moe_format){.struct_size = sizeof(moe_format)};
        by_role[role] = &formats[role];
    }
    check(moe_checkpoint_open(NULL, argv[1], NULL, &checkpoint));
    check(moe_checkpoint_layer_at(checkpoint, 0, &number));
    check(moe_checkpoint_layer(checkpoint, number, &layer));
    check(moe_checkpoint_formats(checkpoint, number, by_role, MOE_ROLE_COUNT));

    desc.layer = &layer;
    desc.formats = (const moe_format* const*)by_role;
    desc.n_formats = MOE_ROLE_COUNT;
    check(moe_plan_create(NULL, &desc, &plan));
    check(moe_weights_load_checkpoint(plan, checkpoint, number, NULL, &weights));
    scratch.plan = plan;
    check(moe_workspace_create(NULL, &scratch, &workspace));

    float* x = malloc(sizeof *x * (size_t)(n_tokens * layer.hidden));
    float* out = malloc(sizeof *out * (size_t)(n_tokens * layer.hidden));
    int32_t* ids = malloc(sizeof *ids * (size_t)(n_tokens * layer.top_k));
    if (!x || !out || !ids) return fprintf(stderr, "forward: out of memory\n"), 1;
    for (int64_t i = 0; i < n_tokens * layer.hidden; i++)
        x[i] = (float)rand() / (float)RAND_MAX * 2.0f - 1.0f;

    args.x = x;
    args.out = out;
    args.out_ids = ids;
    check(moe_forward(plan, weights, workspace, &args));
    for (int64_t t = 0; t < n_tokens; t++) {
        printf("token %d: experts", (int)t);
        for (int32_t j = 0; j < layer.top_k; j++) printf(" %d", (int)ids[t * layer.top_k + j]);
        printf("; out %.4f %.4f %.4f ...\n", out[t * layer.hidden], out[t * layer.hidden + 1],
               out[t * layer.hidden + 2]);
    }

    free(x), free(out), free(ids);
    moe_workspace_destroy(workspace);
    moe_weights_destroy(weights);
    moe_plan_destroy(plan);
    moe_checkpoint_destroy(checkpoint);
    return 0;
}
