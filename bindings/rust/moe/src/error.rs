//! Errors, and the gate that a library must pass before it is used.
use moe_sys as sys;
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::c_char;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::enums::Status;

pub type Result<T> = std::result::Result<T, Error>;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A call of the library failed. `status` may be one that this crate does not know; its number is kept.
    Library { status: Status, message: String, call: &'static str },
    /// Refused by this crate before anything was called.
    Argument { name: &'static str, message: String },
    /// The library is of another ABI; nothing else of it was called.
    AbiVersion { found: u32, wanted: u32 },
    /// There is no library, or it lacks a function (feature `dlopen`).
    Load { message: String },
}

impl Error {
    /// Of a call of the library.
    pub fn status(&self) -> Option<Status> {
        match self {
            Error::Library { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The sentence: it names the field or the file, and the value.
    pub fn message(&self) -> String {
        match self {
            Error::Library { message, .. } | Error::Load { message } => message.clone(),
            Error::Argument { name, message } => format!("{}: {}", name, message),
            Error::AbiVersion { found, wanted } => {
                format!("libmoe has ABI version {}, wanted {}", found, wanted)
            }
        }
    }

    /// The error of a status that function `call` gave.
    pub fn from_status(status: Status, message: impl Into<String>, call: &'static str) -> Error {
        Error::Library { status, message: message.into(), call }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Library { status, message, call } => {
                write!(out, "{}: {}: {}", call, status.c_name(), message)
            }
            other => out.write_str(&other.message()),
        }
    }
}

impl std::error::Error for Error {}

impl Status {
    /// "MOE_ERROR_NOT_FOUND" and the like, "MOE_ERROR_UNKNOWN" for values that the library does not know.
    pub fn c_name(self) -> String {
        if gate().is_err() {
            return format!("status {}", self.0);
        }
        // SAFETY: any number is taken.
        unsafe { text(sys::moe_status_name(self.0)) }.to_string()
    }
}

pub(crate) fn refuse<T>(name: &'static str, message: impl Into<String>) -> Result<T> {
    Err(Error::Argument { name, message: message.into() })
}

static PASSED: AtomicBool = AtomicBool::new(false);

/// Compares the ABI version, once; everything that calls the library comes through here first.
pub(crate) fn gate() -> Result<()> {
    if PASSED.load(Ordering::Acquire) {
        return Ok(());
    }
    #[cfg(feature = "dlopen")]
    if !sys::is_loaded() {
        sys::load(None).map_err(Error::from)?;
    }
    // SAFETY: takes nothing and never fails.
    compare(unsafe { sys::moe_abi_version() })?;
    PASSED.store(true, Ordering::Release);
    Ok(())
}

fn compare(found: u32) -> Result<()> {
    match found {
        sys::MOE_ABI_VERSION => Ok(()),
        _ => Err(Error::AbiVersion { found, wanted: sys::MOE_ABI_VERSION }),
    }
}

/// Opens one library and no other. Without it the first call opens the file that `MOE_LIBRARY` names, else
/// `libmoe.so.0.1` wherever the loader looks.
#[cfg(feature = "dlopen")]
pub fn load(path: impl AsRef<std::path::Path>) -> Result<()> {
    Ok(sys::load(Some(path.as_ref()))?)
}

#[cfg(feature = "dlopen")]
impl From<sys::LoadError> for Error {
    fn from(error: sys::LoadError) -> Error {
        match error {
            sys::LoadError::AbiVersion { found, wanted, .. } => Error::AbiVersion { found, wanted },
            other => Error::Load { message: other.to_string() },
        }
    }
}

/// The sentence is that of this thread's last failed call, so this comes right after it.
pub(crate) fn check(status: i32, call: &'static str) -> Result<()> {
    if status == sys::MOE_OK {
        return Ok(());
    }
    // SAFETY: a C string, valid until this thread's next call.
    let message = unsafe { CStr::from_ptr(sys::moe_last_error()) }.to_string_lossy().into_owned();
    Err(Error::Library { status: Status(status), message, call })
}

/// Calls a function that gives a status. Handles are alive and pointers valid for as long as it takes: they come from
/// references of the caller's frame.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        match $crate::error::gate() {
            // SAFETY: see above.
            Ok(()) => $crate::error::check(unsafe { moe_sys::$function($($argument),*) }, stringify!($function)),
            Err(error) => Err(error),
        }
    };
}
pub(crate) use call;

/// A struct of moe.h, zero but for its size.
macro_rules! sized {
    ($kind:ident) => {{
        // SAFETY: the structs of moe.h are numbers and pointers, for which zero is valid.
        let mut value: moe_sys::$kind = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<moe_sys::$kind>() as u32;
        value
    }};
}
pub(crate) use sized;

/// # Safety
/// NULL, or a string that lives as long as the library.
pub(crate) unsafe fn text(pointer: *const c_char) -> &'static str {
    if pointer.is_null() {
        return "";
    }
    // SAFETY: as promised.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap_or("")
}

/// Of a char array inside a struct.
pub(crate) fn array_text(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().take_while(|&&one| one != 0).map(|&one| one as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn c_string(name: &'static str, text: &str) -> Result<CString> {
    CString::new(text).or_else(|_| refuse(name, format!("{:?} has a zero byte inside", text)))
}

pub(crate) fn c_path(name: &'static str, path: &std::path::Path) -> Result<CString> {
    #[cfg(unix)]
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec();
    #[cfg(not(unix))]
    let bytes = path.to_string_lossy().into_owned().into_bytes();
    CString::new(bytes).or_else(|_| refuse(name, "the path has a zero byte inside"))
}

/// `MOE_VERSION_NUMBER` of the library that answers.
pub fn version() -> Result<u32> {
    gate()?;
    // SAFETY: takes nothing and never fails; likewise below.
    Ok(unsafe { sys::moe_version() })
}

/// `MOE_ABI_VERSION` of the library that answers, which is this crate's.
pub fn abi_version() -> Result<u32> {
    gate()?;
    Ok(unsafe { sys::moe_abi_version() })
}

/// "0.1.0".
pub fn version_string() -> Result<&'static str> {
    gate()?;
    Ok(unsafe { text(sys::moe_version_string()) })
}

/// Lines "key=value" about the build; put them in bug reports.
pub fn build_info() -> Result<&'static str> {
    gate()?;
    Ok(unsafe { text(sys::moe_build_info()) })
}
