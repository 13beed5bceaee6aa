// Written by generate.py from include/moe/moe.h; change those.
namespace Moe
{
    /// <summary>The mathematics of a layer: moe_layer_desc, field by field. A value without its Has must be
    /// zero.</summary>
    public sealed unsafe partial class LayerDesc
    {
        /// <summary>H, required, a multiple of 32</summary>
        public int Hidden { get; set; }
        /// <summary>I of one routed expert, required, a multiple of 16</summary>
        public int Intermediate { get; set; }
        /// <summary>E, required, 1 to 4096</summary>
        public int NExperts { get; set; }
        /// <summary>k, required, 1 to min(64, E + n_identity_experts)</summary>
        public int TopK { get; set; }
        /// <summary>experts E .. E + n - 1 return their input (LongCat); not with a latent</summary>
        public int NIdentityExperts { get; set; }
        /// <summary>the layer owns ROUTER; without it logits or ids must be given</summary>
        public bool HasRouter { get; set; }
        public bool HasRouterBias { get; set; }
        public bool HasSelectionBias { get; set; }
        /// <summary>RMS norm of the router input, eps router_norm_eps, no learned weight</summary>
        public bool HasRouterNorm { get; set; }
        /// <summary>ROUTER_NORM multiplies it; needs has_router_norm</summary>
        public bool HasRouterNormWeight { get; set; }
        public bool HasRouterInputScale { get; set; }
        public float RouterNormEps { get; set; }
        public float RouterInputScale { get; set; }
        public bool HasLogitSoftcap { get; set; }
        /// <summary>&gt; 0</summary>
        public float LogitSoftcap { get; set; }
        public Score Score { get; set; }
        /// <summary>of the k selected values: NONE, SOFTMAX (over the k) or SIGMOID</summary>
        public Score PostScore { get; set; }
        public Selection Selection { get; set; }
        /// <summary>SPARSEMIXER only; Phi-3.5-MoE: 0.01</summary>
        public float SparsemixerJitter { get; set; }
        /// <summary>HASH only: rows of HASH_TABLE</summary>
        public int HashVocabulary { get; set; }
        /// <summary>0 or 1: no groups; divides E + n_identity_experts</summary>
        public int NGroup { get; set; }
        /// <summary>topk_group * (E_all / n_group) &gt;= k</summary>
        public int TopkGroup { get; set; }
        /// <summary>required with groups</summary>
        public GroupScore GroupScore { get; set; }
        public Renormalize Renormalize { get; set; }
        /// <summary>as it stands; 0 divides by the plain sum</summary>
        public float RenormalizeEps { get; set; }
        public bool HasRoutedScale { get; set; }
        public float RoutedScale { get; set; }
        /// <summary>EXPERT_SCALE</summary>
        public bool HasExpertScale { get; set; }
        public WeightOn WeightOn { get; set; }
        /// <summary>1: logits are rounded to the x type, as in some reference models</summary>
        public bool RoundLogits { get; set; }
        /// <summary>1: final weights are rounded to the x type</summary>
        public bool RoundWeights { get; set; }
        /// <summary>required</summary>
        public Activation Activation { get; set; }
        /// <summary>1: GATE and UP; 0: UP only, the activation's g is up's output</summary>
        public bool IsGated { get; set; }
        public bool HasActivationAlpha { get; set; }
        /// <summary>SILU: g s(alpha g); without it alpha is one</summary>
        public float ActivationAlpha { get; set; }
        /// <summary>SILU: u + offset; gpt-oss: 1</summary>
        public float ActivationUpOffset { get; set; }
        public bool HasGateLimit { get; set; }
        /// <summary>g = min(g, limit) before the activation</summary>
        public float GateLimit { get; set; }
        public bool HasUpLimit { get; set; }
        /// <summary>u = clamp(u, -limit, limit)</summary>
        public float UpLimit { get; set; }
        public bool HasPostLimit { get; set; }
        /// <summary>act(g) = min(act(g), limit) after the activation (SwigluStep)</summary>
        public float PostLimit { get; set; }
        /// <summary>SITU only, &gt; 0</summary>
        public float SituBeta { get; set; }
        /// <summary>SITU only, &gt; 0</summary>
        public float SituBetaUp { get; set; }
        public bool HasGateBias { get; set; }
        public bool HasUpBias { get; set; }
        /// <summary>latent projections around the routed experts</summary>
        public bool HasDownBias { get; set; }
        /// <summary>L; 0: none. A multiple of 32</summary>
        public int Latent { get; set; }
        public bool HasLatentNorm { get; set; }
        /// <summary>shared expert: one MLP of width shared_intermediate on x</summary>
        public float LatentNormEps { get; set; }
        /// <summary>S; 0: none. A multiple of 16</summary>
        public int SharedIntermediate { get; set; }
        public bool HasSharedExpertGate { get; set; }
        public bool HasSharedScale { get; set; }
        public float SharedScale { get; set; }
        /// <summary>required with a shared expert; the fields below as above</summary>
        public Activation SharedActivation { get; set; }
        public bool SharedIsGated { get; set; }
        public bool HasSharedActivationAlpha { get; set; }
        public float SharedActivationAlpha { get; set; }
        public float SharedActivationUpOffset { get; set; }
        public bool HasSharedGateLimit { get; set; }
        public float SharedGateLimit { get; set; }
        public bool HasSharedUpLimit { get; set; }
        public float SharedUpLimit { get; set; }
        public bool HasSharedPostLimit { get; set; }
        public float SharedPostLimit { get; set; }
        public float SharedSituBeta { get; set; }
        public float SharedSituBetaUp { get; set; }
        public CombineRule Combine { get; set; }
        /// <summary>of routing: keys outside the best groups. ZERO needs groups</summary>
        public GroupMask GroupMask { get; set; }
        /// <summary>of routing: SECOND_SELECTION_BIAS, for the tokens of moe_forward_args.uses_second_bias; needs
        /// has_selection_bias</summary>
        public bool HasSecondSelectionBias { get; set; }
        /// <summary>LATENT_IN_NORM: the experts read the RMS-normalised LATENT_IN x; needs latent</summary>
        public bool HasLatentInNorm { get; set; }
        public float LatentInNormEps { get; set; }
        /// <summary>EXPERT_NORM: RMS norm of each routed expert's output, before its weight; rows of moe_experts and
        /// slots have it. It needs the whole sum over I: not with a part of the intermediate</summary>
        public bool HasExpertNorm { get; set; }
        public float ExpertNormEps { get; set; }
        /// <summary>1: EXPERT_NORM multiplies before the norm, 0: after it; needs has_expert_norm</summary>
        public bool ExpertNormWeightFirst { get; set; }

        internal moe_layer_desc ToNative()
        {
            var made = default(moe_layer_desc);
            made.struct_size = (uint)sizeof(moe_layer_desc);
            made.hidden = Hidden;
            made.intermediate = Intermediate;
            made.n_experts = NExperts;
            made.top_k = TopK;
            made.n_identity_experts = NIdentityExperts;
            made.has_router = HasRouter ? 1 : 0;
            made.has_router_bias = HasRouterBias ? 1 : 0;
            made.has_selection_bias = HasSelectionBias ? 1 : 0;
            made.has_router_norm = HasRouterNorm ? 1 : 0;
            made.has_router_norm_weight = HasRouterNormWeight ? 1 : 0;
            made.has_router_input_scale = HasRouterInputScale ? 1 : 0;
            made.router_norm_eps = RouterNormEps;
            made.router_input_scale = RouterInputScale;
            made.has_logit_softcap = HasLogitSoftcap ? 1 : 0;
            made.logit_softcap = LogitSoftcap;
            made.score = Score;
            made.post_score = PostScore;
            made.selection = Selection;
            made.sparsemixer_jitter = SparsemixerJitter;
            made.hash_vocabulary = HashVocabulary;
            made.n_group = NGroup;
            made.topk_group = TopkGroup;
            made.group_score = GroupScore;
            made.renormalize = Renormalize;
            made.renormalize_eps = RenormalizeEps;
            made.has_routed_scale = HasRoutedScale ? 1 : 0;
            made.routed_scale = RoutedScale;
            made.has_expert_scale = HasExpertScale ? 1 : 0;
            made.weight_on = WeightOn;
            made.round_logits = RoundLogits ? 1 : 0;
            made.round_weights = RoundWeights ? 1 : 0;
            made.activation = Activation;
            made.is_gated = IsGated ? 1 : 0;
            made.has_activation_alpha = HasActivationAlpha ? 1 : 0;
            made.activation_alpha = ActivationAlpha;
            made.activation_up_offset = ActivationUpOffset;
            made.has_gate_limit = HasGateLimit ? 1 : 0;
            made.gate_limit = GateLimit;
            made.has_up_limit = HasUpLimit ? 1 : 0;
            made.up_limit = UpLimit;
            made.has_post_limit = HasPostLimit ? 1 : 0;
            made.post_limit = PostLimit;
            made.situ_beta = SituBeta;
            made.situ_beta_up = SituBetaUp;
            made.has_gate_bias = HasGateBias ? 1 : 0;
            made.has_up_bias = HasUpBias ? 1 : 0;
            made.has_down_bias = HasDownBias ? 1 : 0;
            made.latent = Latent;
            made.has_latent_norm = HasLatentNorm ? 1 : 0;
            made.latent_norm_eps = LatentNormEps;
            made.shared_intermediate = SharedIntermediate;
            made.has_shared_expert_gate = HasSharedExpertGate ? 1 : 0;
            made.has_shared_scale = HasSharedScale ? 1 : 0;
            made.shared_scale = SharedScale;
            made.shared_activation = SharedActivation;
            made.shared_is_gated = SharedIsGated ? 1 : 0;
            made.has_shared_activation_alpha = HasSharedActivationAlpha ? 1 : 0;
            made.shared_activation_alpha = SharedActivationAlpha;
            made.shared_activation_up_offset = SharedActivationUpOffset;
            made.has_shared_gate_limit = HasSharedGateLimit ? 1 : 0;
            made.shared_gate_limit = SharedGateLimit;
            made.has_shared_up_limit = HasSharedUpLimit ? 1 : 0;
            made.shared_up_limit = SharedUpLimit;
            made.has_shared_post_limit = HasSharedPostLimit ? 1 : 0;
            made.shared_post_limit = SharedPostLimit;
            made.shared_situ_beta = SharedSituBeta;
            made.shared_situ_beta_up = SharedSituBetaUp;
            made.combine = Combine;
            made.group_mask = GroupMask;
            made.has_second_selection_bias = HasSecondSelectionBias ? 1 : 0;
            made.has_latent_in_norm = HasLatentInNorm ? 1 : 0;
            made.latent_in_norm_eps = LatentInNormEps;
            made.has_expert_norm = HasExpertNorm ? 1 : 0;
            made.expert_norm_eps = ExpertNormEps;
            made.expert_norm_weight_first = ExpertNormWeightFirst ? 1 : 0;
            return made;
        }

        internal static LayerDesc FromNative(moe_layer_desc from)
        {
            var made = new LayerDesc();
            made.Hidden = from.hidden;
            made.Intermediate = from.intermediate;
            made.NExperts = from.n_experts;
            made.TopK = from.top_k;
            made.NIdentityExperts = from.n_identity_experts;
            made.HasRouter = from.has_router != 0;
            made.HasRouterBias = from.has_router_bias != 0;
            made.HasSelectionBias = from.has_selection_bias != 0;
            made.HasRouterNorm = from.has_router_norm != 0;
            made.HasRouterNormWeight = from.has_router_norm_weight != 0;
            made.HasRouterInputScale = from.has_router_input_scale != 0;
            made.RouterNormEps = from.router_norm_eps;
            made.RouterInputScale = from.router_input_scale;
            made.HasLogitSoftcap = from.has_logit_softcap != 0;
            made.LogitSoftcap = from.logit_softcap;
            made.Score = from.score;
            made.PostScore = from.post_score;
            made.Selection = from.selection;
            made.SparsemixerJitter = from.sparsemixer_jitter;
            made.HashVocabulary = from.hash_vocabulary;
            made.NGroup = from.n_group;
            made.TopkGroup = from.topk_group;
            made.GroupScore = from.group_score;
            made.Renormalize = from.renormalize;
            made.RenormalizeEps = from.renormalize_eps;
            made.HasRoutedScale = from.has_routed_scale != 0;
            made.RoutedScale = from.routed_scale;
            made.HasExpertScale = from.has_expert_scale != 0;
            made.WeightOn = from.weight_on;
            made.RoundLogits = from.round_logits != 0;
            made.RoundWeights = from.round_weights != 0;
            made.Activation = from.activation;
            made.IsGated = from.is_gated != 0;
            made.HasActivationAlpha = from.has_activation_alpha != 0;
            made.ActivationAlpha = from.activation_alpha;
            made.ActivationUpOffset = from.activation_up_offset;
            made.HasGateLimit = from.has_gate_limit != 0;
            made.GateLimit = from.gate_limit;
            made.HasUpLimit = from.has_up_limit != 0;
            made.UpLimit = from.up_limit;
            made.HasPostLimit = from.has_post_limit != 0;
            made.PostLimit = from.post_limit;
            made.SituBeta = from.situ_beta;
            made.SituBetaUp = from.situ_beta_up;
            made.HasGateBias = from.has_gate_bias != 0;
            made.HasUpBias = from.has_up_bias != 0;
            made.HasDownBias = from.has_down_bias != 0;
            made.Latent = from.latent;
            made.HasLatentNorm = from.has_latent_norm != 0;
            made.LatentNormEps = from.latent_norm_eps;
            made.SharedIntermediate = from.shared_intermediate;
            made.HasSharedExpertGate = from.has_shared_expert_gate != 0;
            made.HasSharedScale = from.has_shared_scale != 0;
            made.SharedScale = from.shared_scale;
            made.SharedActivation = from.shared_activation;
            made.SharedIsGated = from.shared_is_gated != 0;
            made.HasSharedActivationAlpha = from.has_shared_activation_alpha != 0;
            made.SharedActivationAlpha = from.shared_activation_alpha;
            made.SharedActivationUpOffset = from.shared_activation_up_offset;
            made.HasSharedGateLimit = from.has_shared_gate_limit != 0;
            made.SharedGateLimit = from.shared_gate_limit;
            made.HasSharedUpLimit = from.has_shared_up_limit != 0;
            made.SharedUpLimit = from.shared_up_limit;
            made.HasSharedPostLimit = from.has_shared_post_limit != 0;
            made.SharedPostLimit = from.shared_post_limit;
            made.SharedSituBeta = from.shared_situ_beta;
            made.SharedSituBetaUp = from.shared_situ_beta_up;
            made.Combine = from.combine;
            made.GroupMask = from.group_mask;
            made.HasSecondSelectionBias = from.has_second_selection_bias != 0;
            made.HasLatentInNorm = from.has_latent_in_norm != 0;
            made.LatentInNormEps = from.latent_in_norm_eps;
            made.HasExpertNorm = from.has_expert_norm != 0;
            made.ExpertNormEps = from.expert_norm_eps;
            made.ExpertNormWeightFirst = from.expert_norm_weight_first != 0;
            return made;
        }
    }

    /// <summary>How the bytes of a matrix are to be read: moe_format, field by field. By name, from a checkpoint, or
    /// by hand.</summary>
    public sealed unsafe partial class Format
    {
        /// <summary>required</summary>
        public ElementType Type { get; set; }
        /// <summary>of INT and CODEBOOK codes; 0 otherwise</summary>
        public int Bits { get; set; }
        /// <summary>rows (n) that share a scale; -1: all; 0 without scales</summary>
        public int GroupRows { get; set; }
        /// <summary>columns (k) that share a scale; -1: all; 0 without scales. bitsandbytes: elements, row by
        /// row</summary>
        public int GroupColumns { get; set; }
        /// <summary>NONE: no scales</summary>
        public ElementType ScaleType { get; set; }
        public GlobalScale GlobalScale { get; set; }
        public ZeroPoint ZeroPoint { get; set; }
        public Packing Packing { get; set; }
        public Codebook Codebook { get; set; }
        /// <summary>GGUF: the ggml type number (Q8_0 is 8, Q4_K is 12, MXFP4 is 39)</summary>
        public int BlockId { get; set; }
        /// <summary>1: the group of a column is moe_tensor.permutation[k], not k / group_columns</summary>
        public bool ActOrder { get; set; }
        /// <summary>1: scales are 8-bit codes with scales of their own (bitsandbytes)</summary>
        public bool NestedScales { get; set; }
        /// <summary>1: activations are multiplied by moe_tensor.pre_quant_scale first</summary>
        public bool PreQuantScale { get; set; }

        internal moe_format ToNative()
        {
            var made = default(moe_format);
            made.struct_size = (uint)sizeof(moe_format);
            made.type = Type;
            made.bits = Bits;
            made.group_rows = GroupRows;
            made.group_columns = GroupColumns;
            made.scale_type = ScaleType;
            made.global_scale = GlobalScale;
            made.zero_point = ZeroPoint;
            made.packing = Packing;
            made.codebook = Codebook;
            made.block_id = BlockId;
            made.act_order = ActOrder ? 1 : 0;
            made.nested_scales = NestedScales ? 1 : 0;
            made.pre_quant_scale = PreQuantScale ? 1 : 0;
            return made;
        }

        internal static Format FromNative(moe_format from)
        {
            var made = new Format();
            made.Type = from.type;
            made.Bits = from.bits;
            made.GroupRows = from.group_rows;
            made.GroupColumns = from.group_columns;
            made.ScaleType = from.scale_type;
            made.GlobalScale = from.global_scale;
            made.ZeroPoint = from.zero_point;
            made.Packing = from.packing;
            made.Codebook = from.codebook;
            made.BlockId = from.block_id;
            made.ActOrder = from.act_order != 0;
            made.NestedScales = from.nested_scales != 0;
            made.PreQuantScale = from.pre_quant_scale != 0;
            return made;
        }
    }
}
