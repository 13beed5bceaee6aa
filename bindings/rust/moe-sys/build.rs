// Finds libmoe: MOE_LIB_DIR names its folder, else pkg-config is asked. Nothing is linked with the feature dlopen, nor for
// docs.rs, which has no library.
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

#[allow(dead_code)]
#[path = "generate.rs"]
mod generate;

fn main() {
    for name in ["MOE_LIB_DIR", "MOE_INCLUDE_DIR", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={}", name);
    }
    println!("cargo:rerun-if-changed=generate.rs");
    if has("CARGO_FEATURE_BINDGEN") {
        write_bindings();
    }
    if !has("CARGO_FEATURE_DLOPEN") && !has("DOCS_RS") {
        link();
    }
}

fn has(name: &str) -> bool {
    env::var_os(name).is_some()
}

fn write_bindings() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap());
    let include = env::var_os("MOE_INCLUDE_DIR").map_or_else(|| here.join("../../../include"), PathBuf::from);
    println!("cargo:rerun-if-changed={}", include.join("moe/moe.h").display());
    let made = generate::generate(&include, &["--no-rustfmt-bindings"]).unwrap_or_else(|error| {
        panic!("moe.h could not be read (MOE_INCLUDE_DIR is the folder of moe/moe.h): {}", error)
    });
    let out = PathBuf::from(env::var("OUT_DIR").unwrap());
    for (name, text) in made {
        std::fs::write(out.join(Path::new(name).file_name().unwrap()), text).unwrap();
    }
}

fn link() {
    if let Ok(folder) = env::var("MOE_LIB_DIR") {
        println!("cargo:rustc-link-search=native={}", folder);
        println!("cargo:rustc-link-lib=dylib=moe");
        return;
    }
    let asked = Command::new("pkg-config").args(["--libs", "moe >= 0.1"]).output();
    let output = asked.ok().filter(|output| output.status.success()).unwrap_or_else(|| {
        panic!("libmoe not found: pkg-config knows no moe >= 0.1, and MOE_LIB_DIR does not name the folder of libmoe.so")
    });
    for word in String::from_utf8_lossy(&output.stdout).split_whitespace() {
        match (word.strip_prefix("-L"), word.strip_prefix("-l")) {
            (Some(folder), _) => println!("cargo:rustc-link-search=native={}", folder),
            (_, Some(name)) => println!("cargo:rustc-link-lib=dylib={}", name),
            _ => {}
        }
    }
}
