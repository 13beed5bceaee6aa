//! The mathematics of a layer, formats, and the part of a layer that a plan computes: structs of `moe.h` as structs of Rust.
use moe_sys as sys;
use std::ops::Range;

use crate::enums::*;
use crate::error::{array_text, c_string, call, gate, sized, text, Result};

/// A field of the header and its type here.
trait Field<C> {
    fn to_c(self) -> C;
    fn from_c(value: C) -> Self;
}

macro_rules! same {
    ($($kind:ty),*) => {$(
        impl Field<$kind> for $kind {
            fn to_c(self) -> $kind {
                self
            }
            fn from_c(value: $kind) -> $kind {
                value
            }
        }
    )*};
}
same!(i32, f32);

impl Field<i32> for bool {
    fn to_c(self) -> i32 {
        self as i32
    }
    fn from_c(value: i32) -> bool {
        value != 0
    }
}

macro_rules! enums {
    ($($name:ident: $raw:ident),*) => {$(
        impl Field<sys::$raw> for $name {
            fn to_c(self) -> sys::$raw {
                self.into()
            }
            fn from_c(value: sys::$raw) -> $name {
                value.into()
            }
        }
    )*};
}
enums!(
    Score: moe_score, Selection: moe_selection, GroupScore: moe_group_score, GroupMask: moe_group_mask,
    Renormalize: moe_renormalize, WeightOn: moe_weight_on, Activation: moe_activation, CombineRule: moe_combine_rule, Type: moe_type,
    GlobalScale: moe_global_scale, ZeroPoint: moe_zero_point, Packing: moe_packing, Codebook: moe_codebook
);

macro_rules! mirror {
    ($(#[$doc:meta])* $name:ident of $raw:ident { $($field:ident: $kind:ty = $c:ident,)* }) => {
        $(#[$doc])*
        #[allow(clippy::derive_partial_eq_without_eq)] // some have floats
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $name { $(pub $field: $kind,)* }

        impl $name {
            pub(crate) fn to_c(self) -> sys::$raw {
                let mut raw = sized!($raw);
                $(raw.$c = Field::to_c(self.$field);)*
                raw
            }

            pub(crate) fn from_c(raw: &sys::$raw) -> $name {
                $name { $($field: Field::from_c(raw.$c),)* }
            }
        }
    };
}

mirror! {
    /// `moe_layer_desc`: fields as in the header, zero unless given.
    ///
    /// ```
    /// use moe::{Activation, LayerDesc};
    /// let layer = LayerDesc { hidden: 64, intermediate: 32, n_experts: 8, top_k: 2, has_router: true,
    ///                         activation: Activation::SILU, is_gated: true, ..Default::default() };
    /// layer.validate().unwrap();
    /// ```
    LayerDesc of moe_layer_desc {
        hidden: i32 = hidden,
        intermediate: i32 = intermediate,
        n_experts: i32 = n_experts,
        top_k: i32 = top_k,
        n_identity_experts: i32 = n_identity_experts,
        has_router: bool = has_router,
        has_router_bias: bool = has_router_bias,
        has_selection_bias: bool = has_selection_bias,
        has_router_norm: bool = has_router_norm,
        has_router_norm_weight: bool = has_router_norm_weight,
        has_router_input_scale: bool = has_router_input_scale,
        router_norm_eps: f32 = router_norm_eps,
        router_input_scale: f32 = router_input_scale,
        has_logit_softcap: bool = has_logit_softcap,
        logit_softcap: f32 = logit_softcap,
        score: Score = score,
        post_score: Score = post_score,
        selection: Selection = selection,
        sparsemixer_jitter: f32 = sparsemixer_jitter,
        hash_vocabulary: i32 = hash_vocabulary,
        n_group: i32 = n_group,
        topk_group: i32 = topk_group,
        group_score: GroupScore = group_score,
        renormalize: Renormalize = renormalize,
        renormalize_eps: f32 = renormalize_eps,
        has_routed_scale: bool = has_routed_scale,
        routed_scale: f32 = routed_scale,
        has_expert_scale: bool = has_expert_scale,
        weight_on: WeightOn = weight_on,
        round_logits: bool = round_logits,
        round_weights: bool = round_weights,
        activation: Activation = activation,
        is_gated: bool = is_gated,
        has_activation_alpha: bool = has_activation_alpha,
        activation_alpha: f32 = activation_alpha,
        activation_up_offset: f32 = activation_up_offset,
        has_gate_limit: bool = has_gate_limit,
        gate_limit: f32 = gate_limit,
        has_up_limit: bool = has_up_limit,
        up_limit: f32 = up_limit,
        has_post_limit: bool = has_post_limit,
        post_limit: f32 = post_limit,
        situ_beta: f32 = situ_beta,
        situ_beta_up: f32 = situ_beta_up,
        has_gate_bias: bool = has_gate_bias,
        has_up_bias: bool = has_up_bias,
        has_down_bias: bool = has_down_bias,
        latent: i32 = latent,
        has_latent_norm: bool = has_latent_norm,
        latent_norm_eps: f32 = latent_norm_eps,
        shared_intermediate: i32 = shared_intermediate,
        has_shared_expert_gate: bool = has_shared_expert_gate,
        has_shared_scale: bool = has_shared_scale,
        shared_scale: f32 = shared_scale,
        shared_activation: Activation = shared_activation,
        shared_is_gated: bool = shared_is_gated,
        has_shared_activation_alpha: bool = has_shared_activation_alpha,
        shared_activation_alpha: f32 = shared_activation_alpha,
        shared_activation_up_offset: f32 = shared_activation_up_offset,
        has_shared_gate_limit: bool = has_shared_gate_limit,
        shared_gate_limit: f32 = shared_gate_limit,
        has_shared_up_limit: bool = has_shared_up_limit,
        shared_up_limit: f32 = shared_up_limit,
        has_shared_post_limit: bool = has_shared_post_limit,
        shared_post_limit: f32 = shared_post_limit,
        shared_situ_beta: f32 = shared_situ_beta,
        shared_situ_beta_up: f32 = shared_situ_beta_up,
        combine: CombineRule = combine,
        group_mask: GroupMask = group_mask,
        has_second_selection_bias: bool = has_second_selection_bias,
        has_latent_in_norm: bool = has_latent_in_norm,
        latent_in_norm_eps: f32 = latent_in_norm_eps,
        has_expert_norm: bool = has_expert_norm,
        expert_norm_eps: f32 = expert_norm_eps,
        expert_norm_weight_first: bool = expert_norm_weight_first,
    }
}

impl LayerDesc {
    /// What a plan for it would check; the error names the first wrong field.
    pub fn validate(&self) -> Result<()> {
        call!(moe_layer_validate(&self.to_c()))
    }
}

mirror! {
    /// `moe_format`: how a matrix is stored. [`Format::named`] makes one, a checkpoint has them.
    Format of moe_format {
        kind: Type = type_,
        bits: i32 = bits,
        group_rows: i32 = group_rows,
        group_columns: i32 = group_columns,
        scale_type: Type = scale_type,
        global_scale: GlobalScale = global_scale,
        zero_point: ZeroPoint = zero_point,
        packing: Packing = packing,
        codebook: Codebook = codebook,
        block_id: i32 = block_id,
        act_order: bool = act_order,
        nested_scales: bool = nested_scales,
        pre_quant_scale: bool = pre_quant_scale,
    }
}

/// `moe_format_info`.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatInfo {
    pub name: String,
    pub block_rows: i32,
    pub block_columns: i32,
    pub has_decode: bool,
    pub has_encode: bool,
    pub bits_per_weight: f64,
}

/// Bytes of one dense matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatSize {
    pub data_bytes: u64,
    pub scale_bytes: u64,
}

impl Format {
    /// One of [`formats`].
    pub fn named(name: &str) -> Result<Format> {
        let mut raw = sized!(moe_format);
        call!(moe_format_by_name(c_string("name", name)?.as_ptr(), &mut raw))?;
        Ok(Format::from_c(&raw))
    }

    pub fn info(&self) -> Result<FormatInfo> {
        let mut raw = sized!(moe_format_info);
        call!(moe_format_get_info(&self.to_c(), &mut raw))?;
        Ok(FormatInfo {
            name: array_text(&raw.name),
            block_rows: raw.block_rows,
            block_columns: raw.block_columns,
            has_decode: raw.has_decode != 0,
            has_encode: raw.has_encode != 0,
            bits_per_weight: raw.bits_per_weight,
        })
    }

    pub fn size(&self, rows: i64, columns: i64) -> Result<FormatSize> {
        let mut size = FormatSize { data_bytes: 0, scale_bytes: 0 };
        call!(moe_format_size(&self.to_c(), rows, columns, &mut size.data_bytes, &mut size.scale_bytes))?;
        Ok(size)
    }
}

/// The names of formats.
pub fn formats() -> Result<Vec<&'static str>> {
    gate()?;
    // SAFETY: any index is taken; NULL ends the list.
    Ok(listed(|index| unsafe { sys::moe_format_name_at(index) }))
}

/// The families of checkpoints that the library knows.
pub fn families() -> Result<Vec<&'static str>> {
    gate()?;
    // SAFETY: as above.
    Ok(listed(|index| unsafe { sys::moe_checkpoint_family_at(index) }))
}

fn listed(at: impl Fn(u32) -> *const std::os::raw::c_char) -> Vec<&'static str> {
    // SAFETY: the strings are static.
    (0..).map(at).take_while(|name| !name.is_null()).map(|name| unsafe { text(name) }).collect()
}

/// Some experts, some of the intermediate features, or both; for plans that are partial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    experts: Option<Range<i32>>,
    expert_to_local: Option<Vec<i32>>,
    intermediate: Option<Range<i32>>,
    shared: Option<Range<i32>>,
}

impl Slice {
    pub fn new() -> Slice {
        Slice::default()
    }

    /// Global ids of the local experts.
    pub fn experts(mut self, range: Range<i32>) -> Slice {
        self.experts = Some(range);
        self
    }

    /// For each expert its local index or -1.
    pub fn expert_to_local(mut self, map: impl Into<Vec<i32>>) -> Slice {
        self.expert_to_local = Some(map.into());
        self
    }

    pub fn intermediate(mut self, range: Range<i32>) -> Slice {
        self.intermediate = Some(range);
        self
    }

    /// Features of the shared expert.
    pub fn shared(mut self, range: Range<i32>) -> Slice {
        self.shared = Some(range);
        self
    }

    pub(crate) fn to_c(&self) -> sys::moe_slice {
        let mut raw = sized!(moe_slice);
        (raw.has_expert_range, raw.expert_begin, raw.expert_count) = range_to_c(&self.experts);
        (raw.has_intermediate_range, raw.intermediate_begin, raw.intermediate_count) =
            range_to_c(&self.intermediate);
        (raw.has_shared_range, raw.shared_begin, raw.shared_count) = range_to_c(&self.shared);
        if let Some(map) = &self.expert_to_local {
            (raw.expert_to_local, raw.n_expert_to_local) = (map.as_ptr(), map.len() as i32);
        }
        raw
    }

    pub(crate) fn n_local_experts(&self, n_experts: usize) -> usize {
        match (&self.experts, &self.expert_to_local) {
            (Some(range), _) => range.len(),
            (_, Some(map)) => map.iter().filter(|&&local| local >= 0).count(),
            _ => n_experts,
        }
    }

    pub(crate) fn n_features(&self, intermediate: usize) -> usize {
        self.intermediate.as_ref().map_or(intermediate, |range| range.len())
    }
}

fn range_to_c(range: &Option<Range<i32>>) -> (i32, i32, i32) {
    range.as_ref().map_or((0, 0, 0), |range| (1, range.start, range.end.saturating_sub(range.start)))
}
