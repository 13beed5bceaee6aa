//! Tensors of a layer in the caller's memory, and the host tools for one matrix.
use moe_sys as sys;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::ptr::{null, null_mut};

use crate::enums::{
    GateUpOrder, GlobalScale, Orientation, Packing, Role, ScaleLayout, Space, Type, ZeroPoint,
};
use crate::error::{call, refuse, sized, Result};
use crate::layer::Format;
use crate::views::Element;

/// `moe_tensor` over memory that it borrows. Sizes are those of the whole layer; rows and columns are logical, `[out, in]`.
/// Slices are of the format's element type (codes in words: `i32`), or bytes, `u8`; what takes a tensor refuses others.
#[derive(Clone)]
#[must_use]
pub struct Tensor<'a> {
    raw: sys::moe_tensor,
    format: sys::moe_format,
    data_per_expert: Vec<*const c_void>,
    scales_per_expert: Vec<*const c_void>,
    given: Vec<Buffer>,
    memory: PhantomData<&'a [u8]>,
}

/// As what a buffer was given, to be compared when the tensor is complete.
#[derive(Clone, Copy, PartialEq)]
struct Buffer {
    part: Part,
    kind: Type,
    is_device: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Data,
    Scales,
    ZeroPoints,
    PreQuantScale, // host memory always
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Data => "data",
            Part::Scales => "scales",
            Part::ZeroPoints => "zero_points",
            Part::PreQuantScale => "pre_quant_scale",
        }
    }

    /// The element type, but for bytes, which are not looked into; `NONE` where the format has no such buffer.
    fn kind(self, format: &Format) -> Type {
        let in_words = [Packing::BIT_PLANES, Packing::BIT_STREAM, Packing::GPTQ, Packing::AWQ];
        match self {
            Part::PreQuantScale => Type::F32,
            Part::Scales if format.nested_scales => Type::U8,
            Part::Scales => format.scale_type,
            Part::ZeroPoints if format.zero_point == ZeroPoint::FLOAT => Part::Scales.kind(format),
            Part::Data | Part::ZeroPoints if in_words.contains(&format.packing) => Type::I32,
            Part::Data | Part::ZeroPoints => format.kind,
        }
    }
}

// SAFETY: it is only read, like the slices that it borrows.
unsafe impl Send for Tensor<'_> {}
unsafe impl Sync for Tensor<'_> {}

fn bytes_of<T>(data: &[T]) -> u64 {
    std::mem::size_of_val(data) as u64
}

fn address<T>(data: &[T]) -> *const c_void {
    data.as_ptr() as *const c_void
}

impl<'a> Tensor<'a> {
    /// A matrix in any format. It is that of all experts, or of a role without experts, until [`Tensor::expert`] says otherwise.
    pub fn new<T: Element>(
        role: Role,
        format: &Format,
        rows: i64,
        columns: i64,
        data: &'a [T],
    ) -> Tensor<'a> {
        let mut tensor = Tensor::empty(role, format, rows, columns);
        (tensor.raw.data, tensor.raw.data_bytes) = (address(data), bytes_of(data));
        tensor.was_given::<T>(Part::Data)
    }

    /// f32, f16 or bf16 elements as they are.
    pub fn dense<T: Element>(role: Role, rows: i64, columns: i64, data: &'a [T]) -> Tensor<'a> {
        let format = Format { kind: T::TYPE, ..Format::default() };
        Tensor::new(role, &format, rows, columns, data)
    }

    /// One slice for each expert, all of one length.
    pub fn per_expert<T: Element>(
        role: Role,
        format: &Format,
        rows: i64,
        columns: i64,
        data: &[&'a [T]],
    ) -> Result<Tensor<'a>> {
        let mut tensor = Tensor::empty(role, format, rows, columns);
        tensor.raw.data_bytes = same_bytes("data", data)?;
        tensor.raw.n_experts = data.len() as i64;
        tensor.data_per_expert = data.iter().map(|one| address(one)).collect();
        Ok(tensor.was_given::<T>(Part::Data))
    }

    /// Device memory, for CUDA plans. Scales and zero points are device memory then, too: [`Tensor::device_scales`] and
    /// [`Tensor::device_zero_points`]. What else a format has is host memory.
    ///
    /// # Safety
    /// It has that many bytes, and stays as long as what borrows it here.
    pub unsafe fn device(
        role: Role,
        format: &Format,
        rows: i64,
        columns: i64,
        data: *const c_void,
        data_bytes: u64,
    ) -> Tensor<'a> {
        let mut tensor = Tensor::empty(role, format, rows, columns);
        (tensor.raw.data, tensor.raw.data_bytes) = (data, data_bytes);
        tensor.raw.space = Space::DEVICE.into();
        tensor
    }

    /// # Safety
    /// What raw points to is valid for 'a.
    pub(crate) unsafe fn from_raw(raw: sys::moe_tensor, format: sys::moe_format) -> Tensor<'a> {
        let (data_per_expert, scales_per_expert) = (Vec::new(), Vec::new());
        Tensor { raw, format, data_per_expert, scales_per_expert, given: Vec::new(), memory: PhantomData }
    }

    fn empty(role: Role, format: &Format, rows: i64, columns: i64) -> Tensor<'a> {
        let mut raw = sized!(moe_tensor);
        raw.role = role.into();
        raw.expert = sys::MOE_ALL_EXPERTS;
        (raw.rows, raw.columns) = (rows, columns);
        // SAFETY: it points to nothing yet.
        unsafe { Tensor::from_raw(raw, format.to_c()) }
    }

    fn was_given<T: Element>(self, part: Part) -> Self {
        self.was_given_as(Buffer { part, kind: T::TYPE, is_device: false })
    }

    fn was_given_as(mut self, buffer: Buffer) -> Self {
        self.given.retain(|one| one.part != buffer.part);
        self.given.push(buffer);
        self
    }

    /// Of one expert, by its global id.
    pub fn expert(mut self, id: i32) -> Self {
        self.raw.expert = id;
        self
    }

    /// A stack of the experts `0..n`.
    pub fn stack(mut self, n_experts: i64) -> Self {
        self.raw.n_experts = n_experts;
        self
    }

    pub fn orientation(mut self, orientation: Orientation) -> Self {
        self.raw.orientation = orientation.into();
        self
    }

    /// Required for the roles `GATE_UP` and `GATE_UP_BIAS`.
    pub fn gate_up_order(mut self, order: GateUpOrder) -> Self {
        self.raw.gate_up_order = order.into();
        self
    }

    /// Bytes from row to row and from expert to expert; 0 is dense.
    pub fn strides(mut self, row: i64, expert: i64) -> Self {
        (self.raw.row_stride, self.raw.expert_stride) = (row, expert);
        self
    }

    pub fn scales<T: Element>(mut self, scales: &'a [T]) -> Self {
        (self.raw.scales, self.raw.scale_bytes) = (address(scales), bytes_of(scales));
        self.was_given::<T>(Part::Scales)
    }

    /// Scales of [`Tensor::device`].
    ///
    /// # Safety
    /// It is memory of that device, has that many bytes, and stays as long as what borrows it here.
    pub unsafe fn device_scales(mut self, scales: *const c_void, bytes: u64) -> Self {
        (self.raw.scales, self.raw.scale_bytes) = (scales, bytes);
        self.was_given_as(Buffer { part: Part::Scales, kind: Type::U8, is_device: true })
    }

    pub fn scales_per_expert<T: Element>(mut self, scales: &[&'a [T]]) -> Result<Self> {
        self.raw.scale_bytes = same_bytes("scales", scales)?;
        if scales.len() as i64 != self.raw.n_experts {
            return refuse("scales", format!("are of {} experts of {}", scales.len(), self.raw.n_experts));
        }
        self.scales_per_expert = scales.iter().map(|one| address(one)).collect();
        Ok(self.was_given::<T>(Part::Scales))
    }

    /// Bytes, as [`Tensor::strides`].
    pub fn scale_strides(mut self, row: i64, expert: i64) -> Self {
        (self.raw.scale_row_stride, self.raw.scale_expert_stride) = (row, expert);
        self
    }

    /// Where scales of one byte lie.
    pub fn scale_layout(mut self, layout: ScaleLayout) -> Self {
        self.raw.scale_layout = layout.into();
        self
    }

    /// One value, or one per expert of the stack.
    pub fn global_scale(mut self, scale: &'a [f32]) -> Self {
        (self.raw.global_scale, self.raw.n_global_scales) = (scale.as_ptr(), scale.len() as i64);
        self
    }

    /// Of quantised activations.
    pub fn input_scale(mut self, scale: &'a [f32]) -> Self {
        (self.raw.input_scale, self.raw.n_input_scales) = (scale.as_ptr(), scale.len() as i64);
        self
    }

    pub fn codebook(mut self, values: &'a [f32]) -> Self {
        (self.raw.codebook, self.raw.codebook_bytes) = (values.as_ptr(), bytes_of(values));
        self
    }

    pub fn zero_points<T: Element>(mut self, points: &'a [T]) -> Self {
        (self.raw.zero_points, self.raw.zero_point_bytes) = (address(points), bytes_of(points));
        self.was_given::<T>(Part::ZeroPoints)
    }

    /// Zero points of [`Tensor::device`].
    ///
    /// # Safety
    /// It is memory of that device, has that many bytes, and stays as long as what borrows it here.
    pub unsafe fn device_zero_points(mut self, points: *const c_void, bytes: u64) -> Self {
        (self.raw.zero_points, self.raw.zero_point_bytes) = (points, bytes);
        self.was_given_as(Buffer { part: Part::ZeroPoints, kind: Type::U8, is_device: true })
    }

    /// The group of each column (act order).
    pub fn permutation(mut self, groups: &'a [i32]) -> Self {
        (self.raw.permutation, self.raw.permutation_bytes) = (groups.as_ptr(), bytes_of(groups));
        self
    }

    pub fn nested_scales(mut self, scales: &'a [f32], codebook: &'a [f32; 256], offset: f32) -> Self {
        (self.raw.nested_scales, self.raw.nested_scale_bytes) = (scales.as_ptr(), bytes_of(scales));
        (self.raw.nested_codebook, self.raw.nested_offset) = (codebook.as_ptr(), offset);
        self
    }

    pub fn pre_quant_scale<T: Element>(mut self, scale: &'a [T]) -> Self {
        (self.raw.pre_quant_scale, self.raw.pre_quant_scale_bytes) = (address(scale), bytes_of(scale));
        self.was_given::<T>(Part::PreQuantScale)
    }

    pub fn role(&self) -> Role {
        self.raw.role.into()
    }

    /// A global id, `None` for a stack and for roles without experts.
    pub fn expert_id(&self) -> Option<i32> {
        (self.raw.expert != sys::MOE_ALL_EXPERTS).then_some(self.raw.expert)
    }

    /// Rows and columns.
    pub fn shape(&self) -> (i64, i64) {
        (self.raw.rows, self.raw.columns)
    }

    pub fn format(&self) -> Format {
        Format::from_c(&self.format)
    }

    /// The bytes where they lie, `None` if they are not one run of host memory.
    pub fn data(&self) -> Option<&'a [u8]> {
        if self.raw.data.is_null() || Space::from(self.raw.space) != Space::HOST {
            return None;
        }
        // SAFETY: borrowed for 'a, with this size.
        Some(unsafe { std::slice::from_raw_parts(self.raw.data as *const u8, self.raw.data_bytes as usize) })
    }

    /// Refuses what the library cannot see: the values would be other ones, or host memory taken for the device's.
    fn check(&self) -> Result<()> {
        let (format, on_device) = (self.format(), Space::from(self.raw.space) == Space::DEVICE);
        for one in &self.given {
            let wanted = one.part.kind(&format);
            if ![wanted, Type::U8, Type::I8].contains(&one.kind) && wanted != Type::NONE {
                return refuse(one.part.name(), format!("is {:?}, must be {:?} or U8", one.kind, wanted));
            }
            if one.is_device != on_device && matches!(one.part, Part::Scales | Part::ZeroPoints) {
                let of = |is_device| if is_device { "the device" } else { "the host" };
                let message = format!("is memory of {}, data is of {}", of(one.is_device), of(on_device));
                return refuse(one.part.name(), message);
            }
        }
        Ok(())
    }

    /// The struct, which points into self.
    pub(crate) fn to_c(&self) -> Result<sys::moe_tensor> {
        self.check()?;
        let mut raw = self.raw;
        raw.format = &self.format;
        if !self.data_per_expert.is_empty() {
            raw.data_per_expert = self.data_per_expert.as_ptr();
        }
        if !self.scales_per_expert.is_empty() {
            raw.scales_per_expert = self.scales_per_expert.as_ptr();
        }
        Ok(raw)
    }
}

fn same_bytes<T>(name: &'static str, given: &[&[T]]) -> Result<u64> {
    match given.split_first() {
        Some((first, rest)) if rest.iter().all(|one| one.len() == first.len()) => Ok(bytes_of(first)),
        _ => refuse(name, "the slices of the experts must be of one length, and one at least"),
    }
}

/// A matrix in a format: what [`Tensor`] takes.
#[derive(Clone, Debug)]
pub struct Quantized {
    pub format: Format,
    pub rows: i64,
    pub columns: i64,
    pub data: Vec<u8>,
    pub scales: Vec<u8>,
    /// One value, or none.
    pub global_scale: Vec<f32>,
    pub codebook: Vec<f32>,
}

impl Quantized {
    pub fn tensor(&self, role: Role) -> Tensor<'_> {
        let mut tensor = Tensor::new(role, &self.format, self.rows, self.columns, &self.data);
        if !self.scales.is_empty() {
            tensor = tensor.scales(&self.scales);
        }
        if !self.global_scale.is_empty() {
            tensor = tensor.global_scale(&self.global_scale);
        }
        if !self.codebook.is_empty() {
            tensor = tensor.codebook(&self.codebook);
        }
        tensor
    }
}

/// A matrix `[rows, columns]` in a format that `has_encode`. codebook: 2^bits values, for a format that is given one.
pub fn quantize(
    matrix: &[f32],
    rows: i64,
    columns: i64,
    format: &Format,
    codebook: Option<&[f32]>,
) -> Result<Quantized> {
    if rows < 0 || columns < 0 || i64::try_from(matrix.len()).ok() != rows.checked_mul(columns) {
        return refuse("matrix", format!("has {} elements, must have {} x {}", matrix.len(), rows, columns));
    }
    let codes = 1usize.checked_shl(format.bits as u32).unwrap_or(0);
    if codebook.map_or(false, |values| values.len() != codes) {
        return refuse("codebook", format!("must have {} values", codes));
    }
    let size = format.size(rows, columns)?;
    let n_global = (format.global_scale != GlobalScale::NONE) as usize;
    let mut made = Quantized {
        format: *format,
        rows,
        columns,
        data: vec![0; size.data_bytes as usize],
        scales: vec![0; size.scale_bytes as usize],
        global_scale: vec![0.0; n_global],
        codebook: codebook.map_or_else(Vec::new, <[f32]>::to_vec),
    };
    let raw_format = format.to_c();
    let mut args = sized!(moe_quantize_args);
    args.format = &raw_format;
    (args.source, args.rows, args.columns) = (matrix.as_ptr(), rows, columns);
    (args.data, args.data_bytes) = (made.data.as_mut_ptr() as *mut c_void, size.data_bytes);
    if size.scale_bytes != 0 {
        (args.scales, args.scale_bytes) = (made.scales.as_mut_ptr() as *mut c_void, size.scale_bytes);
    }
    args.global_scale = made.global_scale.first_mut().map_or(null_mut(), |one| one as *mut f32);
    args.codebook = codebook.map_or(null(), <[f32]>::as_ptr);
    call!(moe_quantize(&args))?;
    Ok(made)
}

/// One expert of a tensor (0 for a single matrix) as float32 `[rows, columns]`, as it lies.
pub fn dequantize(tensor: &Tensor<'_>, expert: i64) -> Result<Vec<f32>> {
    let (rows, columns) = tensor.shape();
    let count = rows.checked_mul(columns).and_then(|count| usize::try_from(count).ok());
    // No format has less than a byte for 64 elements: a count from nowhere is not allocated.
    match count {
        Some(count) if (count as u64) / 64 <= tensor.raw.data_bytes => {
            let mut out = vec![0.0f32; count];
            call!(moe_dequantize(&tensor.to_c()?, expert, out.as_mut_ptr(), count as u64))?;
            Ok(out)
        }
        _ => refuse("tensor", format!("is {} x {} of {} bytes", rows, columns, tensor.raw.data_bytes)),
    }
}

/// Bytes of the scales of one matrix in a layout; columns counts groups of columns.
pub fn scale_layout_size(layout: ScaleLayout, rows: i64, columns: i64) -> Result<u64> {
    let mut bytes = 0;
    call!(moe_scale_layout_size(layout.into(), rows, columns, &mut bytes))?;
    Ok(bytes)
}

/// The scales of one matrix, `[rows, columns]` of one byte, in another layout. columns counts groups of columns.
pub fn convert_scales(
    scales: &[u8],
    from: ScaleLayout,
    to: ScaleLayout,
    rows: i64,
    columns: i64,
) -> Result<Vec<u8>> {
    let bytes = scale_layout_size(to, rows, columns)?;
    // No layout has more than a tile for a scale: a size from nowhere is not allocated.
    if (scales.len() as u64) < bytes / 512 {
        return refuse("scales", format!("has {} bytes, of {} x {}", scales.len(), rows, columns));
    }
    let mut out = vec![0u8; bytes as usize];
    let mut args = sized!(moe_convert_scales_args);
    (args.source_layout, args.layout) = (from.into(), to.into());
    (args.rows, args.columns) = (rows, columns);
    (args.source, args.source_bytes) = (address(scales), bytes_of(scales));
    (args.scales, args.scale_bytes) = (out.as_mut_ptr() as *mut c_void, bytes);
    call!(moe_convert_scales(&args))?;
    Ok(out)
}

pub(crate) const ACTIVATIONS: [Type; 3] = [Type::F32, Type::BF16, Type::F16];
