//! Memory of the caller, as the arguments of calls refer to it: elements of one type, rows that may be strided.
use std::marker::PhantomData;
use std::os::raw::c_void;

use crate::enums::{DeviceKind, Type};
use crate::error::{refuse, Result};

mod sealed {
    pub trait Sealed {}
}

/// A type of elements.
pub trait Element: Copy + sealed::Sealed + 'static {
    const TYPE: Type;
}

/// The bits of a bfloat16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// The bits of a float16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

impl Bf16 {
    /// The nearest, ties to even.
    pub fn from_f32(value: f32) -> Bf16 {
        let bits = value.to_bits();
        if value.is_nan() {
            return Bf16((bits >> 16) as u16 | 0x40);
        }
        Bf16(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16)
    }

    pub fn to_f32(self) -> f32 {
        f32::from_bits((self.0 as u32) << 16)
    }
}

macro_rules! elements {
    ($($kind:ty: $name:ident),*) => {$(
        impl sealed::Sealed for $kind {}
        impl Element for $kind {
            const TYPE: Type = Type::$name;
        }
    )*};
}
elements!(f32: F32, f64: F64, F16: F16, Bf16: BF16, i8: I8, u8: U8, i32: I32, i64: I64);

/// What is common to both directions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) pointer: *mut c_void,
    len: usize,
    pub(crate) kind: Type,
    row_stride: usize,
    device: DeviceKind,
}

/// Input of a call: a slice of the host, or device memory. Rows are dense unless a stride is given.
#[derive(Clone, Copy, Debug)]
pub struct In<'a>(pub(crate) View, PhantomData<&'a [u8]>);

/// Output of a call.
#[derive(Debug)]
pub struct Out<'a>(pub(crate) View, PhantomData<&'a mut [u8]>);

macro_rules! from {
    ($name:ident, [$($reference:tt)*], $as_slice:ident, $as_pointer:ident) => {
        impl<'a, T: Element> From<$($reference)* [T]> for $name<'a> {
            fn from(data: $($reference)* [T]) -> Self {
                let pointer = data.$as_pointer() as *mut c_void;
                let view = View { pointer, len: data.len(), kind: T::TYPE, row_stride: 0, device: DeviceKind::CPU };
                $name(view, PhantomData)
            }
        }

        impl<'a, T: Element> From<$($reference)* Vec<T>> for $name<'a> {
            fn from(data: $($reference)* Vec<T>) -> Self {
                data.$as_slice().into()
            }
        }

        impl<'a, T: Element, const N: usize> From<$($reference)* [T; N]> for $name<'a> {
            fn from(data: $($reference)* [T; N]) -> Self {
                data.$as_slice().into()
            }
        }
    };
}

macro_rules! common {
    ($name:ident, $pointer:ty) => {
        impl<'a> $name<'a> {
            /// Rows begin `elements` apart; the last one ends with the memory.
            pub fn with_row_stride(mut self, elements: usize) -> Self {
                self.0.row_stride = elements;
                self
            }

            /// `len` elements of the memory of a CUDA device.
            ///
            /// # Safety
            /// The memory is of the plan's device and has that many elements. It and the handles of the call stay, and
            /// nothing else writes to it, until the work that the call puts on its stream is done.
            pub unsafe fn device<T: Element>(pointer: $pointer, len: usize) -> Self {
                let pointer = pointer as *mut c_void;
                let view = View { pointer, len, kind: T::TYPE, row_stride: 0, device: DeviceKind::CUDA };
                $name(view, PhantomData)
            }
        }
    };
}

from!(In, [&'a], as_slice, as_ptr);
from!(Out, [&'a mut], as_mut_slice, as_mut_ptr);
common!(In, *const T);
common!(Out, *mut T);

/// A field that is not given.
pub(crate) const ABSENT: (*mut c_void, i64) = (std::ptr::null_mut(), 0);

impl View {
    /// Refuses what is not [rows, columns] of one of the types, on the device. Gives pointer and stride.
    pub(crate) fn rows(
        &self,
        name: &'static str,
        (rows, columns): (usize, usize),
        types: &[Type],
        device: DeviceKind,
    ) -> Result<(*mut c_void, i64)> {
        self.check_kind(name, types, device)?;
        let stride = if self.row_stride == 0 { columns } else { self.row_stride };
        if stride < columns {
            return refuse(
                name,
                format!("rows of {} elements overlap with a row stride of {}", columns, stride),
            );
        }
        let strided =
            rows.checked_sub(1).map_or(Some(0), |before| before.checked_mul(stride)?.checked_add(columns));
        let fits = match strided {
            Some(_) if self.row_stride == 0 => rows.checked_mul(columns) == Some(self.len),
            Some(needed) => needed <= self.len,
            None => false,
        };
        if !fits {
            return refuse(
                name,
                format!(
                    "has {} elements, must have {} x {} with a row stride of {}",
                    self.len, rows, columns, stride
                ),
            );
        }
        Ok((self.pointer, self.row_stride as i64))
    }

    /// The same for memory without rows.
    pub(crate) fn dense(
        &self,
        name: &'static str,
        len: usize,
        types: &[Type],
        device: DeviceKind,
    ) -> Result<*mut c_void> {
        if self.row_stride != 0 {
            return refuse(name, "takes no row stride");
        }
        self.rows(name, (1, len), types, device).map(|found| found.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn check_kind(&self, name: &'static str, types: &[Type], device: DeviceKind) -> Result<()> {
        if !types.contains(&self.kind) {
            let wanted: Vec<String> = types.iter().map(|kind| format!("{:?}", kind)).collect();
            return refuse(name, format!("is {:?}, must be {}", self.kind, wanted.join(" or ")));
        }
        if self.device != device {
            return refuse(name, format!("is memory of {:?}, the plan is for {:?}", self.device, device));
        }
        Ok(())
    }
}
