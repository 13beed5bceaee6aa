/*
 * moe.h - the Mixture-of-Experts layer of a language model, as a C library.
 *
 *   x [T, hidden] -> router -> dispatch -> experts -> combine -> out [T, hidden]
 *
 * The way through this header is the way through the library:
 *
 *   1  linkage, version, status      6  plan: every decision, made once
 *   2  names and numbers (enums)     7  weights: the tensors of one layer
 *   3  runtime, memory, streams      8  workspace: scratch of one stream
 *   4  layer: the mathematics        9  forward, and its stages one by one
 *   5  formats and tensors          10  checkpoints  11  host tools
 *
 * A first program: open a checkpoint (10), make a plan for one of its layers (6), load weights (7), make a
 * workspace (8), call moe_forward (9). examples/forward.c does it, on the CPU or a GPU.
 *
 * Conventions, true of every declaration below unless it says otherwise
 *
 *   Structs    Every struct that is passed starts with struct_size, to be set to sizeof the struct. A struct
 *              that is zero except for struct_size is valid; fields marked "required" must be set. What zero
 *              means is said at each field. Structs only grow at the end: a smaller struct (an older program)
 *              has zeros for what it lacks; a larger one (a newer program) is accepted when all that this
 *              library does not know is zero, else MOE_ERROR_ABI. A struct_size above 65536 is taken for garbage:
 *              MOE_ERROR_ABI whatever is there. When the library fills a struct it writes
 *              struct_size bytes at most, leaves struct_size as it is, and answers MOE_ERROR_ABI when a field
 *              that does not fit would not be zero. Fields named reserved are to be zero, or the answer is
 *              MOE_ERROR_INVALID_ARGUMENT: so they can get a meaning.
 *   Pointers   Input structs, arrays and strings are read during the call and not kept, except weight bytes
 *              under MOE_OWN_BORROW and while a load in the background runs. Handles are made by *_create, *_open,
 *              *_load or *_start and ended by *_destroy; destroying NULL does nothing. Handles refer to each other
 *              only where said, so the order of destruction is free: what is still needed inside lives on.
 *   Shapes     [rows, columns], row-major. A matrix W [n, k] maps k inputs to n outputs: y = W x.
 *              Strides of activations and ids are in elements, strides of weights in bytes; 0 means dense.
 *              Counts of tokens are int64_t. T is the number of tokens, k is top_k, E the number of routed experts.
 *   Errors     Functions return moe_status: 0 good, negative an error, with a sentence in moe_last_error
 *              (thread-local). An argument error names the field and its value. Nothing is written to outputs of
 *              a call that fails in validation. Nothing aborts, nothing throws.
 *   Threads    Functions may be called from any thread. runtime, plan, checkpoint and weights handles may be
 *              used by any number of threads at once (weights: not while moe_weights_update runs on them). A
 *              workspace serves one thread or stream at a time. A handle is destroyed once, by one thread, when
 *              nobody uses it.
 *   Text out   char *buffer, uint64_t capacity, uint64_t *out_size: *out_size gets the size with the final NUL.
 *              buffer NULL with capacity 0 asks for the size alone and returns MOE_OK; a buffer that is too small
 *              gets nothing and MOE_ERROR_BUFFER_TOO_SMALL. out_size may be NULL when buffer is not.
 *   Graphs     moe_forward, moe_forward_spmd and the stages may be called while a CUDA stream is being captured,
 *              the very first call of a process included; they neither allocate nor synchronise nor read back.
 *              moe_memory_copy and moe_memory_zero may be captured, too, where all memory is of the spaces PINNED and
 *              DEVICE. Everything else must be called outside capture.
 *   fork       A CUDA plan, and a CPU plan whose runtime has started threads of its own, cannot be used in a forked
 *              child: MOE_ERROR_FORKED. moe_forward_spmd uses no thread of the runtime and can. Plans that the child makes
 *              can, with a runtime of its own or the default (NULL), which is then one of the child's.
 *   Status     What this version does not implement is declared here all the same and answers
 *              MOE_ERROR_UNSUPPORTED with its own name. README.md has the table.
 */
#ifndef MOE_MOE_H
#define MOE_MOE_H

#include <stddef.h>
#include <stdint.h>

/* ------------------------------------------------------------------------------------------------------------
 * 1  Linkage, version, status
 * --------------------------------------------------------------------------------------------------------- */

#if defined(SWIG) || defined(MOE_STATIC)
#define MOE_API
#elif defined(_WIN32) && defined(MOE_BUILDING)
#define MOE_API __declspec(dllexport)
#elif defined(_WIN32)
#define MOE_API __declspec(dllimport)
#elif defined(__GNUC__)
#define MOE_API __attribute__((visibility("default")))
#else
#define MOE_API
#endif

#if defined(_WIN32) && !defined(SWIG)
#define MOE_CALL __cdecl
#else
#define MOE_CALL
#endif

#if defined(__cplusplus) && !defined(SWIG)
#define MOE_NOEXCEPT noexcept
#define MOE_ENUM_BASE : int32_t
#else
#define MOE_NOEXCEPT
#define MOE_ENUM_BASE
#endif

#define MOE_VERSION_MAJOR 0
#define MOE_VERSION_MINOR 1
#define MOE_VERSION_PATCH 0
/* MAJOR * 1000000 + MINOR * 1000 + PATCH */
#define MOE_VERSION_NUMBER 1000
/* Programs and libraries with the same value understand each other. While MAJOR is 0 it is the minor version. */
#define MOE_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* Outcome of a call: 0 good, negative an error. Values are frozen; new ones may come. */
typedef int32_t moe_status;
enum {
    MOE_OK = 0,
    MOE_ERROR_INVALID_ARGUMENT = -1,     /* the sentence names the field and the value */
    MOE_ERROR_OUT_OF_MEMORY = -2,        /* an allocator returned NULL */
    MOE_ERROR_UNSUPPORTED = -3,          /* understood, legal, not implemented by this version or candidate */
    MOE_ERROR_NOT_BUILT = -4,            /* this build of the library lacks the requested backend */
    MOE_ERROR_NO_DEVICE = -5,            /* the backend is there, the device or its driver is not */
    MOE_ERROR_LAYOUT_MISMATCH = -6,      /* weights or tensors are not in the plan's layout or formats */
    MOE_ERROR_WORKSPACE_TOO_SMALL = -7,  /* the sentence says how much is needed */
    MOE_ERROR_CANCELLED = -8,            /* a progress callback said stop */
    MOE_ERROR_FORKED = -9,               /* the handle was made before fork() */
    MOE_ERROR_IO = -10,                  /* the operating system refused a file operation */
    MOE_ERROR_CORRUPT_FILE = -11,        /* a file breaks the rules of its format */
    MOE_ERROR_NOT_FOUND = -12,           /* a tensor, layer, key or name does not exist */
    MOE_ERROR_ABI = -13,                 /* a struct is larger than known and its tail is not zero, or too small */
    MOE_ERROR_DEVICE = -14,              /* a device call failed; the sentence has the device's own text */
    MOE_ERROR_BUSY = -15,                /* a workspace is in use by another thread */
    MOE_ERROR_BUFFER_TOO_SMALL = -16,    /* see "Text out" */
    MOE_ERROR_INTERNAL = -17             /* a defect of the library; please report it */
};

/* MOE_VERSION_NUMBER of the library that answers. Never fails, makes no device call. */
MOE_API uint32_t MOE_CALL moe_version(void) MOE_NOEXCEPT;
/* MOE_ABI_VERSION of the library that answers; compare it with yours before anything else (moe_dl.h does). */
MOE_API uint32_t MOE_CALL moe_abi_version(void) MOE_NOEXCEPT;
/* "0.1.0"; static. */
MOE_API const char *MOE_CALL moe_version_string(void) MOE_NOEXCEPT;
/* Lines "key=value": version, compiler, backends built, instruction sets built; static. Put it in bug reports. */
MOE_API const char *MOE_CALL moe_build_info(void) MOE_NOEXCEPT;

/* "MOE_ERROR_NOT_FOUND" and the like; static; "MOE_ERROR_UNKNOWN" for values this library does not know. */
MOE_API const char *MOE_CALL moe_status_name(moe_status status) MOE_NOEXCEPT;
/* The sentence of the last failed call on this thread, "" if there was none. Valid until this thread's next call
 * that returns moe_status; a call that succeeds leaves "". */
MOE_API const char *MOE_CALL moe_last_error(void) MOE_NOEXCEPT;
/* The same, copied ("Text out"); does not itself change the last error. For callers whose threads move. */
MOE_API moe_status MOE_CALL moe_last_error_copy(char *buffer, uint64_t capacity, uint64_t *out_size) MOE_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------
 * 2  Names and numbers. Values are frozen. Every enum is 32 bits wide and open: new values may come.
 * --------------------------------------------------------------------------------------------------------- */

/* Element types. Those of activations: F32, F16, BF16, and F64 where said; the rest belong to weight formats. */
typedef enum moe_type MOE_ENUM_BASE {
    MOE_TYPE_NONE = 0,
    MOE_TYPE_F32 = 1,
    MOE_TYPE_F16 = 2,
    MOE_TYPE_BF16 = 3,
    MOE_TYPE_F64 = 4,
    MOE_TYPE_I8 = 10,
    MOE_TYPE_U8 = 11,
    MOE_TYPE_I32 = 12,
    MOE_TYPE_I64 = 13,
    MOE_TYPE_F8_E4M3 = 20,  /* OCP E4M3 "FN": 0x7F and 0xFF are NaN, no infinity, max 448 */
    MOE_TYPE_F8_E5M2 = 21,
    MOE_TYPE_F8_E8M0 = 22,  /* scale only: 2^(code - 127), 0xFF is NaN */
    MOE_TYPE_F8_E4M4 = 23,  /* scale only, unsigned, bias 11: e ? 2^(e-11) (1 + m/16) : m 2^-14 */
    MOE_TYPE_E2M1 = 30,     /* FP4: 0 .5 1 1.5 2 3 4 6 and their negatives */
    MOE_TYPE_INT = 31,      /* integer codes of moe_format.bits bits */
    MOE_TYPE_CODEBOOK = 32, /* codes of moe_format.bits bits that index a table of 2^bits float32 */
    MOE_TYPE_GGUF = 33,     /* a ggml block type, moe_format.block_id */
    MOE_TYPE_FORCE_INT32 = 0x7FFFFFFF
} moe_type;

/* Tensor roles of one layer. W is [out, in]. Shapes: H hidden, I intermediate, E routed experts, L latent (H if the
 * layer has none), S shared intermediate, E_all = E + identity experts. Vectors have one row. */
typedef enum moe_role MOE_ENUM_BASE {
    MOE_ROLE_NONE = 0,
    MOE_ROLE_ROUTER = 1,           /* [E_all, H] */
    MOE_ROLE_ROUTER_BIAS = 2,      /* [1, E_all], added to the logits */
    MOE_ROLE_SELECTION_BIAS = 3,   /* [1, E_all] float32, added to the scores for selection only */
    MOE_ROLE_ROUTER_NORM = 4,      /* [1, H], multiplies the RMS-normalised router input */
    MOE_ROLE_HASH_TABLE = 5,       /* [vocabulary, k] int32 or int64: token id -> expert ids */
    MOE_ROLE_EXPERT_SCALE = 6,     /* [1, E], multiplies the routing weight of each expert */
    MOE_ROLE_GATE = 7,             /* per expert [I, L] */
    MOE_ROLE_UP = 8,               /* per expert [I, L] */
    MOE_ROLE_DOWN = 9,             /* per expert [L, I] */
    MOE_ROLE_GATE_UP = 10,         /* per expert [2I, L], order said by moe_tensor.gate_up_order; tensors only */
    MOE_ROLE_GATE_BIAS = 11,       /* per expert [1, I] */
    MOE_ROLE_UP_BIAS = 12,         /* per expert [1, I] */
    MOE_ROLE_DOWN_BIAS = 13,       /* per expert [1, L] */
    MOE_ROLE_GATE_UP_BIAS = 14,    /* per expert [1, 2I]; tensors only */
    MOE_ROLE_SHARED_GATE = 15,     /* [S, H] */
    MOE_ROLE_SHARED_UP = 16,       /* [S, H] */
    MOE_ROLE_SHARED_DOWN = 17,     /* [H, S] */
    MOE_ROLE_SHARED_GATE_UP = 18,  /* [2S, H]; tensors only */
    MOE_ROLE_SHARED_EXPERT_GATE = 19, /* [1, H]: shared output is multiplied by sigmoid(x . row) */
    MOE_ROLE_LATENT_IN = 20,       /* [L, H] */
    MOE_ROLE_LATENT_OUT = 21,      /* [H, L] */
    MOE_ROLE_LATENT_NORM = 22,     /* [1, L], RMS norm of the routed sum before LATENT_OUT */
    MOE_ROLE_SECOND_SELECTION_BIAS = 23, /* [1, E_all] float32, instead of SELECTION_BIAS for the tokens that the call names */
    MOE_ROLE_LATENT_IN_NORM = 24,  /* [1, L], RMS norm of LATENT_IN x */
    MOE_ROLE_EXPERT_NORM = 25,     /* [1, L], RMS norm of every expert's output, one for all of them */
    MOE_ROLE_FORCE_INT32 = 0x7FFFFFFF
} moe_role;
/* One more than the largest role of this header: the length of arrays indexed by role. */
#define MOE_ROLE_COUNT 26

/* "gate", "shared_down", "f8_e4m3" and the like, as errors and explanations write them; static; "unknown" for other values. */
MOE_API const char *MOE_CALL moe_role_name(moe_role role) MOE_NOEXCEPT;
MOE_API const char *MOE_CALL moe_type_name(moe_type type) MOE_NOEXCEPT;

/* Function of all logits of a token, before selection. */
typedef enum moe_score MOE_ENUM_BASE {
    MOE_SCORE_NONE = 0,         /* s = z; Kolibri-1: the top k of z + selection bias, weighted by post_score SIGMOID of z */
    MOE_SCORE_SOFTMAX = 1,      /* over all E_all */
    MOE_SCORE_SIGMOID = 2,
    MOE_SCORE_SQRT_SOFTPLUS = 3, /* sqrt(log(1 + exp z)); softplus(z) = z above 20 */
    MOE_SCORE_FORCE_INT32 = 0x7FFFFFFF
} moe_score;

/* How the k experts of a token are chosen. Ties go to the lowest index everywhere. */
typedef enum moe_selection MOE_ENUM_BASE {
    MOE_SELECT_TOP_K = 0,        /* the k largest of score + selection bias, largest first */
    MOE_SELECT_SPARSEMIXER = 1,  /* k = 2, on logits: Phi-3.5-MoE's rule with sparsemixer_jitter */
    MOE_SELECT_HASH = 2,         /* HASH_TABLE[token id]; weights still come from the scores */
    MOE_SELECT_FORCE_INT32 = 0x7FFFFFFF
} moe_selection;

/* Score of a group of experts in group-limited selection. */
typedef enum moe_group_score MOE_ENUM_BASE {
    MOE_GROUP_SCORE_NONE = 0,
    MOE_GROUP_SCORE_MAX = 1,      /* the largest key of the group (DeepSeek-V2) */
    MOE_GROUP_SCORE_TOP2_SUM = 2, /* the sum of its two largest keys (DeepSeek-V3) */
    MOE_GROUP_SCORE_FORCE_INT32 = 0x7FFFFFFF
} moe_group_score;

/* What becomes of the keys outside the best groups in group-limited selection. */
typedef enum moe_group_mask MOE_ENUM_BASE {
    MOE_GROUP_MASK_INFINITY = 0,  /* -inf: such an expert is never chosen */
    MOE_GROUP_MASK_ZERO = 1,      /* 0: such an expert comes before one of a negative key (A.X-K2 in transformers) */
    MOE_GROUP_MASK_FORCE_INT32 = 0x7FFFFFFF
} moe_group_mask;

/* Division of the k selected weights by their sum S. */
typedef enum moe_renormalize MOE_ENUM_BASE {
    MOE_RENORMALIZE_NONE = 0,
    MOE_RENORMALIZE_SUM_ADD = 1,   /* w / (S + renormalize_eps); 0/0 gives 0 */
    MOE_RENORMALIZE_SUM_CLAMP = 2, /* w / max(S, renormalize_eps); 0/0 gives 0 */
    MOE_RENORMALIZE_FORCE_INT32 = 0x7FFFFFFF
} moe_renormalize;

/* Where the routing weight is applied. */
typedef enum moe_weight_on MOE_ENUM_BASE {
    MOE_WEIGHT_ON_OUTPUT = 0, /* y = sum_j w_j F_j(x) */
    MOE_WEIGHT_ON_INPUT = 1,  /* y = sum_j F_j(w_j x), Llama 4 */
    MOE_WEIGHT_ON_FORCE_INT32 = 0x7FFFFFFF
} moe_weight_on;

/* How routed sum and shared expert become the output. */
typedef enum moe_combine_rule MOE_ENUM_BASE {
    MOE_COMBINE_SUM = 0,  /* routed + shared */
    MOE_COMBINE_MEAN = 1, /* (routed + shared) / 2; needs a shared expert */
    MOE_COMBINE_FORCE_INT32 = 0x7FFFFFFF
} moe_combine_rule;

/* Activations: g is the gate pre-activation, u the up pre-activation, s() the logistic sigmoid. */
typedef enum moe_activation MOE_ENUM_BASE {
    MOE_ACTIVATION_NONE = 0,      /* invalid in a layer */
    MOE_ACTIVATION_SILU = 1,      /* g s(alpha g) (u + up_offset), with the limits of moe_layer_desc */
    MOE_ACTIVATION_GELU_TANH = 2, /* g/2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) u */
    MOE_ACTIVATION_GELU_ERF = 3,  /* g/2 (1 + erf(g / sqrt 2)) u */
    MOE_ACTIVATION_RELU2 = 4,     /* max(u, 0)^2, no gate matrix: set is_gated 0 */
    MOE_ACTIVATION_SITU = 5,      /* b tanh(g/b) s(g) b_up tanh(u/b_up), b = situ_beta, b_up = situ_beta_up */
    MOE_ACTIVATION_FORCE_INT32 = 0x7FFFFFFF
} moe_activation;

typedef enum moe_device_kind MOE_ENUM_BASE {
    MOE_DEVICE_AUTO = 0, /* CUDA when it is there and the description is one for it, else CPU; moe_plan_device says which and
                            why. Activations are memory of that device: a program that has them in host memory asks for CPU */
    MOE_DEVICE_CPU = 1,
    MOE_DEVICE_CUDA = 2, /* requested and absent: MOE_ERROR_NOT_BUILT or MOE_ERROR_NO_DEVICE, never the CPU */
    MOE_DEVICE_FORCE_INT32 = 0x7FFFFFFF
} moe_device_kind;

typedef enum moe_space MOE_ENUM_BASE {
    MOE_SPACE_HOST = 0,
    MOE_SPACE_PINNED = 1, /* host memory that the device can read */
    MOE_SPACE_DEVICE = 2,
    MOE_SPACE_FORCE_INT32 = 0x7FFFFFFF
} moe_space;

/* The stages; values are bits. */
typedef enum moe_stage MOE_ENUM_BASE {
    MOE_STAGE_ROUTE = 1,
    MOE_STAGE_DISPATCH = 2,
    MOE_STAGE_EXPERTS = 4,
    MOE_STAGE_COMBINE = 8,
    MOE_STAGE_FINISH = 16,
    MOE_STAGE_FORCE_INT32 = 0x7FFFFFFF
} moe_stage;

/* ------------------------------------------------------------------------------------------------------------
 * 3  Runtime: threads, log; memory and streams of a device
 * --------------------------------------------------------------------------------------------------------- */

typedef struct moe_runtime moe_runtime;

/* Memory by space. Every byte that libmoe keeps in a handle comes from here. What the C++ runtime takes by itself
 * does not: exception objects while an error travels, thread stacks, the transient buffers of JSON, sorting and path
 * handling while a checkpoint is opened, and the text of moe_plan_explain while it is built; nor do the names
 * of kernels, each kept once for the life of the process, and what the CUDA runtime keeps for a context and its
 * kernels. Both functions may be called from any thread. */
typedef struct moe_allocator {
    uint32_t struct_size;
    uint32_t reserved;
    /* bytes > 0, alignment a power of two <= 4096. stream is the stream that will use the memory first, or NULL.
     * NULL means out of memory. Required. */
    void *(MOE_CALL *allocate)(uint64_t bytes, uint64_t alignment, moe_space space, void *stream, void *user_data);
    /* The same bytes, alignment and space as at allocation. Required. */
    void(MOE_CALL *release)(void *memory, uint64_t bytes, uint64_t alignment, moe_space space, void *stream,
                            void *user_data);
    void *user_data;
} moe_allocator;

typedef enum moe_log_level MOE_ENUM_BASE {
    MOE_LOG_DEFAULT = 0, /* warnings and errors */
    MOE_LOG_ERROR = 1,
    MOE_LOG_WARNING = 2,
    MOE_LOG_INFO = 3,
    MOE_LOG_DEBUG = 4,
    MOE_LOG_OFF = 5,
    MOE_LOG_FORCE_INT32 = 0x7FFFFFFF
} moe_log_level;

/* One line of text without a newline, valid during the call. Any thread. */
typedef void(MOE_CALL *moe_log_fn)(moe_log_level level, const char *message, void *user_data);
/* One piece of a parallel loop. */
typedef void(MOE_CALL *moe_task_fn)(int32_t index, void *task_data);
/* Calls task(i, task_data) once for every i in [0, n_tasks), on any threads, and returns when all are done. Tasks
 * never wait for each other, so running them one after the other is correct. */
typedef void(MOE_CALL *moe_parallel_for_fn)(int32_t n_tasks, moe_task_fn task, void *task_data, void *user_data);
/* Progress of long work in bytes; a non-zero answer cancels it (MOE_ERROR_CANCELLED). Calling thread, or that of
 * a load in the background. */
typedef int32_t(MOE_CALL *moe_progress_fn)(uint64_t done, uint64_t total, void *user_data);

typedef struct moe_runtime_desc {
    uint32_t struct_size;
    int32_t n_threads;              /* CPU threads, the caller's included; 0: one per core this process may use */
    const moe_allocator *allocator; /* NULL: malloc for the host, the CUDA runtime for pinned and device memory */
    moe_parallel_for_fn parallel_for; /* NULL: the library's own threads. Given: the library makes no thread, and
                                         n_threads is the number of tasks it offers */
    void *parallel_for_user_data;
    moe_log_fn log;                 /* NULL: standard error */
    void *log_user_data;
    moe_log_level log_level;        /* 0: warnings and errors */
    uint32_t reserved;
    const char *cublaslt_path;      /* NULL: the usual names. Loaded by dlopen when a plan wants it, never required */
    const char *nccl_path;          /* not in this version: anything but NULL is MOE_ERROR_UNSUPPORTED */
} moe_runtime_desc;

/* desc may be NULL for all defaults. The runtime lives until it is destroyed and everything made with it is: its
 * threads are started by the first forward that needs them and are joined when the last user goes.
 * Wherever a function takes a runtime, NULL is the process default, which comes and goes with its users. */
MOE_API moe_status MOE_CALL moe_runtime_create(const moe_runtime_desc *desc, moe_runtime **out_runtime) MOE_NOEXCEPT;
MOE_API void MOE_CALL moe_runtime_destroy(moe_runtime *runtime) MOE_NOEXCEPT;

typedef struct moe_device_info {
    uint32_t struct_size;
    moe_device_kind kind;
    int32_t index;
    int32_t n_cores;         /* CPU: cores this process may use; CUDA: multiprocessors */
    uint64_t memory_bytes;   /* total */
    int32_t arch_major;      /* CUDA: compute capability */
    int32_t arch_minor;
    char name[128];
    char features[256];      /* CPU: "avx2 fma f16c avx512f ..."; CUDA: "" */
} moe_device_info;

/* Number of devices of a kind. CPU: 1. CUDA: MOE_ERROR_NOT_BUILT without the backend, MOE_ERROR_NO_DEVICE with the
 * driver's text without a device. A plan that asks for CPU, and what is made for it, never touches the driver. */
MOE_API moe_status MOE_CALL moe_device_count(moe_device_kind kind, int32_t *out_count) MOE_NOEXCEPT;
MOE_API moe_status MOE_CALL moe_device_get_info(moe_device_kind kind, int32_t index,
                                                moe_device_info *out_info) MOE_NOEXCEPT;

/* Memory and streams, for programs that include no header of CUDA. A program that has its own memory and streams passes those
 * to libmoe instead: these functions are never required.
 *
 *   Device     kind is MOE_DEVICE_CPU, whose index is 0, or MOE_DEVICE_CUDA. On the CPU every space is host memory, work is done
 *              when a call returns, and NULL is the only stream: a program that passes kind and index through serves both.
 *   Context    CUDA: the context current on the thread is used and must be of device `index`, else
 *              MOE_ERROR_INVALID_ARGUMENT. Without one it is the device's primary context. What was current stays so.
 *   Threads    Any, at the same time too. A stream keeps the order in which calls put work on it.
 *   Errors     MOE_ERROR_NOT_BUILT, MOE_ERROR_NO_DEVICE and MOE_ERROR_FORKED as for a plan of that device. MOE_ERROR_DEVICE
 *              when a CUDA call fails; it may report earlier work of the same context.
 */

/* Memory of `bytes` bytes that starts at a multiple of 256, contents undefined. It comes from the allocator of runtime (NULL: the
 * default), is the caller's, and does not keep runtime alive. PINNED and DEVICE with MOE_DEVICE_CUDA are memory of that device,
 * HOST is plain host memory. bytes 0 gives NULL. MOE_ERROR_OUT_OF_MEMORY says how many bytes were wanted. Not under capture. */
MOE_API moe_status MOE_CALL moe_memory_allocate(moe_runtime *runtime, moe_device_kind kind, int32_t index, moe_space space,
                                                uint64_t bytes, void **out_memory) MOE_NOEXCEPT;
/* Frees what moe_memory_allocate gave; runtime, kind, index, space and bytes as they were there. memory NULL does nothing. Work
 * that uses the memory must have ended. When the call fails the memory is still the caller's. Not under capture. */
MOE_API moe_status MOE_CALL moe_memory_free(moe_runtime *runtime, moe_device_kind kind, int32_t index, moe_space space,
                                            uint64_t bytes, void *memory) MOE_NOEXCEPT;
/* Copies `bytes` bytes, in the order of stream (NULL: CUDA's default stream). Each side may be host, pinned or device memory,
 * whoever allocated it: the address tells which. Between pinned and device memory the call returns before the copy
 * is done; with other host memory it may wait for it. Both sides must stay, and `from` unchanged, until stream is synchronised.
 * They must not overlap. bytes 0 does nothing. */
MOE_API moe_status MOE_CALL moe_memory_copy(moe_device_kind kind, int32_t index, void *to, const void *from, uint64_t bytes,
                                            void *stream) MOE_NOEXCEPT;
/* Sets `bytes` bytes to zero in the order of stream; memory that stream's device can write: PINNED or DEVICE with
 * MOE_DEVICE_CUDA. Returns before it is done. bytes 0 does nothing. */
MOE_API moe_status MOE_CALL moe_memory_zero(moe_device_kind kind, int32_t index, void *memory, uint64_t bytes,
                                            void *stream) MOE_NOEXCEPT;

/* A stream for every `void *stream` of this header; NULL on the CPU. With MOE_DEVICE_CUDA it is a cudaStream_t that does not wait
 * for CUDA's default stream, of the context that the call uses. The caller's, to be destroyed. Not under capture. */
MOE_API moe_status MOE_CALL moe_stream_create(moe_device_kind kind, int32_t index, void **out_stream) MOE_NOEXCEPT;
/* Waits until all work on stream has ended (NULL: on CUDA's default stream). The answer is that of the work: MOE_ERROR_DEVICE
 * when some of it failed. Not under capture. */
MOE_API moe_status MOE_CALL moe_stream_synchronize(moe_device_kind kind, int32_t index, void *stream) MOE_NOEXCEPT;
/* Work on it still runs to its end. NULL does nothing. Not under capture. */
MOE_API moe_status MOE_CALL moe_stream_destroy(moe_device_kind kind, int32_t index, void *stream) MOE_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------
 * 4  Layer: the mathematics, scalars only
 *
 * For a token x [H], in float32:
 *    r  = router input (x, or what the caller gives); RMS-normalised, times ROUTER_NORM, times router_input_scale
 *    z  = ROUTER r + ROUTER_BIAS;  z = c tanh(z / c) with a softcap c       NaN counts as -FLT_MAX, +inf as FLT_MAX
 *    s  = score(z);  q = s + SELECTION_BIAS                                 the bias never enters a weight
 *         or s + SECOND_SELECTION_BIAS, where the call says so of the token (DeepSeek-V4.1: those of images)
 *    groups: keep the topk_group best of n_group contiguous groups, q of the others = -inf, or 0 by group_mask
 *    ids = the k largest q, largest first, ties to the lowest id
 *    w_j = s[id_j]; post_score over the k; renormalise; times routed_scale; times EXPERT_SCALE[id_j]
 *    d  = DOWN_e act(GATE_e v + GATE_BIAS_e, UP_e v + UP_BIAS_e) + DOWN_BIAS_e
 *    F_e(v) = d, or rms(d) EXPERT_NORM, or rms(d EXPERT_NORM) by expert_norm_weight_first;  id >= E is the identity
 *    v  = x, or LATENT_IN x, or rms(LATENT_IN x) LATENT_IN_NORM
 *    y  = sum_j w_j F_id_j(v)  in slot order;  y = LATENT_OUT rms(y) LATENT_NORM with a latent
 *    out = combine(y, sigmoid(SHARED_EXPERT_GATE . x) shared_scale shared(x)), rounded once
 *
 * A value whose has_ flag, mode or owner is absent must be zero: routed_scale 2.5 with has_routed_scale 0 is an error, and so is
 * renormalize_eps without renormalize. Nothing that is written down is silently ignored.
 * --------------------------------------------------------------------------------------------------------- */

typedef struct moe_layer_desc {
    uint32_t struct_size;
    /* sizes */
    int32_t hidden;             /* H, required, a multiple of 32 */
    int32_t intermediate;       /* I of one routed expert, required, a multiple of 16 */
    int32_t n_experts;          /* E, required, 1 to 4096 */
    int32_t top_k;              /* k, required, 1 to min(64, E + n_identity_experts) */
    int32_t n_identity_experts; /* experts E .. E + n - 1 return their input (LongCat); not with a latent */
    /* routing */
    int32_t has_router;         /* the layer owns ROUTER; without it logits or ids must be given */
    int32_t has_router_bias;
    int32_t has_selection_bias;
    int32_t has_router_norm;    /* RMS norm of the router input, eps router_norm_eps, no learned weight */
    int32_t has_router_norm_weight; /* ROUTER_NORM multiplies it; needs has_router_norm */
    int32_t has_router_input_scale;
    float router_norm_eps;
    float router_input_scale;
    int32_t has_logit_softcap;
    float logit_softcap;        /* > 0 */
    moe_score score;
    moe_score post_score;       /* of the k selected values: NONE, SOFTMAX (over the k) or SIGMOID */
    moe_selection selection;
    float sparsemixer_jitter;   /* SPARSEMIXER only; Phi-3.5-MoE: 0.01 */
    int32_t hash_vocabulary;    /* HASH only: rows of HASH_TABLE */
    int32_t n_group;            /* 0 or 1: no groups; divides E + n_identity_experts */
    int32_t topk_group;         /* topk_group * (E_all / n_group) >= k */
    moe_group_score group_score;/* required with groups */
    moe_renormalize renormalize;
    float renormalize_eps;      /* as it stands; 0 divides by the plain sum */
    int32_t has_routed_scale;
    float routed_scale;
    int32_t has_expert_scale;   /* EXPERT_SCALE */
    moe_weight_on weight_on;
    int32_t round_logits;       /* 1: logits are rounded to the x type, as in some reference models */
    int32_t round_weights;      /* 1: final weights are rounded to the x type */
    /* routed experts */
    moe_activation activation;  /* required */
    int32_t is_gated;           /* 1: GATE and UP; 0: UP only, the activation's g is up's output */
    int32_t has_activation_alpha;
    float activation_alpha;     /* SILU: g s(alpha g); without it alpha is one */
    float activation_up_offset; /* SILU: u + offset; gpt-oss: 1 */
    int32_t has_gate_limit;
    float gate_limit;           /* g = min(g, limit) before the activation */
    int32_t has_up_limit;
    float up_limit;             /* u = clamp(u, -limit, limit) */
    int32_t has_post_limit;
    float post_limit;           /* act(g) = min(act(g), limit) after the activation (SwigluStep) */
    float situ_beta;            /* SITU only, > 0 */
    float situ_beta_up;         /* SITU only, > 0 */
    int32_t has_gate_bias;
    int32_t has_up_bias;
    int32_t has_down_bias;
    /* latent projections around the routed experts */
    int32_t latent;             /* L; 0: none. A multiple of 32 */
    int32_t has_latent_norm;
    float latent_norm_eps;
    /* shared expert: one MLP of width shared_intermediate on x */
    int32_t shared_intermediate;/* S; 0: none. A multiple of 16 */
    int32_t has_shared_expert_gate;
    int32_t has_shared_scale;
    float shared_scale;
    moe_activation shared_activation; /* required with a shared expert; the fields below as above */
    int32_t shared_is_gated;
    int32_t has_shared_activation_alpha;
    float shared_activation_alpha;
    float shared_activation_up_offset;
    int32_t has_shared_gate_limit;
    float shared_gate_limit;
    int32_t has_shared_up_limit;
    float shared_up_limit;
    int32_t has_shared_post_limit;
    float shared_post_limit;
    float shared_situ_beta;
    float shared_situ_beta_up;
    moe_combine_rule combine;
    moe_group_mask group_mask;  /* of routing: keys outside the best groups. ZERO needs groups */
    int32_t has_second_selection_bias; /* of routing: SECOND_SELECTION_BIAS, for the tokens of moe_forward_args.uses_second_bias; needs
                                          has_selection_bias */
    int32_t has_latent_in_norm; /* LATENT_IN_NORM: the experts read the RMS-normalised LATENT_IN x; needs latent */
    float latent_in_norm_eps;
    int32_t has_expert_norm;    /* EXPERT_NORM: RMS norm of each routed expert's output, before its weight; rows of moe_experts and
                                   slots have it. It needs the whole sum over I: not with a part of the intermediate */
    float expert_norm_eps;
    int32_t expert_norm_weight_first; /* 1: EXPERT_NORM multiplies before the norm, 0: after it; needs has_expert_norm */
} moe_layer_desc;

/* Checks a description as moe_plan_create would; MOE_ERROR_INVALID_ARGUMENT names the first wrong field. */
MOE_API moe_status MOE_CALL moe_layer_validate(const moe_layer_desc *layer) MOE_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------
 * 5  Formats and tensors
 * --------------------------------------------------------------------------------------------------------- */

/* How the codes of one matrix lie in memory. */
typedef enum moe_packing MOE_ENUM_BASE {
    MOE_PACKING_DENSE = 0,         /* one element after the other, whole bytes; GGUF: ggml's blocks */
    MOE_PACKING_NIBBLE_LOW_FIRST = 1,  /* two per byte, even k in the low nibble */
    MOE_PACKING_NIBBLE_HIGH_FIRST = 2, /* two per byte, even element in the high nibble (bitsandbytes) */
    MOE_PACKING_BIT_PLANES = 3,    /* per 32 elements `bits` uint32 words; bit j of word b is bit b of code j (kbit) */
    MOE_PACKING_BIT_STREAM = 4,    /* little-endian stream of codes in int32 words, along k (compressed-tensors) */
    MOE_PACKING_GPTQ = 5,          /* int32 [k/8, n], nibble i is k = 8r + i; other widths: a bit stream along k per n */
    MOE_PACKING_AWQ = 6,           /* int32 [k, n/8], nibbles in the order 0 2 4 6 1 3 5 7 */
    MOE_PACKING_FORCE_INT32 = 0x7FFFFFFF
} moe_packing;

typedef enum moe_global_scale MOE_ENUM_BASE {
    MOE_GLOBAL_SCALE_NONE = 0,
    MOE_GLOBAL_SCALE_MULTIPLY = 1, /* ModelOpt */
    MOE_GLOBAL_SCALE_DIVIDE = 2,   /* compressed-tensors */
    MOE_GLOBAL_SCALE_FORCE_INT32 = 0x7FFFFFFF
} moe_global_scale;

typedef enum moe_zero_point MOE_ENUM_BASE {
    MOE_ZERO_POINT_NONE = 0,
    MOE_ZERO_POINT_MIDDLE = 1,     /* value = code - 2^(bits-1) */
    MOE_ZERO_POINT_PACKED = 2,     /* one per group, packed like the codes */
    MOE_ZERO_POINT_PACKED_MINUS_ONE = 3, /* GPTQ v1: stored value + 1 */
    MOE_ZERO_POINT_FLOAT = 4,      /* a bias per group, of the scale's type: value = code * scale + bias (MLX) */
    MOE_ZERO_POINT_FORCE_INT32 = 0x7FFFFFFF
} moe_zero_point;

typedef enum moe_codebook MOE_ENUM_BASE {
    MOE_CODEBOOK_NONE = 0,
    MOE_CODEBOOK_GIVEN = 1,        /* moe_tensor.codebook, 2^bits float32 */
    MOE_CODEBOOK_NORMAL_FLOAT = 2, /* quantiles of the normal distribution, scaled to 1 */
    MOE_CODEBOOK_BNB_NF4 = 3,
    MOE_CODEBOOK_BNB_FP4 = 4,
    MOE_CODEBOOK_FORCE_INT32 = 0x7FFFFFFF
} moe_codebook;

/* A weight format: W[n,k] = value(code) * scale[n / group_rows, k / group_columns] (* or / global scale).
 * Fill it by moe_format_by_name, from a checkpoint, or by hand. docs/concepts/formats.md lists what is read. */
typedef struct moe_format {
    uint32_t struct_size;
    moe_type type;          /* required */
    int32_t bits;           /* of INT and CODEBOOK codes; 0 otherwise */
    int32_t group_rows;     /* rows (n) that share a scale; -1: all; 0 without scales */
    int32_t group_columns;  /* columns (k) that share a scale; -1: all; 0 without scales. bitsandbytes: elements, row by row */
    moe_type scale_type;    /* NONE: no scales */
    moe_global_scale global_scale;
    moe_zero_point zero_point;
    moe_packing packing;
    moe_codebook codebook;
    int32_t block_id;       /* GGUF: the ggml type number (Q8_0 is 8, Q4_K is 12, MXFP4 is 39) */
    int32_t act_order;      /* 1: the group of a column is moe_tensor.permutation[k], not k / group_columns */
    int32_t nested_scales;  /* 1: scales are 8-bit codes with scales of their own (bitsandbytes) */
    int32_t pre_quant_scale;/* 1: activations are multiplied by moe_tensor.pre_quant_scale first */
} moe_format;

typedef struct moe_format_info {
    uint32_t struct_size;
    int32_t block_rows;      /* smallest unit that decodes alone */
    int32_t block_columns;
    int32_t has_decode;      /* this library reads it */
    int32_t has_encode;      /* moe_quantize writes it */
    uint32_t reserved;
    double bits_per_weight;  /* codes and scales, without per-tensor scalars */
    char name[64];
} moe_format_info;

/* Named formats: f32 f16 bf16 fp8_128x128 nvfp4 mxfp4 kbit2 .. kbit5 (E4M4 absmax) kbit2_f32 .. kbit5_f32
 * q8_0 q4_k mxfp4_gguf q4_0 q4_1 q5_0 q5_1 q2_k q3_k q5_k q6_k iq4_nl iq4_xs nvfp4_gguf; only read:
 * iq2_xxs iq2_xs iq3_xxs iq3_s. moe_format_name_at enumerates them: static string, NULL past the end. */
MOE_API const char *MOE_CALL moe_format_name_at(uint32_t index) MOE_NOEXCEPT;
MOE_API moe_status MOE_CALL moe_format_by_name(const char *name, moe_format *out_format) MOE_NOEXCEPT;
/* A format without a name of its own gets a made-up one; has_decode says whether this version reads it. */
MOE_API moe_status MOE_CALL moe_format_get_info(const moe_format *format, moe_format_info *out_info) MOE_NOEXCEPT;
/* Bytes of one dense matrix of rows x columns, codes and scales: zero points and what else lies apart are not counted.
 * MOE_ERROR_INVALID_ARGUMENT if the format cannot hold that shape. */
MOE_API moe_status MOE_CALL moe_format_size(const moe_format *format, int64_t rows, int64_t columns,
                                            uint64_t *out_data_bytes, uint64_t *out_scale_bytes) MOE_NOEXCEPT;

typedef enum moe_orientation MOE_ENUM_BASE {
    MOE_ORIENTATION_OUT_IN = 0, /* memory holds [rows, columns]: y = W x (torch Linear, GGUF) */
    MOE_ORIENTATION_IN_OUT = 1, /* memory holds [columns, rows], the transpose (gpt-oss bf16, Llama 4); f32 f16 bf16, FP8, int8 */
    MOE_ORIENTATION_FORCE_INT32 = 0x7FFFFFFF
} moe_orientation;

/* How a fused GATE_UP matrix or bias lies along its 2I rows. */
typedef enum moe_gate_up_order MOE_ENUM_BASE {
    MOE_GATE_UP_NONE = 0,        /* not fused */
    MOE_GATE_UP_GATE_FIRST = 1,
    MOE_GATE_UP_UP_FIRST = 2,
    MOE_GATE_UP_INTERLEAVED = 3, /* row 2i gate, row 2i+1 up (gpt-oss) */
    MOE_GATE_UP_FORCE_INT32 = 0x7FFFFFFF
} moe_gate_up_order;

/* Where the scales of a matrix lie that are one byte each. They are a matrix of their own: scale (r, c) is that of row r and of
 * the c-th group of columns. */
typedef enum moe_scale_layout MOE_ENUM_BASE {
    MOE_SCALE_LAYOUT_LINEAR = 0,      /* row by row, as checkpoints have them */
    MOE_SCALE_LAYOUT_TILED_128X4 = 1, /* "swizzled", as the block-scaled products of cuBLAS, CUTLASS and FlashInfer read them:
                                         tiles of 128 rows by 4 groups, 512 bytes each, a row of tiles after the other. Scale (r, c)
                                         is byte r % 32 * 16 + r % 128 / 32 * 4 + c % 4 of tile (r / 128, c / 4). Rows are padded
                                         to 128 and groups to 4; what the padding holds does not matter */
    MOE_SCALE_LAYOUT_FORCE_INT32 = 0x7FFFFFFF
} moe_scale_layout;

#define MOE_ALL_EXPERTS (-1)

/* One tensor of a layer: a matrix or vector, of one expert or of all stacked. Sizes are those of the whole layer,
 * whatever the slice; the library takes the part that the plan needs. rows and columns are logical ([out, in]) for
 * either orientation. Byte counts are of the whole buffer and are checked against shape and strides. What is given must be of
 * use: a buffer that the format does not have, data and data_per_expert both, an order of a role that is not fused, or a fused
 * tensor of which the layer has one half are MOE_ERROR_INVALID_ARGUMENT. input_scale alone may be given and ignored. */
typedef struct moe_tensor {
    uint32_t struct_size;
    moe_role role;               /* required */
    int32_t expert;              /* global id, or MOE_ALL_EXPERTS for a stack; ignored for roles without experts */
    moe_orientation orientation;
    moe_gate_up_order gate_up_order; /* required for the GATE_UP roles */
    moe_space space;             /* where data, scales and their like point; DEVICE for CUDA plans only, and fetched from there */
    const moe_format *format;    /* required */
    int64_t n_experts;           /* of a stack; the stack holds global experts 0 .. n_experts - 1 */
    int64_t rows;                /* required; of one expert */
    int64_t columns;             /* required */
    int64_t row_stride;          /* bytes from row to row as stored; 0: dense */
    int64_t expert_stride;       /* bytes from expert to expert in a stack, at least those of one; 0: dense */
    const void *data;
    uint64_t data_bytes;
    const void *const *data_per_expert; /* instead of data: one pointer per expert, data_bytes each */
    const void *scales;
    uint64_t scale_bytes;
    const void *const *scales_per_expert;
    int64_t scale_row_stride;    /* bytes; 0: dense */
    int64_t scale_expert_stride; /* bytes, likewise; 0: dense */
    const float *global_scale;   /* n_global_scales values: 1, or one per expert of the stack. Host memory */
    int64_t n_global_scales;
    const float *codebook;       /* 2^bits values, host memory */
    uint64_t codebook_bytes;
    const void *zero_points;     /* PACKED: laid out as the definition of the format says, experts of a stack one after the other */
    uint64_t zero_point_bytes;
    const int32_t *permutation;  /* [columns]: group of each column, host memory, one for all experts of a stack; without
                                    act order it may only say k / group_columns. Packed: every group has group_columns columns,
                                    the last one what is left, and gate and up of an expert have one permutation and one
                                    pre_quant_scale (moe_plan_desc.unfused); else MOE_ERROR_UNSUPPORTED */
    uint64_t permutation_bytes;
    const float *nested_scales;  /* one per 256 scales, host memory, experts of a stack one after the other */
    uint64_t nested_scale_bytes;
    const float *nested_codebook; /* 256 values: scale = nested_codebook[byte] * nested_scale + nested_offset */
    float nested_offset;
    uint32_t reserved;
    const float *input_scale;    /* of quantised activations: 1 or one per expert; ignored by weight-only kernels */
    int64_t n_input_scales;
    const void *pre_quant_scale; /* [columns] float32, host memory, one for all experts of a stack */
    uint64_t pre_quant_scale_bytes;
    moe_scale_layout scale_layout; /* TILED_128X4: NVFP4, MXFP4, MXFP8 (E8M0 scales for 1 x 32), else MOE_ERROR_UNSUPPORTED; each
                                      expert padded by itself, scale_row_stride 0. Results are those of linear scales, bit for bit */
    uint32_t reserved2;
} moe_tensor;

/* ------------------------------------------------------------------------------------------------------------
 * 6  Plan: layer x formats x slice x device x types x T, decided once. Immutable.
 * --------------------------------------------------------------------------------------------------------- */

typedef struct moe_plan moe_plan;
typedef struct moe_checkpoint moe_checkpoint; /* section 10 */

/* The part of a layer that a plan computes: some experts (expert parallelism, CPU/GPU split), some of the
 * intermediate features (tensor parallelism), or both. Anything but the whole needs moe_plan_desc.partial. */
typedef struct moe_slice {
    uint32_t struct_size;
    int32_t has_expert_range;      /* local experts are [expert_begin, expert_begin + expert_count) */
    int32_t expert_begin;
    int32_t expert_count;
    const int32_t *expert_to_local; /* instead of a range: [n_experts] local index or -1; locals are 0 .. m-1, once each */
    int32_t n_expert_to_local;     /* must be E when the map is given */
    int32_t has_intermediate_range; /* routed features [intermediate_begin, + intermediate_count) */
    int32_t intermediate_begin;    /* on the group grid of the formats; the error names the nearest legal value */
    int32_t intermediate_count;
    int32_t has_shared_range;      /* the same for the shared expert */
    int32_t shared_begin;
    int32_t shared_count;
    uint32_t reserved;
} moe_slice;

typedef enum moe_residency MOE_ENUM_BASE {
    MOE_RESIDENCY_AUTO = 0,   /* PACKED on CUDA, SOURCE on the CPU */
    MOE_RESIDENCY_PACKED = 1, /* in the plan's own layout, a copy (docs/layout.md). On the CPU rows of some formats are interleaved:
                                 AVX-512 and AVX2 read some of them faster, some not (docs/limits.md); others decode them row by row */
    MOE_RESIDENCY_SOURCE = 2, /* in the format and layout of the tensors given, read in place or copied. CPU plans: on CUDA
                                 MOE_ERROR_UNSUPPORTED */
    MOE_RESIDENCY_FORCE_INT32 = 0x7FFFFFFF
} moe_residency;

typedef enum moe_activation_quantization MOE_ENUM_BASE {
    MOE_ACTIVATION_QUANTIZATION_NONE = 0, /* as given: a GEMV is within 1e-5 per token, relative L2 error (where terms cancel, of
                                             |W| |x| / sqrt(columns)); of 16-bit activations on the CPU within 1e-4,
                                             and within 6e-3 (1e-2 where single values are a hundred times the others) where many
                                             rows in bfloat16 share weights that are rounded to bfloat16: float16, those of a codebook,
                                             and with AMX all but float32 and codes of eight bits with zero points */
    MOE_ACTIVATION_QUANTIZATION_FP8 = 1,  /* CUDA; on the CPU MOE_ERROR_UNSUPPORTED. x, and act(gate, up) rounded to bfloat16 before
                                             down, may become E4M3: of every 128 columns of a row from the first on, q = round(v (448 /
                                             max |v|)), ties to even, s = max |v| / 448 as float32 (max |v| at least 2^-100), and
                                             products are of q s: a value is off by a 16th of itself at most, or by s / 1024. Tensor
                                             cores add the products of 128 columns, of which they keep 14 bits or more; these sums are
                                             scaled and added in float32. Weights of NVFP4 and MXFP4 become E4M3 for it, code times
                                             scale over the largest scale of the row in the 128 columns: exact for MXFP4 where a scale
                                             is at least 2^-9 of that, else rounded. Weights of 4 bits take such kernels only where
                                             kernel_filter forces them. Kernels that take no such bytes take the values as given:
                                             gemv, weights other than these and FP8 and integers of 4 bits whose scales hold for 128
                                             columns, GPUs other than Hopper; moe_plan_explain has fp8 in the names of those that do,
                                             as in sm90_e4m3_fp8_grouped_gemm_gate_up */
    MOE_ACTIVATION_QUANTIZATION_INT8 = 2, /* CPU; on CUDA MOE_ERROR_UNSUPPORTED. x, and act(gate, up) before down, may become signed
                                             bytes: of every 32 columns of a row from the first on, q = round(v / s) with s =
                                             max |v| / 127 as float32, ties to even, and products are of q s: a value is off by s / 2
                                             at most. With AMX many rows become bfloat16 instead, off by |v| / 512 at most, and weights,
                                             too, as for NONE. Kernels that take no such bytes (of dense, fp8 and codebook weights;
                                             AVX2, NEON and the reference) take the values as given; moe_plan_explain has int8 or bf16
                                             in the names of those that do */
    MOE_ACTIVATION_QUANTIZATION_FORCE_INT32 = 0x7FFFFFFF
} moe_activation_quantization;

typedef struct moe_plan_desc {
    uint32_t struct_size;
    moe_device_kind device;     /* 0: AUTO */
    int32_t device_index;       /* of CUDA; the CPU is 0 */
    moe_type x_type;            /* required: F32, F16 or BF16; on CUDA, for moe_forward and moe_experts, F8_E4M3 with
                                   x_scales */
    moe_type router_input_type; /* of the separate router input; 0: x_type, of E4M3 x BF16. A call with such x routes by it */
    moe_type out_type;          /* F32, F16 or BF16; 0: x_type, which E4M3 cannot be */
    moe_type intermediate_type; /* type to which act(gate, up) is rounded: F32, BF16, F16, or F64 (the fp64 reference, CPU
                                   only); 0: F32 for F32 x, else BF16. On CUDA it also decides how products are made: F32, like
                                   F32 x or weights, in float32; else from 16-bit operands, float16 where x, weights and this
                                   type allow and bfloat16 elsewhere. Of a large call, kernels with bfloat16 operands round the experts'
                                   rows, too, unless batch_invariant is 1 or a norm follows. Sums are float32 in every case */
    uint32_t stages;            /* moe_stage bits the plan will be used for; 0: all. Weights of the others are not
                                   needed and not loaded */
    int32_t checkpoint_layer;   /* decoder layer of checkpoint */
    uint32_t reserved;
    const moe_checkpoint *checkpoint; /* where layer and formats come from when they are not given; may be NULL, not kept */
    const moe_layer_desc *layer; /* NULL: moe_checkpoint_layer of checkpoint; required without one */
    const moe_format *const *formats; /* [n_formats], index = moe_role; the format of every matrix the layer has.
                                   NULL entries: vectors are taken in any of f32 f16 bf16; matrices are required */
    uint32_t n_formats;         /* 0: moe_checkpoint_formats of checkpoint */
    int32_t partial;            /* 1: the plan yields the routed sum of its slice and nothing else; moe_finish adds the rest.
                                   That sum is [T, L] with a latent */
    const moe_slice *slice;     /* NULL: the whole layer */
    int64_t max_tokens;         /* required: the largest T of a call */
    uint64_t max_workspace_bytes; /* 0: the plan's own choice. The plan works in chunks of tokens to keep within it, in every call;
                                     less than one token at a time needs is MOE_ERROR_INVALID_ARGUMENT */
    moe_residency residency;
    moe_activation_quantization activation_quantization;
    int32_t batch_invariant;    /* 1: a token's result never depends on the other tokens of the call */
    int32_t unfused;            /* 1: every stage apart, for study. Packed gate and up may then have permutations and
                                   pre_quant_scales that differ, and their rows keep their order where down has act_order */
    const char *kernel_filter;  /* items separated by commas, each a kernel's name or a glob of names, where * stands for any
                                   characters: "sm80_*" or "+sm80_*" forces the best candidate that matches in every stage that
                                   has one, "-sm80_*" forbids all that match; "experts:sm80_*" means that stage alone. A forced
                                   item of which nothing applies is MOE_ERROR_UNSUPPORTED with the reason; one that matches no
                                   candidate, or wishes that contradict each other, MOE_ERROR_INVALID_ARGUMENT */
    const char *tuning_path;    /* measured tuning table; not in this version: MOE_ERROR_UNSUPPORTED */
    const moe_format *const *formats_per_expert; /* [n_formats_per_expert], index = role * E + expert, of GATE, UP and DOWN: formats
                                   of single experts in place of formats[role], which NULL entries keep. CPU plans with SOURCE
                                   weights: others, where an entry differs from its role, answer MOE_ERROR_UNSUPPORTED */
    uint32_t n_formats_per_expert; /* 0 with n_formats 0: as the experts of checkpoint have them */
    uint32_t reserved2;
} moe_plan_desc;

/* Validates, chooses, and keeps what it needs: nothing of desc is referred to afterwards. The plan keeps runtime alive. A CUDA
 * plan loads its kernels now, and keeps a table of experts in device memory.
 * CUDA: this and every other call runs in the context that is current on the calling thread, which must be one of the plan's
 * device, and in the device's primary context where none is. What was current stays current. */
MOE_API moe_status MOE_CALL moe_plan_create(moe_runtime *runtime, const moe_plan_desc *desc,
                                            moe_plan **out_plan) MOE_NOEXCEPT;
MOE_API void MOE_CALL moe_plan_destroy(moe_plan *plan) MOE_NOEXCEPT;

/* Would moe_plan_create succeed? Returns what it would return, makes nothing; the reason is in moe_last_error. */
MOE_API moe_status MOE_CALL moe_supports(moe_runtime *runtime, const moe_plan_desc *desc) MOE_NOEXCEPT;

/* 128 bits. Equal keys: the descriptions make equal plans, so layers may share one. */
MOE_API moe_status MOE_CALL moe_plan_key(moe_runtime *runtime, const moe_plan_desc *desc, uint8_t out_key[16]) MOE_NOEXCEPT;
/* 128 bits. Weights and plans with equal ids go together. Depends on layout version, backend, shapes, formats, slice,
 * stages, residency and, of matrices with permutations or pre_quant_scales, unfused; not on max_tokens, types of activations, tuning
 * or kernels. */
MOE_API moe_status MOE_CALL moe_plan_layout_id(const moe_plan *plan, uint8_t out_id[16]) MOE_NOEXCEPT;
/* The device chosen, and in *out_reason (static, may be NULL) why. */
MOE_API moe_status MOE_CALL moe_plan_device(const moe_plan *plan, moe_device_kind *out_kind, int32_t *out_index,
                                            const char **out_reason) MOE_NOEXCEPT;

typedef struct moe_workspace_need {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t device_bytes; /* 0 for a CPU plan */
    uint64_t host_bytes;   /* 0 for a CUDA plan */
    uint64_t alignment;    /* of either */
} moe_workspace_need;

/* Scratch that calls with up to n_tokens tokens need; monotone in n_tokens, at most as of max_tokens. */
MOE_API moe_status MOE_CALL moe_plan_workspace_size(const moe_plan *plan, int64_t n_tokens,
                                                    moe_workspace_need *out_need) MOE_NOEXCEPT;

/* Name of the kernel that runs a stage for n_tokens tokens, <arch>_<weight>_<activation>_<family>_<stage>; static. For the
 * stages experts and finish it is the GEMM of gate and up. moe_plan_explain has that of down, the variants that are launched
 * (launched names begin with this one), and beside every gemv kernel the one that takes its place where rows of x are not on 16
 * bytes, the true number of tokens is on the device, or the output is per slot or by rows and there are more of them than gemv
 * takes (its launches "expert_rows"). On the CPU each expert takes the
 * kernel of its number of rows, and the name is that of the mean. For calls in chunks n_tokens is a
 * chunk's. The kernel of finish does nothing where the explanation says that the shared expert goes with the experts. */
MOE_API moe_status MOE_CALL moe_plan_kernel(const moe_plan *plan, moe_stage stage, int64_t n_tokens,
                                            const char **out_name) MOE_NOEXCEPT;

typedef struct moe_candidate {
    uint32_t struct_size;
    moe_stage stage;
    int32_t chosen;          /* 1: the plan uses it. 0 with the code "many_rows": beside the chosen one, for an expert's many rows */
    int32_t applicable;      /* 1: it could run this plan's problem */
    const char *kernel;      /* static */
    const char *reason_code; /* static, of a fixed list: "chosen", "slower", "weight_type", ... */
    const char *reason;      /* static sentence */
} moe_candidate;

/* The index-th candidate of the plan's device, best first within a stage, stages in order. MOE_ERROR_NOT_FOUND past the end. */
MOE_API moe_status MOE_CALL moe_candidates(const moe_plan *plan, uint32_t index, moe_candidate *out_candidate) MOE_NOEXCEPT;

typedef enum moe_explain_form MOE_ENUM_BASE {
    MOE_EXPLAIN_TEXT = 0,
    MOE_EXPLAIN_JSON = 1, /* has "schema": "libmoe.explain.1"; docs/explain.schema.json */
    MOE_EXPLAIN_FORCE_INT32 = 0x7FFFFFFF
} moe_explain_form;

/* Facts about the plan ("Text out"): device, kernels, candidates and reasons, layouts, bytes, workspace, chunks. */
MOE_API moe_status MOE_CALL moe_plan_explain(const moe_plan *plan, moe_explain_form form, char *buffer,
                                             uint64_t capacity, uint64_t *out_size) MOE_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------
 * 7  Weights: the tensors of one layer in a plan's layout. They refer to no plan.
 * --------------------------------------------------------------------------------------------------------- */

typedef struct moe_weights moe_weights;

typedef enum moe_ownership MOE_ENUM_BASE {
    MOE_OWN_COPY = 0,   /* the bytes of the slice are copied into memory of the allocator */
    MOE_OWN_BORROW = 1, /* matrices are read where they lie and must stay there, unchanged, until moe_weights_destroy.
                           Vectors (biases, norms, scales of experts) are small and are copied all the same. Not for
                           packed weights, which are a copy: MOE_ERROR_UNSUPPORTED */
    MOE_OWN_CALLER = 2, /* as COPY, into memory that the caller gives and frees after moe_weights_destroy */
    MOE_OWN_FORCE_INT32 = 0x7FFFFFFF
} moe_ownership;

typedef struct moe_weights_desc {
    uint32_t struct_size;
    moe_ownership ownership;
    const moe_tensor *const *tensors; /* [n_tensors], any order; each role and expert of the slice once */
    uint32_t n_tensors;
    moe_space memory_space;    /* CALLER: space of memory, HOST for a CPU plan and DEVICE for a CUDA plan */
    void *memory;              /* CALLER: at least moe_weights_size bytes, 64-byte aligned, on a device 128 */
    uint64_t memory_bytes;
    void *stream;              /* device weights: copies are ordered on it; the call returns when they are done */
    moe_progress_fn progress;  /* may be NULL */
    void *progress_user_data;
} moe_weights_desc;

/* Bytes that MOE_OWN_COPY and MOE_OWN_CALLER take for the matrices of these tensors; on a device, for everything. */
MOE_API moe_status MOE_CALL moe_weights_size(const moe_plan *plan, const moe_weights_desc *desc,
                                             uint64_t *out_bytes) MOE_NOEXCEPT;
/* A missing, double or misshapen tensor is named in the error; a format other than the plan's is
 * MOE_ERROR_LAYOUT_MISMATCH. Expert by expert; reads only the bytes of the slice. */
MOE_API moe_status MOE_CALL moe_weights_load(const moe_plan *plan, const moe_weights_desc *desc,
                                             moe_weights **out_weights) MOE_NOEXCEPT;
MOE_API void MOE_CALL moe_weights_destroy(moe_weights *weights) MOE_NOEXCEPT;

/* Replaces a tensor: of one expert, of a role without experts, or of a stack those experts that the weights hold. What they hold nothing of, by
 * slice or stages, is MOE_ERROR_NOT_FOUND. A tensor that is refused, or for which there is no memory, replaces nothing; but on a device a stack
 * may have been replaced in part when values of one expert cannot be packed, or the device fails. On a device ordered on stream, and done when
 * the call returns; on the CPU no forward may be running on these weights. Graphs captured before take the new weights, except where the experts
 * of a role, a shared one among them, had one and the same given codebook and now have different ones: capture again then. Packed gate and up
 * share a permutation and a pre_quant_scale (moe_tensor.permutation), so that one of them alone cannot take another, and neither can packed
 * down, by whose permutation their rows lie: MOE_ERROR_UNSUPPORTED. BORROW: the matrices are borrowed from now on from where the tensor lies. */
MOE_API moe_status MOE_CALL moe_weights_update(moe_weights *weights, const moe_tensor *tensor, void *stream) MOE_NOEXCEPT;

MOE_API moe_status MOE_CALL moe_weights_layout_id(const moe_weights *weights, uint8_t out_id[16]) MOE_NOEXCEPT;

typedef struct moe_memory_report {
    uint32_t struct_size;
    uint32_t n_local_experts;
    uint64_t host_bytes;      /* of the allocator or the caller's memory: matrices and vectors */
    uint64_t pinned_bytes;
    uint64_t device_bytes;
    uint64_t borrowed_bytes;  /* read in place */
    uint64_t bookkeeping_bytes; /* of the allocator: tables and the handle itself */
    uint64_t role_bytes[32];  /* by moe_role: bytes of codes and scales of the slice, owned or borrowed */
} moe_memory_report;

MOE_API moe_status MOE_CALL moe_weights_memory(const moe_weights *weights, moe_memory_report *out_report) MOE_NOEXCEPT;

/* Packed weights to a file, and back without packing them again; docs/layout.md has the file. Weights of residency SOURCE have
 * their checkpoint: MOE_ERROR_UNSUPPORTED. The file has a version, the layout id and checksums: of another version or layout
 * it is refused with MOE_ERROR_LAYOUT_MISMATCH in words, damaged with MOE_ERROR_CORRUPT_FILE. A file is written
 * under another name and renamed when it is whole, replacing what was there; MOE_ERROR_IO names the path. The
 * weights belong to the library (MOE_OWN_COPY) and can be updated like others, which does not change the file.
 * CUDA: the file is read. Both wait for the device's default stream and return when all is done; updates on another stream must
 * be over. CPU: the file is mapped, and its matrices are read where they are (borrowed_bytes of the memory report), not
 * against their checksums, which `moe inspect --verify` does; all else is checked. While it is mapped
 * the file must not be written in place, which a save does not do: it makes another one of the same name. A process that reads a
 * file which another one has made shorter is ended by SIGBUS. */
MOE_API moe_status MOE_CALL moe_weights_save(const moe_weights *weights, const char *path) MOE_NOEXCEPT;
MOE_API moe_status MOE_CALL moe_weights_open(const moe_plan *plan, const char *path, moe_weights **out_weights) MOE_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------
 * 8  Workspace: scratch and a small header. One per concurrent stream or thread; serves any plan of its device whose
 *    need fits, one call after the other. Contents of the scratch are undefined between calls.
 * --------------------------------------------------------------------------------------------------------- */

typedef struct moe_workspace moe_workspace;

typedef struct moe_workspace_desc {
    uint32_t struct_size;
    moe_device_kind device;   /* 0: that of plan, or CPU without one */
    int32_t device_index;
    uint32_t reserved;
    const moe_plan *plan;     /* sizes left 0 below are what this plan needs at its max_tokens; may be NULL */
    uint64_t device_bytes;    /* of a CUDA workspace, whose scratch is device memory; 0 for the CPU */
    void *device_memory;      /* NULL: from the allocator. Given: stays the caller's, aligned as moe_workspace_need says */
    uint64_t host_bytes;      /* likewise of a CPU workspace; not used on CUDA */
    void *host_memory;
    void *stream;             /* passed to the allocator; of a CUDA workspace, which has a few bytes of pinned and device memory
                               * beside its scratch, create waits for it */
} moe_workspace_desc;

MOE_API moe_status MOE_CALL moe_workspace_create(moe_runtime *runtime, const moe_workspace_desc *desc,
                                                 moe_workspace **out_workspace) MOE_NOEXCEPT;
MOE_API void MOE_CALL moe_workspace_destroy(moe_workspace *workspace) MOE_NOEXCEPT;

enum {
    MOE_FAULT_ID_OUT_OF_RANGE = 1, /* an id was < -1 or >= E_all, or expert_map has neither a local expert for it nor -1, which a
                                      CPU plan refuses; its slot was skipped */
    MOE_FAULT_TOKEN_ID_OUT_OF_RANGE = 2, /* a token id outside the hash table; the token got no expert */
    MOE_FAULT_TOKENS_OUT_OF_RANGE = 4, /* *n_tokens_device was negative or above n_tokens; it was clamped */
    MOE_FAULT_OFFSETS_OUT_OF_RANGE = 8 /* offsets, counts or row ids were not what they must be; rows were skipped. Of two rows
                                          of one slot the second is skipped, which a CUDA plan does not report. An expert whose
                                          rows do not begin behind those of all experts before it has none; a CUDA plan may leave it
                                          those that no expert before it has */
};

typedef struct moe_workspace_faults {
    uint32_t struct_size;
    uint32_t faults;        /* MOE_FAULT_ bits since the last time, 0 if all was well */
    int64_t n_skipped;      /* slots or rows skipped */
} moe_workspace_faults;

/* What went wrong at run time in calls that have finished, and forgets it. Does not synchronise: on a device a running
 * call may still add to it. */
MOE_API moe_status MOE_CALL moe_workspace_status(moe_workspace *workspace, moe_workspace_faults *out_faults) MOE_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------
 * 9  Forward, and its stages
 *
 * Every pointer inside the args is memory of the plan's device (CPU: host memory), the small ones too: ids, expert_map,
 * n_tokens_device, counts. They need no more than the alignment of their type. A CPU plan's call returns when it is done, a CUDA
 * plan's when its work is on the stream (NULL: the default stream).
 * Rows beyond *n_tokens_device are neither routed nor written. out must not overlap x, whether x is read or not, by as many rows
 * as the numbers on the host say: MOE_ERROR_INVALID_ARGUMENT. Columns of one buffer side by side do not overlap. Other buffers are
 * not compared. T = 0 does nothing. Same device, same plan, same input: the same bits, whatever the number of threads and the
 * caller's floating-point mode: CPU threads round to nearest and keep subnormals while they work, and leave the mode as it was.
 * Tiles of AMX keep the shapes that the caller gave them, and lose what they hold. A token whose slots are all skipped gives zero,
 * or adds nothing. Duplicate ids add up. Flags are 0 or 1. An argument that the
 * call's mode has no use for has no effect, if nothing else is said: its type, its stride and its alignment are not looked at,
 * but for the stride of x where out must not overlap it.
 * n_threads is how many CPU threads a call may use, the calling one included: 1 is that thread alone; 0, or more than the runtime's
 * number, is the runtime's. With a caller's parallel_for it is how many tasks are offered at a time. Negative:
 * MOE_ERROR_INVALID_ARGUMENT. A CUDA plan has no other use for it, and moe_forward_spmd has an n_threads of its own.
 * --------------------------------------------------------------------------------------------------------- */

typedef enum moe_routing MOE_ENUM_BASE {
    MOE_ROUTING_COMPUTE = 0,         /* from x or router_input; logits and ids must be NULL */
    MOE_ROUTING_LOGITS = 1,          /* from logits [T, E_all]: ROUTER and ROUTER_BIAS are not applied */
    MOE_ROUTING_IDS = 2,             /* ids given, weights computed from the scores (x or logits) */
    MOE_ROUTING_IDS_AND_WEIGHTS = 3, /* both given: weights are used as they are */
    MOE_ROUTING_FORCE_INT32 = 0x7FFFFFFF
} moe_routing;

typedef enum moe_out_layout MOE_ENUM_BASE {
    MOE_OUT_REDUCED = 0,  /* [T, H] ([T, L] of a partial plan with a latent). Identity experts are in it, but not in that of
                             a partial plan: moe_finish adds them */
    MOE_OUT_PER_SLOT = 1, /* [T, k, L]: F_id(v) of every slot, unweighted; skipped slots and those of absent and identity
                             experts are zero. With out_ids and out_weights it is what a combine of the caller's own needs: the sum
                             over j of weights[t, j] times row [t, j] is REDUCED (docs/concepts/layouts.md) */
    MOE_OUT_ROWS = 2,     /* moe_experts: the same rows as in, [n_rows, L]; of token-major input sorted rows */
    MOE_OUT_FORCE_INT32 = 0x7FFFFFFF
} moe_out_layout;

typedef struct moe_forward_args {
    uint32_t struct_size;
    moe_routing routing;
    int64_t n_tokens;             /* T on the host: the capture shape, 0 .. max_tokens */
    const int32_t *n_tokens_device; /* NULL, or the true T <= n_tokens, read when the call runs */
    const void *x;                /* [T, H] of the plan's x_type; required unless T is 0 */
    int64_t x_row_stride;
    const void *x_scales;         /* [T, ceil(H / 128)] float32, of E4M3 x: kernels that take no codes read code times scale as BF16 */
    int64_t x_scale_row_stride;
    const void *router_input;     /* [T, H] of router_input_type; NULL: x */
    int64_t router_input_row_stride;
    const float *logits;          /* [T, E_all] float32; LOGITS, or IDS (instead of the router, if there is one) */
    int64_t logits_row_stride;
    const void *ids;              /* [T, k], global ids, -1 skips the slot; IDS, IDS_AND_WEIGHTS */
    moe_type ids_type;            /* I32 or I64; 0: I32 */
    moe_type weights_type;        /* F32, BF16 or F16; 0: F32 */
    int64_t ids_row_stride;
    const void *weights;          /* [T, k]; IDS_AND_WEIGHTS */
    int64_t weights_row_stride;
    const void *token_ids;        /* [T], for hash selection */
    moe_type token_ids_type;      /* I32 or I64; 0: I32 */
    int32_t n_expert_map;         /* E when expert_map is given */
    const int32_t *expert_map;    /* global id -> local expert or -1; overrides the slice's membership for this call */
    void *out;                    /* required unless T is 0 */
    int64_t out_row_stride;       /* from token to token; PER_SLOT: default k * L */
    moe_out_layout out_layout;    /* REDUCED or PER_SLOT (partial plans) */
    int32_t accumulate;           /* 1: out += result (REDUCED) */
    float *out_logits;            /* [T, E_all] or NULL: before the softcap, so that they can be given back as logits. Not
                                     written under IDS_AND_WEIGHTS */
    int64_t out_logits_row_stride;
    int32_t *out_ids;             /* [T, k] global ids or NULL; -1 where a slot is skipped */
    int64_t out_ids_row_stride;
    float *out_weights;           /* [T, k] or NULL */
    int64_t out_weights_row_stride;
    int64_t *out_expert_counts;   /* [E_all] tokens per global expert (slots not skipped), or NULL. Zeros for T = 0 */
    void *stream;                 /* CUDA stream; ignored by a CPU plan, whose calls return when done */
    int32_t n_threads;            /* CPU threads of this call at most, see above; 0: the runtime's. No effect on CUDA */
    uint32_t reserved;
    const int8_t *uses_second_bias; /* [T], for has_second_selection_bias under COMPUTE and LOGITS: where it is not 0, the
                                     token's experts are chosen by SECOND_SELECTION_BIAS; NULL: none are */
} moe_forward_args;

/* Needs a plan with the stages that it runs: all but ROUTE under IDS_AND_WEIGHTS, all but FINISH of a partial plan. */
MOE_API moe_status MOE_CALL moe_forward(const moe_plan *plan, const moe_weights *weights, moe_workspace *workspace,
                                        const moe_forward_args *args) MOE_NOEXCEPT;

/* The same, entered by n_threads threads of the caller with equal arguments but for thread_index in [0, n_threads): they share
 * the work, meet at barriers in the workspace, and all return the same status. n_threads may be more or less than the
 * runtime's; threads beyond the runtime's number only wait. A workspace that
 * another call uses at the same time is not noticed here (no MOE_ERROR_BUSY). CPU plans only, else MOE_ERROR_UNSUPPORTED. The
 * library makes no thread. */
MOE_API moe_status MOE_CALL moe_forward_spmd(const moe_plan *plan, const moe_weights *weights, moe_workspace *workspace,
                                             const moe_forward_args *args, int32_t thread_index,
                                             int32_t n_threads) MOE_NOEXCEPT;

typedef struct moe_route_args {
    uint32_t struct_size;
    moe_routing routing;          /* COMPUTE, LOGITS or IDS */
    int64_t n_tokens;
    const int32_t *n_tokens_device;
    const void *x;
    int64_t x_row_stride;
    const void *router_input;
    int64_t router_input_row_stride;
    const float *logits;
    int64_t logits_row_stride;
    const void *ids;              /* IDS: [T, k] */
    moe_type ids_type;
    moe_type token_ids_type;
    int64_t ids_row_stride;
    const void *token_ids;
    int32_t *out_ids;             /* [T, k], required unless routing is IDS */
    int64_t out_ids_row_stride;
    float *out_weights;           /* [T, k], required */
    int64_t out_weights_row_stride;
    float *out_logits;            /* [T, E_all] or NULL */
    int64_t out_logits_row_stride;
    void *stream;
    int32_t n_threads;            /* CPU threads of this call at most, see above; 0: the runtime's. No effect on CUDA */
    uint32_t reserved;
    const int8_t *uses_second_bias; /* [T], as in moe_forward_args */
} moe_route_args;

/* x or router input or logits -> ids, weights. */
MOE_API moe_status MOE_CALL moe_route(const moe_plan *plan, const moe_weights *weights, moe_workspace *workspace,
                                      const moe_route_args *args) MOE_NOEXCEPT;

typedef struct moe_dispatch_args {
    uint32_t struct_size;
    int32_t block_rows;           /* 0 or 1: packed; B: every expert's rows start on a multiple of B, padded by row id -1 */
    int64_t n_tokens;
    const int32_t *n_tokens_device;
    const void *ids;              /* [T, k] global ids */
    moe_type ids_type;
    int32_t n_expert_map;
    int64_t ids_row_stride;
    const int32_t *expert_map;
    int64_t *out_offsets;         /* [E_local + 1]: first row of each local expert, then the number of rows; required */
    int64_t *out_counts;          /* [E_local] rows of each, without padding; or NULL */
    int32_t *out_row_ids;         /* [row_capacity]: slot t * k + j of each row, experts in order, slots ascending inside */
    int64_t row_capacity;         /* at least T * k + E_local * (B - 1) */
    void *stream;
} moe_dispatch_args;

/* ids -> offsets, counts, sorted row ids. Slots of absent experts, of identity experts and of -1 have no row. */
MOE_API moe_status MOE_CALL moe_dispatch(const moe_plan *plan, moe_workspace *workspace,
                                         const moe_dispatch_args *args) MOE_NOEXCEPT;

typedef struct moe_gather_args {
    uint32_t struct_size;
    int32_t x_is_latent;          /* 1: rows of x and out are [L], of a layer with a latent; 0: [H] */
    int64_t n_tokens;             /* T: rows of x */
    const void *x;                /* [T, H or L] of the plan's x_type; required unless T or n_rows is 0 */
    int64_t x_row_stride;
    const int64_t *offsets;       /* [E_local + 1], as moe_dispatch gives; required likewise */
    const int64_t *counts;        /* [E_local], or NULL: row ids of -1 mark the padding */
    const int32_t *row_ids;       /* [n_rows], as moe_dispatch gives: slot t * k + j of each row, -1 padding; required likewise */
    int64_t n_rows;               /* rows of out, e.g. the row_capacity of moe_dispatch; 0 .. 2^31 - 1 */
    void *out;                    /* [n_rows, H or L] of the plan's x_type; required likewise */
    int64_t out_row_stride;
    const float *weights;         /* [T, k], with out_row_weights */
    int64_t weights_row_stride;
    int32_t *out_row_tokens;      /* [n_rows] or NULL: the token t of each row, -1 where there is none */
    float *out_row_weights;       /* [n_rows] or NULL: weights[t, j] of each row, 0 where there is none */
    void *stream;
    int32_t n_threads;            /* CPU threads of this call at most, see above; 0: the runtime's. No effect on CUDA */
    uint32_t reserved;
} moe_gather_args;

/* Rows of x in the order of a dispatch, for grouped GEMMs that are not libmoe's: row r of out is the row row_ids[r] / k of x, bit for
 * bit but for the payload of NaNs. Rows of local expert e are rows [offsets[e], offsets[e] + its count) of out. Rows without a token
 * (padding, and what no expert has) are not written in out; their token is -1 and their weight 0. Needs a plan with the
 * stage DISPATCH and no weights; LATENT_IN and pre_quant_scale are not applied. Offsets, counts and row ids that are not what
 * they must be are MOE_FAULT_OFFSETS_OUT_OF_RANGE, and their rows count as rows without a token. With T or n_rows 0 nothing is done.
 * moe_experts gathers by itself and wants none of this. */
MOE_API moe_status MOE_CALL moe_gather(const moe_plan *plan, moe_workspace *workspace,
                                       const moe_gather_args *args) MOE_NOEXCEPT;

/* Layouts of moe_experts, in (rows) x out (columns); "row ids" is that args.row_ids is given.
 *
 *                                              REDUCED           PER_SLOT          ROWS
 *   TOKENS   x [T, .] + ids (gather fused)      yes               yes               sorted rows, per offsets / row_ids
 *   SORTED   packed or blocked rows + offsets   row ids, weights  row ids           yes
 *   BATCHED  [E_local, capacity, .] + counts    -                 -                 yes
 */
typedef enum moe_in_layout MOE_ENUM_BASE {
    MOE_IN_TOKENS = 0,
    MOE_IN_SORTED = 1,
    MOE_IN_BATCHED = 2,
    MOE_IN_FORCE_INT32 = 0x7FFFFFFF
} moe_in_layout;

typedef struct moe_experts_args {
    uint32_t struct_size;
    moe_in_layout in_layout;
    moe_out_layout out_layout;
    int32_t stop_before_activation; /* 1: rows of [gate, up], biases added, 2 i wide (i without a gate) where i is the slice's
                                       part of the intermediate; ROWS or PER_SLOT */
    int64_t n_tokens;             /* T: TOKENS, and REDUCED or PER_SLOT output */
    const int32_t *n_tokens_device; /* output by token only: rows follow offsets and counts */
    const void *x;                /* TOKENS [T, H or L]; SORTED [n_rows, .]; BATCHED [E_local, capacity, .] */
    int64_t x_row_stride;
    int32_t x_is_latent;          /* 1: rows are [L] already, LATENT_IN and its norm are not applied */
    moe_type ids_type;
    const void *ids;              /* TOKENS: [T, k] global ids */
    int64_t ids_row_stride;
    const float *weights;         /* [T, k]: REDUCED output, and WEIGHT_ON_INPUT layers with TOKENS or row ids */
    int64_t weights_row_stride;
    const int32_t *expert_map;    /* TOKENS with output by token; sorted rows have had it applied */
    int32_t n_expert_map;
    uint32_t reserved;
    const int64_t *offsets;       /* SORTED: [E_local + 1], as moe_dispatch gives; TOKENS with ROWS output: likewise */
    const int64_t *counts;        /* BATCHED, required: [E_local] rows used; SORTED blocked: rows without padding, or NULL */
    const int32_t *row_ids;       /* [n_rows] slots, -1 padding; required for TOKENS with ROWS output (ids are not read) and
                                     for SORTED with output by token */
    const float *row_weights;     /* [n_rows] instead of weights, for WEIGHT_ON_INPUT rows without row ids */
    int64_t n_rows;               /* SORTED: rows in x; ROWS output: rows in out; row_ids and row_weights have as many.
                                     BATCHED: E_local * batch_capacity when either is given, else not read */
    int64_t batch_capacity;       /* BATCHED: rows per expert */
    void *out;                    /* of the plan's out_type */
    int64_t out_row_stride;       /* row to row; REDUCED, PER_SLOT: token to token */
    int32_t accumulate;           /* REDUCED only */
    uint32_t reserved2;
    void *stream;
    int32_t n_threads;            /* CPU threads of this call at most, see above; 0: the runtime's. No effect on CUDA */
    uint32_t reserved3;
    const void *x_scales;         /* float32, of E4M3 x, required as x is; NULL for x of other types. A row of x has ceil(columns / 128)
                                     scales, and rows of scales are numbered as those of x: TOKENS [T, .], SORTED [n_rows, .], BATCHED
                                     [E_local, capacity, .]. Those of padding rows are not read */
    int64_t x_scale_row_stride;   /* row to row; 0: ceil(columns / 128). BATCHED: expert to expert it is capacity times that, as of x */
} moe_experts_args;

/* rows -> rows through the experts of the slice: gate and up, activation, down, biases. A slice of the intermediate leaves
 * the down bias to moe_finish. Padding rows are not read and not written. Without work nothing is required and nothing done: with
 * n_tokens 0 of TOKENS and of output by token, n_rows 0 of SORTED and of ROWS output, batch_capacity 0 of BATCHED.
 * E4M3 x: kernels of E4M3 (ACTIVATION_QUANTIZATION_FP8) take codes and scales as they are. All others read code times scale, rounded to
 * BF16, which one more launch writes into the workspace; of a call with very many rows, some thousands at a time. */
MOE_API moe_status MOE_CALL moe_experts(const moe_plan *plan, const moe_weights *weights, moe_workspace *workspace,
                                        const moe_experts_args *args) MOE_NOEXCEPT;

typedef struct moe_combine_args {
    uint32_t struct_size;
    moe_in_layout rows_layout;    /* TOKENS: rows are [T, k, L] per slot; SORTED: [n_rows, L] with row_ids */
    int64_t n_tokens;
    const int32_t *n_tokens_device;
    const void *rows;             /* of the plan's out_type */
    int64_t rows_row_stride;      /* TOKENS: token to token (default k * L); SORTED: row to row */
    const int32_t *row_ids;
    int64_t n_rows;
    const void *ids;              /* [T, k] */
    int64_t ids_row_stride;
    moe_type ids_type;
    int32_t accumulate;
    const float *weights;         /* [T, k] */
    int64_t weights_row_stride;
    const void *x;                /* [T, H] of the plan's x_type, for identity experts; NULL without them. Partial plans
                                     leave identity experts to moe_finish */
    int64_t x_row_stride;
    void *out;                    /* [T, L] of the plan's out_type */
    int64_t out_row_stride;
    void *stream;
    int32_t n_threads;            /* CPU threads of this call at most, see above; 0: the runtime's. No effect on CUDA */
    uint32_t reserved;
} moe_combine_args;

/* rows -> tokens: the sum over slots j of weight j times row j, in slot order, in float32, rounded once. With weights on the
 * input the rows are weighted already: they are only added, and weights serve identity experts alone. */
MOE_API moe_status MOE_CALL moe_combine(const moe_plan *plan, moe_workspace *workspace,
                                        const moe_combine_args *args) MOE_NOEXCEPT;

/* What moe_finish adds; bits. */
enum {
    MOE_FINISH_ALL = 0,        /* everything that applies */
    MOE_FINISH_DOWN_BIAS = 1,  /* sum_j w_j DOWN_BIAS[id_j], for plans sliced along the intermediate */
    MOE_FINISH_LATENT = 2,     /* latent norm and LATENT_OUT */
    MOE_FINISH_SHARED = 4,     /* the shared expert (its slice), gate and scale */
    MOE_FINISH_COMBINE = 8,    /* the factor of the combine rule */
    MOE_FINISH_IDENTITY = 16   /* sum_j w_j x over identity experts, for partial plans */
};

typedef struct moe_finish_args {
    uint32_t struct_size;
    uint32_t parts;               /* MOE_FINISH_ bits; 0: all */
    int64_t n_tokens;
    const int32_t *n_tokens_device;
    const void *routed;           /* [T, L] of the plan's out_type: the sum over all slices; NULL: zero */
    int64_t routed_row_stride;
    const void *x;                /* [T, H] of the plan's x_type; with SHARED */
    int64_t x_row_stride;
    const void *ids;              /* [T, k], with DOWN_BIAS or IDENTITY */
    int64_t ids_row_stride;
    moe_type ids_type;
    int32_t accumulate;
    const float *weights;         /* [T, k], likewise */
    int64_t weights_row_stride;
    void *out;                    /* [T, H]; may be routed itself when strides agree and there is no latent */
    int64_t out_row_stride;
    void *stream;
    int32_t n_threads;            /* CPU threads of this call at most, see above; 0: the runtime's. No effect on CUDA */
    uint32_t reserved;
} moe_finish_args;

/* Routed sum, x -> output: what must be done once, after the sum over slices, on one rank or alike on all. The factor of COMBINE
 * multiplies what this call adds, not what out held under accumulate. DOWN_BIAS adds the biases of all experts, local or not.
 * routed and DOWN_BIAS of a layer with a latent need LATENT among the parts.
 * A sliced shared expert: call with SHARED | COMBINE and routed NULL on every rank, sum these outputs over the ranks, then call
 * once with the other parts and COMBINE, accumulating into that sum. */
MOE_API moe_status MOE_CALL moe_finish(const moe_plan *plan, const moe_weights *weights, moe_workspace *workspace,
                                       const moe_finish_args *args) MOE_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------
 * 10  Checkpoints: a folder of safetensors with its config.json, one .safetensors file beside its config.json (a shard with its
 *     index beside it stands for the whole model), a GGUF file (any part of a split one), or a folder that holds one GGUF model
 * --------------------------------------------------------------------------------------------------------- */

typedef enum moe_io MOE_ENUM_BASE {
    MOE_IO_MMAP = 0, /* mapped read-only: nothing is read until used. A file truncated meanwhile kills the process (SIGBUS) */
    MOE_IO_READ = 1, /* plain reads into memory of the allocator, tensor by tensor, on request; no borrowing */
    MOE_IO_FORCE_INT32 = 0x7FFFFFFF
} moe_io;

typedef struct moe_checkpoint_options {
    uint32_t struct_size;
    moe_io io;
    const char *family;               /* NULL: from the config. Else one of moe_checkpoint_family_at */
    int32_t has_orientation;          /* overrides what the family says of fused expert tensors */
    moe_orientation orientation;
    moe_gate_up_order gate_up_order;  /* 0: what the family says */
    uint32_t reserved;
    const char *overrides;            /* NULL: none. Fields of moe_layer_desc in place of what the files say, in every layer:
                                         "top_k=4, routed_scale=2.5, renormalize=sum_clamp". A value is a number, or of an enum the
                                         rest of its name in lower case. A field that has a has_ flag sets it, and "none" clears both.
                                         What tensors decide (sizes, has_router and the like) is refused, and so is a name that is
                                         given twice: MOE_ERROR_INVALID_ARGUMENT with the name and the value */
} moe_checkpoint_options;

/* Reads headers only. options may be NULL. Errors name the file, and the tensor or key. */
MOE_API moe_status MOE_CALL moe_checkpoint_open(moe_runtime *runtime, const char *path,
                                                const moe_checkpoint_options *options,
                                                moe_checkpoint **out_checkpoint) MOE_NOEXCEPT;
/* Weights that borrow from the checkpoint keep its mappings alive. */
MOE_API void MOE_CALL moe_checkpoint_destroy(moe_checkpoint *checkpoint) MOE_NOEXCEPT;

typedef struct moe_checkpoint_info {
    uint32_t struct_size;
    int32_t n_layers;       /* MoE layers */
    int32_t n_files;
    int32_t is_gguf;
    uint64_t n_tensors;
    uint64_t file_bytes;
    char family[64];        /* "mixtral", "qwen3_moe", ... */
    char model_type[64];    /* as the file has it */
} moe_checkpoint_info;

MOE_API moe_status MOE_CALL moe_checkpoint_get_info(const moe_checkpoint *checkpoint,
                                                    moe_checkpoint_info *out_info) MOE_NOEXCEPT;
/* Names of the families this version knows; static, NULL past the end. */
MOE_API const char *MOE_CALL moe_checkpoint_family_at(uint32_t index) MOE_NOEXCEPT;
/* Decoder layer of the index-th MoE layer, ascending: the number in the tensor names, after them those that predict further tokens. */
MOE_API moe_status MOE_CALL moe_checkpoint_layer_at(const moe_checkpoint *checkpoint, int32_t index,
                                                    int32_t *out_layer) MOE_NOEXCEPT;
/* Description of decoder layer `layer`, overrides applied. Change any field before planning: files leave things out. Overrides with
 * which no layer can be (moe_layer_validate) are MOE_ERROR_INVALID_ARGUMENT here and wherever the layer is read. */
MOE_API moe_status MOE_CALL moe_checkpoint_layer(const moe_checkpoint *checkpoint, int32_t layer,
                                                 moe_layer_desc *out_desc) MOE_NOEXCEPT;
/* Formats by role: fills *out_formats[role] for role < n_formats where the pointer is not NULL; a role that the layer does not
 * have gets type NONE. Experts of one role must agree, else MOE_ERROR_UNSUPPORTED names two that differ. */
MOE_API moe_status MOE_CALL moe_checkpoint_formats(const moe_checkpoint *checkpoint, int32_t layer,
                                                   moe_format *const *out_formats, uint32_t n_formats) MOE_NOEXCEPT;
/* The index-th tensor of a layer as a moe_tensor that points into the mapping (MMAP), with its format in *out_format, which
 * out_tensor->format then points to. MOE_ERROR_NOT_FOUND past the end. Valid while the checkpoint lives. */
MOE_API moe_status MOE_CALL moe_checkpoint_tensor(const moe_checkpoint *checkpoint, int32_t layer, uint32_t index,
                                                  moe_tensor *out_tensor, moe_format *out_format) MOE_NOEXCEPT;

typedef struct moe_load_options {
    uint32_t struct_size;
    moe_ownership ownership;  /* BORROW needs MOE_IO_MMAP */
    void *memory;             /* CALLER: as in moe_weights_desc, host memory for a CPU plan, device memory for a CUDA plan */
    uint64_t memory_bytes;
    void *stream;             /* as in moe_weights_desc */
    moe_progress_fn progress;
    void *progress_user_data;
} moe_load_options;

/* Loads one layer for a plan, only the bytes of the plan's slice and stages (under MOE_IO_READ whole experts are read, and the
 * slice of them kept). options may be NULL. */
MOE_API moe_status MOE_CALL moe_weights_load_checkpoint(const moe_plan *plan, const moe_checkpoint *checkpoint,
                                                        int32_t layer, const moe_load_options *options,
                                                        moe_weights **out_weights) MOE_NOEXCEPT;

/* Loading in the background, on a thread that the library makes for it, expert by expert. The thread packs and copies with the
 * runtime's threads as moe_weights_load does; a call that finds them taken does its work alone meanwhile. */
typedef struct moe_loading moe_loading;

typedef struct moe_loading_progress {
    uint32_t struct_size;
    int32_t is_done;          /* 1: moe_loading_wait does not wait */
    moe_status status;        /* MOE_OK until it is done, then what moe_loading_wait answers for the load */
    uint32_t reserved;
    uint64_t bytes_done;      /* of the weights, as moe_progress_fn gives them; ascending, bytes_total when all is there */
    uint64_t bytes_total;
} moe_loading_progress;

/* moe_weights_load and moe_weights_load_checkpoint that return at once: what can be told from the arguments alone is refused
 * here, everything else by moe_loading_wait. Structs and arrays of pointers to structs are read during this call. Whatever else
 * they point to (bytes of tensors, data_per_expert, global_scale and the other tables, memory of MOE_OWN_CALLER, what
 * progress_user_data is for) must stay, unchanged, until the load is done. plan and checkpoint may be destroyed at once. progress is
 * called on the loading thread, and may not wait for the load or destroy it.
 * CUDA: in the context that is current here, or the device's primary one, which must live until the load is done. stream NULL: on
 * a stream of its own, which does not wait for the default stream. Weights that are done are there for every stream.
 * A runtime with a parallel_for makes no thread: MOE_ERROR_UNSUPPORTED. Not under capture. */
MOE_API moe_status MOE_CALL moe_loading_start(const moe_plan *plan, const moe_weights_desc *desc,
                                              moe_loading **out_loading) MOE_NOEXCEPT;
MOE_API moe_status MOE_CALL moe_loading_start_checkpoint(const moe_plan *plan, const moe_checkpoint *checkpoint, int32_t layer,
                                                         const moe_load_options *options,
                                                         moe_loading **out_loading) MOE_NOEXCEPT;
/* How far it is. Never waits. MOE_OK of a load that failed, too: the status is in the struct. Poll, wait and cancel may be called by any
 * number of threads at once. */
MOE_API moe_status MOE_CALL moe_loading_poll(const moe_loading *loading, moe_loading_progress *out_progress) MOE_NOEXCEPT;
/* Waits until the load is done, and answers what moe_weights_load would have, with its sentence, to every caller. The weights are
 * the first one's who waits for them; out_weights NULL waits without taking them. Weights that were taken already are
 * MOE_ERROR_NOT_FOUND. In a forked child MOE_ERROR_FORKED. */
MOE_API moe_status MOE_CALL moe_loading_wait(moe_loading *loading, moe_weights **out_weights) MOE_NOEXCEPT;
/* Asks the load to stop and returns at once. It stops before its next expert with MOE_ERROR_CANCELLED, or is done by then. */
MOE_API moe_status MOE_CALL moe_loading_cancel(moe_loading *loading) MOE_NOEXCEPT;
/* Cancels, waits for the thread, and destroys weights that nobody took. In a forked child, where there is no thread, what the load
 * held stays. */
MOE_API void MOE_CALL moe_loading_destroy(moe_loading *loading) MOE_NOEXCEPT;

/* ------------------------------------------------------------------------------------------------------------
 * 11  Host tools: one matrix at a time, host memory, calling thread
 * --------------------------------------------------------------------------------------------------------- */

typedef struct moe_quantize_args {
    uint32_t struct_size;
    uint32_t reserved;
    const moe_format *format;  /* required */
    const float *source;       /* [rows, columns] dense */
    int64_t rows;
    int64_t columns;
    void *data;                /* moe_format_size bytes */
    uint64_t data_bytes;
    void *scales;              /* moe_format_size bytes, NULL when 0 */
    uint64_t scale_bytes;
    float *global_scale;       /* one value, written; required when the format has a global scale */
    const float *codebook;     /* CODEBOOK_GIVEN: 2^bits values, ascending */
} moe_quantize_args;

MOE_API moe_status MOE_CALL moe_quantize(const moe_quantize_args *args) MOE_NOEXCEPT;
/* Decodes expert `expert` of a tensor (0 for a single matrix) into out [rows, columns], as it lies: a fused tensor stays
 * fused. out_elements is the size of out. A tensor without a role may be a stack, too. */
MOE_API moe_status MOE_CALL moe_dequantize(const moe_tensor *tensor, int64_t expert, float *out,
                                           uint64_t out_elements) MOE_NOEXCEPT;

/* Bytes of the scales of one matrix in a layout, one byte each, with padding. columns counts groups of columns: 90 for 2880 in
 * groups of 32. MOE_ERROR_INVALID_ARGUMENT for an unknown layout, and for sizes that are not positive or too large. */
MOE_API moe_status MOE_CALL moe_scale_layout_size(moe_scale_layout layout, int64_t rows, int64_t columns,
                                                  uint64_t *out_bytes) MOE_NOEXCEPT;

typedef struct moe_convert_scales_args {
    uint32_t struct_size;
    uint32_t reserved;
    moe_scale_layout source_layout;
    moe_scale_layout layout;   /* of what is written */
    int64_t rows;              /* of one matrix; of a stack one call per expert */
    int64_t columns;           /* groups of columns, as in moe_scale_layout_size */
    const void *source;        /* moe_scale_layout_size bytes in source_layout; padding is not read */
    uint64_t source_bytes;
    void *scales;              /* moe_scale_layout_size bytes in layout; must not overlap source */
    uint64_t scale_bytes;
} moe_convert_scales_args;

/* The scales of one matrix from one layout to another, a byte each, whatever their type: from what moe_quantize writes, which is
 * linear, or a checkpoint holds, to what a block-scaled product reads, and back. Padding is written as zeros. A buffer that is NULL
 * or too small, and buffers that overlap, are MOE_ERROR_INVALID_ARGUMENT, and nothing is written. */
MOE_API moe_status MOE_CALL moe_convert_scales(const moe_convert_scales_args *args) MOE_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* MOE_MOE_H */
