// Written by generate.py from include/moe/moe.h; change those.
using System;
using System.Runtime.InteropServices;

namespace Moe
{
    /// <summary>Constants of moe.h.</summary>
    internal static class Header
    {
        public const uint AbiVersion = 1;
        public const uint VersionNumber = 1000;
        public const int RoleCount = 26;
        public const int AllExperts = -1;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_allocator
    {
        public uint struct_size;
        public uint reserved;
        public IntPtr allocate;
        public IntPtr release;
        public IntPtr user_data;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_runtime_desc
    {
        public uint struct_size;
        public int n_threads;
        public IntPtr allocator;
        public IntPtr parallel_for;
        public IntPtr parallel_for_user_data;
        public IntPtr log;
        public IntPtr log_user_data;
        public LogLevel log_level;
        public uint reserved;
        public IntPtr cublaslt_path;
        public IntPtr nccl_path;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_device_info
    {
        public uint struct_size;
        public DeviceKind kind;
        public int index;
        public int n_cores;
        public ulong memory_bytes;
        public int arch_major;
        public int arch_minor;
        public fixed byte name[128];
        public fixed byte features[256];
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_layer_desc
    {
        public uint struct_size;
        public int hidden;
        public int intermediate;
        public int n_experts;
        public int top_k;
        public int n_identity_experts;
        public int has_router;
        public int has_router_bias;
        public int has_selection_bias;
        public int has_router_norm;
        public int has_router_norm_weight;
        public int has_router_input_scale;
        public float router_norm_eps;
        public float router_input_scale;
        public int has_logit_softcap;
        public float logit_softcap;
        public Score score;
        public Score post_score;
        public Selection selection;
        public float sparsemixer_jitter;
        public int hash_vocabulary;
        public int n_group;
        public int topk_group;
        public GroupScore group_score;
        public Renormalize renormalize;
        public float renormalize_eps;
        public int has_routed_scale;
        public float routed_scale;
        public int has_expert_scale;
        public WeightOn weight_on;
        public int round_logits;
        public int round_weights;
        public Activation activation;
        public int is_gated;
        public int has_activation_alpha;
        public float activation_alpha;
        public float activation_up_offset;
        public int has_gate_limit;
        public float gate_limit;
        public int has_up_limit;
        public float up_limit;
        public int has_post_limit;
        public float post_limit;
        public float situ_beta;
        public float situ_beta_up;
        public int has_gate_bias;
        public int has_up_bias;
        public int has_down_bias;
        public int latent;
        public int has_latent_norm;
        public float latent_norm_eps;
        public int shared_intermediate;
        public int has_shared_expert_gate;
        public int has_shared_scale;
        public float shared_scale;
        public Activation shared_activation;
        public int shared_is_gated;
        public int has_shared_activation_alpha;
        public float shared_activation_alpha;
        public float shared_activation_up_offset;
        public int has_shared_gate_limit;
        public float shared_gate_limit;
        public int has_shared_up_limit;
        public float shared_up_limit;
        public int has_shared_post_limit;
        public float shared_post_limit;
        public float shared_situ_beta;
        public float shared_situ_beta_up;
        public CombineRule combine;
        public GroupMask group_mask;
        public int has_second_selection_bias;
        public int has_latent_in_norm;
        public float latent_in_norm_eps;
        public int has_expert_norm;
        public float expert_norm_eps;
        public int expert_norm_weight_first;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_format
    {
        public uint struct_size;
        public ElementType type;
        public int bits;
        public int group_rows;
        public int group_columns;
        public ElementType scale_type;
        public GlobalScale global_scale;
        public ZeroPoint zero_point;
        public Packing packing;
        public Codebook codebook;
        public int block_id;
        public int act_order;
        public int nested_scales;
        public int pre_quant_scale;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_format_info
    {
        public uint struct_size;
        public int block_rows;
        public int block_columns;
        public int has_decode;
        public int has_encode;
        public uint reserved;
        public double bits_per_weight;
        public fixed byte name[64];
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_tensor
    {
        public uint struct_size;
        public Role role;
        public int expert;
        public Orientation orientation;
        public GateUpOrder gate_up_order;
        public Space space;
        public IntPtr format;
        public long n_experts;
        public long rows;
        public long columns;
        public long row_stride;
        public long expert_stride;
        public IntPtr data;
        public ulong data_bytes;
        public IntPtr data_per_expert;
        public IntPtr scales;
        public ulong scale_bytes;
        public IntPtr scales_per_expert;
        public long scale_row_stride;
        public long scale_expert_stride;
        public IntPtr global_scale;
        public long n_global_scales;
        public IntPtr codebook;
        public ulong codebook_bytes;
        public IntPtr zero_points;
        public ulong zero_point_bytes;
        public IntPtr permutation;
        public ulong permutation_bytes;
        public IntPtr nested_scales;
        public ulong nested_scale_bytes;
        public IntPtr nested_codebook;
        public float nested_offset;
        public uint reserved;
        public IntPtr input_scale;
        public long n_input_scales;
        public IntPtr pre_quant_scale;
        public ulong pre_quant_scale_bytes;
        public ScaleLayout scale_layout;
        public uint reserved2;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_slice
    {
        public uint struct_size;
        public int has_expert_range;
        public int expert_begin;
        public int expert_count;
        public IntPtr expert_to_local;
        public int n_expert_to_local;
        public int has_intermediate_range;
        public int intermediate_begin;
        public int intermediate_count;
        public int has_shared_range;
        public int shared_begin;
        public int shared_count;
        public uint reserved;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_plan_desc
    {
        public uint struct_size;
        public DeviceKind device;
        public int device_index;
        public ElementType x_type;
        public ElementType router_input_type;
        public ElementType out_type;
        public ElementType intermediate_type;
        public uint stages;
        public int checkpoint_layer;
        public uint reserved;
        public IntPtr checkpoint;
        public IntPtr layer;
        public IntPtr formats;
        public uint n_formats;
        public int partial;
        public IntPtr slice;
        public long max_tokens;
        public ulong max_workspace_bytes;
        public Residency residency;
        public ActivationQuantization activation_quantization;
        public int batch_invariant;
        public int unfused;
        public IntPtr kernel_filter;
        public IntPtr tuning_path;
        public IntPtr formats_per_expert;
        public uint n_formats_per_expert;
        public uint reserved2;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_workspace_need
    {
        public uint struct_size;
        public uint reserved;
        public ulong device_bytes;
        public ulong host_bytes;
        public ulong alignment;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_candidate
    {
        public uint struct_size;
        public Stage stage;
        public int chosen;
        public int applicable;
        public IntPtr kernel;
        public IntPtr reason_code;
        public IntPtr reason;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_weights_desc
    {
        public uint struct_size;
        public Ownership ownership;
        public IntPtr tensors;
        public uint n_tensors;
        public Space memory_space;
        public IntPtr memory;
        public ulong memory_bytes;
        public IntPtr stream;
        public IntPtr progress;
        public IntPtr progress_user_data;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_memory_report
    {
        public uint struct_size;
        public uint n_local_experts;
        public ulong host_bytes;
        public ulong pinned_bytes;
        public ulong device_bytes;
        public ulong borrowed_bytes;
        public ulong bookkeeping_bytes;
        public fixed ulong role_bytes[32];
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_workspace_desc
    {
        public uint struct_size;
        public DeviceKind device;
        public int device_index;
        public uint reserved;
        public IntPtr plan;
        public ulong device_bytes;
        public IntPtr device_memory;
        public ulong host_bytes;
        public IntPtr host_memory;
        public IntPtr stream;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_workspace_faults
    {
        public uint struct_size;
        public uint faults;
        public long n_skipped;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_forward_args
    {
        public uint struct_size;
        public Routing routing;
        public long n_tokens;
        public IntPtr n_tokens_device;
        public IntPtr x;
        public long x_row_stride;
        public IntPtr x_scales;
        public long x_scale_row_stride;
        public IntPtr router_input;
        public long router_input_row_stride;
        public IntPtr logits;
        public long logits_row_stride;
        public IntPtr ids;
        public ElementType ids_type;
        public ElementType weights_type;
        public long ids_row_stride;
        public IntPtr weights;
        public long weights_row_stride;
        public IntPtr token_ids;
        public ElementType token_ids_type;
        public int n_expert_map;
        public IntPtr expert_map;
        public IntPtr @out;
        public long out_row_stride;
        public OutLayout out_layout;
        public int accumulate;
        public IntPtr out_logits;
        public long out_logits_row_stride;
        public IntPtr out_ids;
        public long out_ids_row_stride;
        public IntPtr out_weights;
        public long out_weights_row_stride;
        public IntPtr out_expert_counts;
        public IntPtr stream;
        public int n_threads;
        public uint reserved;
        public IntPtr uses_second_bias;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_route_args
    {
        public uint struct_size;
        public Routing routing;
        public long n_tokens;
        public IntPtr n_tokens_device;
        public IntPtr x;
        public long x_row_stride;
        public IntPtr router_input;
        public long router_input_row_stride;
        public IntPtr logits;
        public long logits_row_stride;
        public IntPtr ids;
        public ElementType ids_type;
        public ElementType token_ids_type;
        public long ids_row_stride;
        public IntPtr token_ids;
        public IntPtr out_ids;
        public long out_ids_row_stride;
        public IntPtr out_weights;
        public long out_weights_row_stride;
        public IntPtr out_logits;
        public long out_logits_row_stride;
        public IntPtr stream;
        public int n_threads;
        public uint reserved;
        public IntPtr uses_second_bias;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_dispatch_args
    {
        public uint struct_size;
        public int block_rows;
        public long n_tokens;
        public IntPtr n_tokens_device;
        public IntPtr ids;
        public ElementType ids_type;
        public int n_expert_map;
        public long ids_row_stride;
        public IntPtr expert_map;
        public IntPtr out_offsets;
        public IntPtr out_counts;
        public IntPtr out_row_ids;
        public long row_capacity;
        public IntPtr stream;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_gather_args
    {
        public uint struct_size;
        public int x_is_latent;
        public long n_tokens;
        public IntPtr x;
        public long x_row_stride;
        public IntPtr offsets;
        public IntPtr counts;
        public IntPtr row_ids;
        public long n_rows;
        public IntPtr @out;
        public long out_row_stride;
        public IntPtr weights;
        public long weights_row_stride;
        public IntPtr out_row_tokens;
        public IntPtr out_row_weights;
        public IntPtr stream;
        public int n_threads;
        public uint reserved;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_experts_args
    {
        public uint struct_size;
        public InLayout in_layout;
        public OutLayout out_layout;
        public int stop_before_activation;
        public long n_tokens;
        public IntPtr n_tokens_device;
        public IntPtr x;
        public long x_row_stride;
        public int x_is_latent;
        public ElementType ids_type;
        public IntPtr ids;
        public long ids_row_stride;
        public IntPtr weights;
        public long weights_row_stride;
        public IntPtr expert_map;
        public int n_expert_map;
        public uint reserved;
        public IntPtr offsets;
        public IntPtr counts;
        public IntPtr row_ids;
        public IntPtr row_weights;
        public long n_rows;
        public long batch_capacity;
        public IntPtr @out;
        public long out_row_stride;
        public int accumulate;
        public uint reserved2;
        public IntPtr stream;
        public int n_threads;
        public uint reserved3;
        public IntPtr x_scales;
        public long x_scale_row_stride;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_combine_args
    {
        public uint struct_size;
        public InLayout rows_layout;
        public long n_tokens;
        public IntPtr n_tokens_device;
        public IntPtr rows;
        public long rows_row_stride;
        public IntPtr row_ids;
        public long n_rows;
        public IntPtr ids;
        public long ids_row_stride;
        public ElementType ids_type;
        public int accumulate;
        public IntPtr weights;
        public long weights_row_stride;
        public IntPtr x;
        public long x_row_stride;
        public IntPtr @out;
        public long out_row_stride;
        public IntPtr stream;
        public int n_threads;
        public uint reserved;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_finish_args
    {
        public uint struct_size;
        public uint parts;
        public long n_tokens;
        public IntPtr n_tokens_device;
        public IntPtr routed;
        public long routed_row_stride;
        public IntPtr x;
        public long x_row_stride;
        public IntPtr ids;
        public long ids_row_stride;
        public ElementType ids_type;
        public int accumulate;
        public IntPtr weights;
        public long weights_row_stride;
        public IntPtr @out;
        public long out_row_stride;
        public IntPtr stream;
        public int n_threads;
        public uint reserved;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_checkpoint_options
    {
        public uint struct_size;
        public CheckpointIO io;
        public IntPtr family;
        public int has_orientation;
        public Orientation orientation;
        public GateUpOrder gate_up_order;
        public uint reserved;
        public IntPtr overrides;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_checkpoint_info
    {
        public uint struct_size;
        public int n_layers;
        public int n_files;
        public int is_gguf;
        public ulong n_tensors;
        public ulong file_bytes;
        public fixed byte family[64];
        public fixed byte model_type[64];
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_load_options
    {
        public uint struct_size;
        public Ownership ownership;
        public IntPtr memory;
        public ulong memory_bytes;
        public IntPtr stream;
        public IntPtr progress;
        public IntPtr progress_user_data;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_loading_progress
    {
        public uint struct_size;
        public int is_done;
        public Status status;
        public uint reserved;
        public ulong bytes_done;
        public ulong bytes_total;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_quantize_args
    {
        public uint struct_size;
        public uint reserved;
        public IntPtr format;
        public IntPtr source;
        public long rows;
        public long columns;
        public IntPtr data;
        public ulong data_bytes;
        public IntPtr scales;
        public ulong scale_bytes;
        public IntPtr global_scale;
        public IntPtr codebook;
    }

    [StructLayout(LayoutKind.Sequential)]
    internal unsafe struct moe_convert_scales_args
    {
        public uint struct_size;
        public uint reserved;
        public ScaleLayout source_layout;
        public ScaleLayout layout;
        public long rows;
        public long columns;
        public IntPtr source;
        public ulong source_bytes;
        public IntPtr scales;
        public ulong scale_bytes;
    }
}
