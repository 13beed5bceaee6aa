// Tells the linker where libmoe is; run.sh has made the bindings.
use std::env::var;

fn main() {
    println!("cargo:rerun-if-env-changed=MOE_LIBRARY_FOLDER");
    println!("cargo:rerun-if-env-changed=MOE_BINDINGS");
    println!("cargo:rustc-link-search=native={}", var("MOE_LIBRARY_FOLDER").expect("MOE_LIBRARY_FOLDER"));
    println!("cargo:rustc-link-lib=dylib=moe");
    println!("cargo:rustc-env=MOE_BINDINGS={}", var("MOE_BINDINGS").expect("MOE_BINDINGS"));
    println!("cargo:rerun-if-changed={}", var("MOE_BINDINGS").expect("MOE_BINDINGS"));
}
