//! The C interface of libmoe, `moe.h`, as it is: structs, enums as numbers with names, functions. The crate `moe` is the
//! safe one; what each item means is said in `moe.h`.
//!
//! The library is linked, found by `MOE_LIB_DIR` or pkg-config, or, with the feature `dlopen`, opened by [`load`] when the
//! program runs. Compare [`moe_abi_version`] with [`MOE_ABI_VERSION`] before any other call; `load` does.
#![allow(non_camel_case_types)]

#[cfg(feature = "dlopen")]
mod dynamic;
#[cfg(feature = "dlopen")]
pub use dynamic::{is_loaded, load, LoadError};

#[allow(clippy::all)]
mod types {
    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/types.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("types.rs");
}
pub use types::*;

#[cfg(not(feature = "dlopen"))]
macro_rules! functions {
    ($($declaration:tt)*) => {
        #[allow(clippy::missing_safety_doc)]
        extern "C" { $($declaration)* }
    };
}
#[cfg(feature = "dlopen")]
use dynamic::functions;

#[cfg(feature = "bindgen")]
include!(concat!(env!("OUT_DIR"), "/functions.rs"));
#[cfg(not(feature = "bindgen"))]
include!("functions.rs");
