// Written by generate.py from include/moe/moe.h; change those.
using System;

namespace Moe
{
    /// <summary>Outcome of a call: 0 good, negative an error. Open: new values may come.</summary>
    public enum Status
    {
        Ok = 0,
        /// <summary>the sentence names the field and the value</summary>
        InvalidArgument = -1,
        /// <summary>an allocator returned NULL</summary>
        OutOfMemory = -2,
        /// <summary>understood, legal, not implemented by this version or candidate</summary>
        Unsupported = -3,
        /// <summary>this build of the library lacks the requested backend</summary>
        NotBuilt = -4,
        /// <summary>the backend is there, the device or its driver is not</summary>
        NoDevice = -5,
        /// <summary>weights or tensors are not in the plan's layout or formats</summary>
        LayoutMismatch = -6,
        /// <summary>the sentence says how much is needed</summary>
        WorkspaceTooSmall = -7,
        /// <summary>a progress callback said stop</summary>
        Cancelled = -8,
        /// <summary>the handle was made before fork()</summary>
        Forked = -9,
        /// <summary>the operating system refused a file operation</summary>
        Io = -10,
        /// <summary>a file breaks the rules of its format</summary>
        CorruptFile = -11,
        /// <summary>a tensor, layer, key or name does not exist</summary>
        NotFound = -12,
        /// <summary>a struct is larger than known and its tail is not zero, or too small</summary>
        Abi = -13,
        /// <summary>a device call failed; the sentence has the device's own text</summary>
        Device = -14,
        /// <summary>a workspace is in use by another thread</summary>
        Busy = -15,
        /// <summary>see "Text out"</summary>
        BufferTooSmall = -16,
        /// <summary>a defect of the library; please report it</summary>
        Internal = -17,
    }

    /// <summary>Element types. Those of activations: F32, F16, BF16, and F64 where said; the rest belong to weight
    /// formats.</summary>
    public enum ElementType
    {
        None = 0,
        F32 = 1,
        F16 = 2,
        BF16 = 3,
        F64 = 4,
        I8 = 10,
        U8 = 11,
        I32 = 12,
        I64 = 13,
        /// <summary>OCP E4M3 "FN": 0x7F and 0xFF are NaN, no infinity, max 448</summary>
        F8E4M3 = 20,
        F8E5M2 = 21,
        /// <summary>scale only: 2^(code - 127), 0xFF is NaN</summary>
        F8E8M0 = 22,
        /// <summary>scale only, unsigned, bias 11: e ? 2^(e-11) (1 + m/16) : m 2^-14</summary>
        F8E4M4 = 23,
        /// <summary>FP4: 0 .5 1 1.5 2 3 4 6 and their negatives</summary>
        E2M1 = 30,
        /// <summary>integer codes of moe_format.bits bits</summary>
        Int = 31,
        /// <summary>codes of moe_format.bits bits that index a table of 2^bits float32</summary>
        Codebook = 32,
        /// <summary>a ggml block type, moe_format.block_id</summary>
        Gguf = 33,
    }

    /// <summary>Tensor roles of one layer. W is [out, in]. Shapes: H hidden, I intermediate, E routed experts, L
    /// latent (H if the layer has none), S shared intermediate, E_all = E + identity experts. Vectors have one
    /// row.</summary>
    public enum Role
    {
        None = 0,
        /// <summary>[E_all, H]</summary>
        Router = 1,
        /// <summary>[1, E_all], added to the logits</summary>
        RouterBias = 2,
        /// <summary>[1, E_all] float32, added to the scores for selection only</summary>
        SelectionBias = 3,
        /// <summary>[1, H], multiplies the RMS-normalised router input</summary>
        RouterNorm = 4,
        /// <summary>[vocabulary, k] int32 or int64: token id -&gt; expert ids</summary>
        HashTable = 5,
        /// <summary>[1, E], multiplies the routing weight of each expert</summary>
        ExpertScale = 6,
        /// <summary>per expert [I, L]</summary>
        Gate = 7,
        /// <summary>per expert [I, L]</summary>
        Up = 8,
        /// <summary>per expert [L, I]</summary>
        Down = 9,
        /// <summary>per expert [2I, L], order said by moe_tensor.gate_up_order; tensors only</summary>
        GateUp = 10,
        /// <summary>per expert [1, I]</summary>
        GateBias = 11,
        /// <summary>per expert [1, I]</summary>
        UpBias = 12,
        /// <summary>per expert [1, L]</summary>
        DownBias = 13,
        /// <summary>per expert [1, 2I]; tensors only</summary>
        GateUpBias = 14,
        /// <summary>[S, H]</summary>
        SharedGate = 15,
        /// <summary>[S, H]</summary>
        SharedUp = 16,
        /// <summary>[H, S]</summary>
        SharedDown = 17,
        /// <summary>[2S, H]; tensors only</summary>
        SharedGateUp = 18,
        /// <summary>[1, H]: shared output is multiplied by sigmoid(x . row)</summary>
        SharedExpertGate = 19,
        /// <summary>[L, H]</summary>
        LatentIn = 20,
        /// <summary>[H, L]</summary>
        LatentOut = 21,
        /// <summary>[1, L], RMS norm of the routed sum before LATENT_OUT</summary>
        LatentNorm = 22,
        /// <summary>[1, E_all] float32, instead of SELECTION_BIAS for the tokens that the call names</summary>
        SecondSelectionBias = 23,
        /// <summary>[1, L], RMS norm of LATENT_IN x</summary>
        LatentInNorm = 24,
        /// <summary>[1, L], RMS norm of every expert's output, one for all of them</summary>
        ExpertNorm = 25,
    }

    /// <summary>Function of all logits of a token, before selection.</summary>
    public enum Score
    {
        /// <summary>s = z; Kolibri-1: the top k of z + selection bias, weighted by post_score SIGMOID of z</summary>
        None = 0,
        /// <summary>over all E_all</summary>
        Softmax = 1,
        Sigmoid = 2,
        /// <summary>sqrt(log(1 + exp z)); softplus(z) = z above 20</summary>
        SqrtSoftplus = 3,
    }

    /// <summary>How the k experts of a token are chosen. Ties go to the lowest index everywhere.</summary>
    public enum Selection
    {
        /// <summary>the k largest of score + selection bias, largest first</summary>
        TopK = 0,
        /// <summary>k = 2, on logits: Phi-3.5-MoE's rule with sparsemixer_jitter</summary>
        Sparsemixer = 1,
        /// <summary>HASH_TABLE[token id]; weights still come from the scores</summary>
        Hash = 2,
    }

    /// <summary>Score of a group of experts in group-limited selection.</summary>
    public enum GroupScore
    {
        None = 0,
        /// <summary>the largest key of the group (DeepSeek-V2)</summary>
        Max = 1,
        /// <summary>the sum of its two largest keys (DeepSeek-V3)</summary>
        Top2Sum = 2,
    }

    /// <summary>What becomes of the keys outside the best groups in group-limited selection.</summary>
    public enum GroupMask
    {
        /// <summary>-inf: such an expert is never chosen</summary>
        Infinity = 0,
        /// <summary>0: such an expert comes before one of a negative key (A.X-K2 in transformers)</summary>
        Zero = 1,
    }

    /// <summary>Division of the k selected weights by their sum S.</summary>
    public enum Renormalize
    {
        None = 0,
        /// <summary>w / (S + renormalize_eps); 0/0 gives 0</summary>
        SumAdd = 1,
        /// <summary>w / max(S, renormalize_eps); 0/0 gives 0</summary>
        SumClamp = 2,
    }

    /// <summary>Where the routing weight is applied.</summary>
    public enum WeightOn
    {
        /// <summary>y = sum_j w_j F_j(x)</summary>
        Output = 0,
        /// <summary>y = sum_j F_j(w_j x), Llama 4</summary>
        Input = 1,
    }

    /// <summary>How routed sum and shared expert become the output.</summary>
    public enum CombineRule
    {
        /// <summary>routed + shared</summary>
        Sum = 0,
        /// <summary>(routed + shared) / 2; needs a shared expert</summary>
        Mean = 1,
    }

    /// <summary>Activations: g is the gate pre-activation, u the up pre-activation, s() the logistic
    /// sigmoid.</summary>
    public enum Activation
    {
        /// <summary>invalid in a layer</summary>
        None = 0,
        /// <summary>g s(alpha g) (u + up_offset), with the limits of moe_layer_desc</summary>
        Silu = 1,
        /// <summary>g/2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) u</summary>
        GeluTanh = 2,
        /// <summary>g/2 (1 + erf(g / sqrt 2)) u</summary>
        GeluErf = 3,
        /// <summary>max(u, 0)^2, no gate matrix: set is_gated 0</summary>
        Relu2 = 4,
        /// <summary>b tanh(g/b) s(g) b_up tanh(u/b_up), b = situ_beta, b_up = situ_beta_up</summary>
        Situ = 5,
    }

    public enum DeviceKind
    {
        /// <summary>CUDA when it is there and the description is one for it, else CPU; moe_plan_device says which and
        /// why. Activations are memory of that device: a program that has them in host memory asks for CPU</summary>
        Auto = 0,
        Cpu = 1,
        /// <summary>requested and absent: MOE_ERROR_NOT_BUILT or MOE_ERROR_NO_DEVICE, never the CPU</summary>
        Cuda = 2,
    }

    public enum Space
    {
        Host = 0,
        /// <summary>host memory that the device can read</summary>
        Pinned = 1,
        Device = 2,
    }

    /// <summary>The stages; values are bits.</summary>
    [Flags]
    public enum Stage
    {
        None = 0,
        Route = 1,
        Dispatch = 2,
        Experts = 4,
        Combine = 8,
        Finish = 16,
    }

    public enum LogLevel
    {
        /// <summary>warnings and errors</summary>
        Default = 0,
        Error = 1,
        Warning = 2,
        Info = 3,
        Debug = 4,
        Off = 5,
    }

    /// <summary>How the codes of one matrix lie in memory.</summary>
    public enum Packing
    {
        /// <summary>one element after the other, whole bytes; GGUF: ggml's blocks</summary>
        Dense = 0,
        /// <summary>two per byte, even k in the low nibble</summary>
        NibbleLowFirst = 1,
        /// <summary>two per byte, even element in the high nibble (bitsandbytes)</summary>
        NibbleHighFirst = 2,
        /// <summary>per 32 elements `bits` uint32 words; bit j of word b is bit b of code j (kbit)</summary>
        BitPlanes = 3,
        /// <summary>little-endian stream of codes in int32 words, along k (compressed-tensors)</summary>
        BitStream = 4,
        /// <summary>int32 [k/8, n], nibble i is k = 8r + i; other widths: a bit stream along k per n</summary>
        Gptq = 5,
        /// <summary>int32 [k, n/8], nibbles in the order 0 2 4 6 1 3 5 7</summary>
        Awq = 6,
    }

    public enum GlobalScale
    {
        None = 0,
        /// <summary>ModelOpt</summary>
        Multiply = 1,
        /// <summary>compressed-tensors</summary>
        Divide = 2,
    }

    public enum ZeroPoint
    {
        None = 0,
        /// <summary>value = code - 2^(bits-1)</summary>
        Middle = 1,
        /// <summary>one per group, packed like the codes</summary>
        Packed = 2,
        /// <summary>GPTQ v1: stored value + 1</summary>
        PackedMinusOne = 3,
        /// <summary>a bias per group, of the scale's type: value = code * scale + bias (MLX)</summary>
        Float = 4,
    }

    public enum Codebook
    {
        None = 0,
        /// <summary>moe_tensor.codebook, 2^bits float32</summary>
        Given = 1,
        /// <summary>quantiles of the normal distribution, scaled to 1</summary>
        NormalFloat = 2,
        BnbNf4 = 3,
        BnbFp4 = 4,
    }

    public enum Orientation
    {
        /// <summary>memory holds [rows, columns]: y = W x (torch Linear, GGUF)</summary>
        OutIn = 0,
        /// <summary>memory holds [columns, rows], the transpose (gpt-oss bf16, Llama 4); f32 f16 bf16, FP8,
        /// int8</summary>
        InOut = 1,
    }

    /// <summary>How a fused GATE_UP matrix or bias lies along its 2I rows.</summary>
    public enum GateUpOrder
    {
        /// <summary>not fused</summary>
        None = 0,
        GateFirst = 1,
        UpFirst = 2,
        /// <summary>row 2i gate, row 2i+1 up (gpt-oss)</summary>
        Interleaved = 3,
    }

    /// <summary>Where the scales of a matrix lie that are one byte each. They are a matrix of their own: scale (r, c)
    /// is that of row r and of the c-th group of columns.</summary>
    public enum ScaleLayout
    {
        /// <summary>row by row, as checkpoints have them</summary>
        Linear = 0,
        /// <summary>"swizzled", as the block-scaled products of cuBLAS, CUTLASS and FlashInfer read them: tiles of
        /// 128 rows by 4 groups, 512 bytes each, a row of tiles after the other. Scale (r, c) is byte r % 32 * 16 + r
        /// % 128 / 32 * 4 + c % 4 of tile (r / 128, c / 4). Rows are padded to 128 and groups to 4; what the padding
        /// holds does not matter</summary>
        Tiled128x4 = 1,
    }

    public enum Residency
    {
        /// <summary>PACKED on CUDA, SOURCE on the CPU</summary>
        Auto = 0,
        /// <summary>in the plan's own layout, a copy (docs/layout.md). On the CPU rows of some formats are
        /// interleaved: AVX-512 and AVX2 read some of them faster, some not (docs/limits.md); others decode them row
        /// by row</summary>
        Packed = 1,
        /// <summary>in the format and layout of the tensors given, read in place or copied. CPU plans: on CUDA
        /// MOE_ERROR_UNSUPPORTED</summary>
        Source = 2,
    }

    public enum ActivationQuantization
    {
        /// <summary>as given: a GEMV is within 1e-5 per token, relative L2 error (where terms cancel, of |W| |x| /
        /// sqrt(columns)); of 16-bit activations on the CPU within 1e-4, and within 6e-3 (1e-2 where single values
        /// are a hundred times the others) where many rows in bfloat16 share weights that are rounded to bfloat16:
        /// float16, those of a codebook, and with AMX all but float32 and codes of eight bits with zero
        /// points</summary>
        None = 0,
        /// <summary>CUDA; on the CPU MOE_ERROR_UNSUPPORTED. x, and act(gate, up) rounded to bfloat16 before down, may
        /// become E4M3: of every 128 columns of a row from the first on, q = round(v (448 / max |v|)), ties to even,
        /// s = max |v| / 448 as float32 (max |v| at least 2^-100), and products are of q s: a value is off by a 16th
        /// of itself at most, or by s / 1024. Tensor cores add the products of 128 columns, of which they keep 14
        /// bits or more; these sums are scaled and added in float32. Weights of NVFP4 and MXFP4 become E4M3 for it,
        /// code times scale over the largest scale of the row in the 128 columns: exact for MXFP4 where a scale is at
        /// least 2^-9 of that, else rounded. Weights of 4 bits take such kernels only where kernel_filter forces
        /// them. Kernels that take no such bytes take the values as given: gemv, weights other than these and FP8 and
        /// integers of 4 bits whose scales hold for 128 columns, GPUs other than Hopper; moe_plan_explain has fp8 in
        /// the names of those that do, as in sm90_e4m3_fp8_grouped_gemm_gate_up</summary>
        Fp8 = 1,
        /// <summary>CPU; on CUDA MOE_ERROR_UNSUPPORTED. x, and act(gate, up) before down, may become signed bytes: of
        /// every 32 columns of a row from the first on, q = round(v / s) with s = max |v| / 127 as float32, ties to
        /// even, and products are of q s: a value is off by s / 2 at most. With AMX many rows become bfloat16
        /// instead, off by |v| / 512 at most, and weights, too, as for NONE. Kernels that take no such bytes (of
        /// dense, fp8 and codebook weights; AVX2, NEON and the reference) take the values as given; moe_plan_explain
        /// has int8 or bf16 in the names of those that do</summary>
        Int8 = 2,
    }

    public enum ExplainForm
    {
        Text = 0,
        /// <summary>has "schema": "libmoe.explain.1"; docs/explain.schema.json</summary>
        Json = 1,
    }

    public enum Ownership
    {
        /// <summary>the bytes of the slice are copied into memory of the allocator</summary>
        Copy = 0,
        /// <summary>matrices are read where they lie and must stay there, unchanged, until moe_weights_destroy.
        /// Vectors (biases, norms, scales of experts) are small and are copied all the same. Not for packed weights,
        /// which are a copy: MOE_ERROR_UNSUPPORTED</summary>
        Borrow = 1,
        /// <summary>as COPY, into memory that the caller gives and frees after moe_weights_destroy</summary>
        Caller = 2,
    }

    /// <summary>What went wrong in calls that have finished; bits.</summary>
    [Flags]
    public enum Faults
    {
        None = 0,
        /// <summary>an id was &lt; -1 or &gt;= E_all, or expert_map has neither a local expert for it nor -1, which a
        /// CPU plan refuses; its slot was skipped</summary>
        IdOutOfRange = 1,
        /// <summary>a token id outside the hash table; the token got no expert</summary>
        TokenIdOutOfRange = 2,
        /// <summary>n_tokens_device was negative or above n_tokens; it was clamped</summary>
        TokensOutOfRange = 4,
        /// <summary>offsets, counts or row ids were not what they must be; rows were skipped. Of two rows of one slot
        /// the second is skipped, which a CUDA plan does not report. An expert whose rows do not begin behind those
        /// of all experts before it has none; a CUDA plan may leave it those that no expert before it has</summary>
        OffsetsOutOfRange = 8,
    }

    public enum Routing
    {
        /// <summary>from x or router_input; logits and ids must be NULL</summary>
        Compute = 0,
        /// <summary>from logits [T, E_all]: ROUTER and ROUTER_BIAS are not applied</summary>
        Logits = 1,
        /// <summary>ids given, weights computed from the scores (x or logits)</summary>
        Ids = 2,
        /// <summary>both given: weights are used as they are</summary>
        IdsAndWeights = 3,
    }

    public enum OutLayout
    {
        /// <summary>[T, H] ([T, L] of a partial plan with a latent). Identity experts are in it, but not in that of a
        /// partial plan: moe_finish adds them</summary>
        Reduced = 0,
        /// <summary>[T, k, L]: F_id(v) of every slot, unweighted; skipped slots and those of absent and identity
        /// experts are zero. With out_ids and out_weights it is what a combine of the caller's own needs: the sum
        /// over j of weights[t, j] times row [t, j] is REDUCED (docs/concepts/layouts.md)</summary>
        PerSlot = 1,
        /// <summary>moe_experts: the same rows as in, [n_rows, L]; of token-major input sorted rows</summary>
        Rows = 2,
    }

    /// <summary>Layouts of moe_experts, in (rows) x out (columns); "row ids" is that args.row_ids is given. REDUCED
    /// PER_SLOT ROWS TOKENS x [T, .] + ids (gather fused) yes yes sorted rows, per offsets / row_ids SORTED packed or
    /// blocked rows + offsets row ids, weights row ids yes BATCHED [E_local, capacity, .] + counts - - yes</summary>
    public enum InLayout
    {
        Tokens = 0,
        Sorted = 1,
        Batched = 2,
    }

    /// <summary>What moe_finish adds; bits.</summary>
    [Flags]
    public enum FinishParts
    {
        /// <summary>everything that applies</summary>
        All = 0,
        /// <summary>sum_j w_j DOWN_BIAS[id_j], for plans sliced along the intermediate</summary>
        DownBias = 1,
        /// <summary>latent norm and LATENT_OUT</summary>
        Latent = 2,
        /// <summary>the shared expert (its slice), gate and scale</summary>
        Shared = 4,
        /// <summary>the factor of the combine rule</summary>
        Combine = 8,
        /// <summary>sum_j w_j x over identity experts, for partial plans</summary>
        Identity = 16,
    }

    public enum CheckpointIO
    {
        /// <summary>mapped read-only: nothing is read until used. A file truncated meanwhile kills the process
        /// (SIGBUS)</summary>
        Mmap = 0,
        /// <summary>plain reads into memory of the allocator, tensor by tensor, on request; no borrowing</summary>
        Read = 1,
    }
}
