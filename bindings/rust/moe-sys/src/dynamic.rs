//! The feature `dlopen`: a table of pointers in place of linked functions, filled by [`load`].
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::MOE_ABI_VERSION;

extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlclose(library: *mut c_void) -> c_int;
    fn dlerror() -> *const c_char;
}

/// Why a library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// Not there, or not a library; what the loader says.
    NotFound { path: String, reason: String },
    /// It lacks a function.
    MissingSymbol { path: String, name: String },
    /// It is of another ABI; nothing else was looked up.
    AbiVersion { path: String, found: u32, wanted: u32 },
}

impl fmt::Display for LoadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::NotFound { path, reason } => write!(out, "libmoe not found: {}: {}", path, reason),
            LoadError::MissingSymbol { path, name } => write!(out, "{} lacks the symbol {}", path, name),
            LoadError::AbiVersion { path, found, wanted } => {
                write!(out, "{} has ABI version {}, wanted {}", path, found, wanted)
            }
        }
    }
}

impl std::error::Error for LoadError {}

pub(crate) struct Library {
    path: String,
    handle: *mut c_void,
}

impl Library {
    fn open(path: &str) -> Result<Library, LoadError> {
        const RTLD_NOW: c_int = 2;
        let not_found = |reason| LoadError::NotFound { path: path.to_string(), reason };
        let name = CString::new(path).map_err(|error| not_found(error.to_string()))?;
        // SAFETY: name is a C string; dlerror's text is read before another call of this thread.
        let handle = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
        if handle.is_null() {
            let text = unsafe { CStr::from_ptr(dlerror()) };
            return Err(not_found(text.to_string_lossy().into_owned()));
        }
        Ok(Library { path: path.to_string(), handle })
    }

    pub(crate) fn symbol(&self, name: &str) -> Result<*mut c_void, LoadError> {
        let missing = || LoadError::MissingSymbol { path: self.path.clone(), name: name.to_string() };
        let c_name = CString::new(name).map_err(|_| missing())?;
        // SAFETY: the handle is open.
        let found = unsafe { dlsym(self.handle, c_name.as_ptr()) };
        if found.is_null() {
            Err(missing())
        } else {
            Ok(found)
        }
    }

    fn check_abi(&self) -> Result<(), LoadError> {
        // SAFETY: every libmoe has this function with this type.
        let version: unsafe extern "C" fn() -> u32 =
            unsafe { std::mem::transmute(self.symbol("moe_abi_version")?) };
        match unsafe { version() } {
            MOE_ABI_VERSION => Ok(()),
            found => Err(LoadError::AbiVersion { path: self.path.clone(), found, wanted: MOE_ABI_VERSION }),
        }
    }

    fn table(&self) -> Result<super::Table, LoadError> {
        self.check_abi()?;
        super::Table::of(self)
    }
}

/// Opens a library, compares its ABI version, then looks up every function. The first library that is loaded stays; `None`
/// tries the file that `MOE_LIBRARY` names, else `libmoe.so.0.1` wherever the loader looks.
pub fn load(path: Option<&Path>) -> Result<(), LoadError> {
    let named = path.map(|path| path.to_string_lossy().into_owned());
    let path =
        named.or_else(|| std::env::var("MOE_LIBRARY").ok()).unwrap_or_else(|| "libmoe.so.0.1".to_string());
    let library = Library::open(&path)?;
    let table = library.table().map_err(|error| {
        // SAFETY: nothing of the library is used any more.
        unsafe { dlclose(library.handle) };
        error
    })?;
    let made = Box::into_raw(Box::new(table));
    let placed = TABLE.compare_exchange(std::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
    if placed.is_err() {
        // SAFETY: made is ours, and nobody has seen it.
        drop(unsafe { Box::from_raw(made) });
    }
    Ok(())
}

/// Whether [`load`] has succeeded.
pub fn is_loaded() -> bool {
    !TABLE.load(Ordering::Acquire).is_null()
}

pub(crate) static TABLE: AtomicPtr<super::Table> = AtomicPtr::new(std::ptr::null_mut());

pub(crate) fn table() -> &'static super::Table {
    let table = TABLE.load(Ordering::Acquire);
    assert!(!table.is_null(), "libmoe is not loaded: call moe_sys::load first");
    // SAFETY: a table that was placed is never freed.
    unsafe { &*table }
}

macro_rules! functions {
    ($(pub fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        pub(crate) struct Table { $($name: unsafe extern "C" fn($($kind),*) $(-> $result)?,)* }

        impl Table {
            fn of(library: &dynamic::Library) -> Result<Table, LoadError> {
                // SAFETY: the types are those of the header of this ABI version, which was compared.
                Ok(Table { $($name: unsafe {
                    std::mem::transmute::<*mut std::os::raw::c_void, unsafe extern "C" fn($($kind),*) $(-> $result)?>(
                        library.symbol(stringify!($name))?)
                },)* })
            }
        }

        $(
            #[allow(clippy::missing_safety_doc, clippy::too_many_arguments)]
            pub unsafe fn $name($($argument: $kind),*) $(-> $result)? {
                (dynamic::table().$name)($($argument),*)
            }
        )*
    };
}
pub(crate) use functions;
