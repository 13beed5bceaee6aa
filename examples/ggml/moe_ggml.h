/* moe_ggml.h - libggml-libmoe.so for programs that link it themselves. llama.cpp needs none of
 * this: it finds the library through GGML_BACKEND_PATH and calls ggml_backend_init. */
#ifndef MOE_GGML_H
#define MOE_GGML_H

#include <stddef.h>
#include <stdint.h>

#define MOE_GGML_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* A function of ggml by its name, as ggml declares it: {"ggml_version", (void
 * (*)(void))ggml_version}. */
typedef struct moe_ggml_function {
    const char* name;
    void (*address)(void);
} moe_ggml_function;

/* For programs that link ggml statically, where no library of ggml can be found in the process. The
 * list has the functions that moe_ggml_function_at names; without those behind
 * ggml_backend_register experts are computed by threads of libmoe's own. Registers the backend by
 * ggml_backend_register: call it once, before a model is loaded. 0: registered. -1: not, and
 * standard error has the reason. */
MOE_GGML_API int moe_ggml_register(const moe_ggml_function* functions, size_t n_functions);

/* Names of the functions of ggml that are called; static, NULL past the end. */
MOE_GGML_API const char* moe_ggml_function_at(size_t index);

/* Counts since the process began, over all contexts. */
typedef struct moe_ggml_counts {
    uint64_t graphs; /* calls of graph_compute */
    uint64_t
        chains; /* expert chains, from gate and up to the weighted sum, as one call of libmoe */
    uint64_t
        slot_chains;   /* chains that ended with a row per slot; the rest of them is among loops */
    uint64_t matrices; /* MUL_MAT_ID alone, by libmoe */
    uint64_t loops;    /* other operations, and matrices that libmoe's plan refused: plain loops */
    uint64_t shared;   /* of graphs: those computed by ggml's threads */
} moe_ggml_counts;

MOE_GGML_API void moe_ggml_get_counts(moe_ggml_counts* out_counts);

#ifdef __cplusplus
}
#endif

#endif /* MOE_GGML_H */
