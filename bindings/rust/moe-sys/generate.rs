// Makes the Rust text of moe.h with the command `bindgen`. build.rs uses it behind the feature bindgen; the test
// tests/generated.rs compares its result with what is checked in.
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// What is generated: the name of a file under src/ or tests/, and its text.
pub type Generated = Vec<(&'static str, String)>;

const SAID: &str = "// Made of moe.h by generate.rs, with bindgen 0.60; do not edit.\n\n";

/// What is checked in is of this one; others write the same in other words.
pub const VERSION: &str = "0.60";

/// Of the command bindgen, such as 0.60.1.
pub fn version() -> Result<String, String> {
    let output = Command::new("bindgen").arg("--version").output().map_err(missing)?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
    text.strip_prefix("bindgen ")
        .map(str::to_string)
        .ok_or_else(|| format!("bindgen --version says {:?}", text))
}

fn missing(error: std::io::Error) -> String {
    format!("the command bindgen, which the feature bindgen needs, does not start: {}", error)
}

/// include is the folder that has moe/moe.h. Options are bindgen's: how the text is formatted.
pub fn generate(include: &Path, format: &[&str]) -> Result<Generated, String> {
    let types = ["--allowlist-type", "moe_.*", "--allowlist-var", "MOE_.*", "--ignore-functions"];
    let types = bindgen(include, &[&types, format].concat())?;
    let functions = ["--allowlist-function", "moe_.*", "--no-recursive-allowlist"];
    let functions = bindgen(include, &[&functions, format].concat())?;
    Ok(vec![
        ("src/types.rs", format!("{}{}", SAID, types)),
        ("src/functions.rs", format!("{}functions! {{\n{}}}\n", SAID, declarations(&functions))),
        ("tests/layout/structs.rs", format!("{}layout! {{\n{}}}\n", SAID, fields(&types))),
    ])
}

// New-type enums: a value that a newer library knows and this header does not is a number, not undefined behaviour.
fn bindgen(include: &Path, options: &[&str]) -> Result<String, String> {
    let output = Command::new("bindgen")
        .arg(include.join("moe/moe.h"))
        .args(["--newtype-enum", "moe_.*", "--no-prepend-enum-name", "--no-layout-tests"])
        .args(options)
        .arg("--")
        .arg(format!("-I{}", include.display()))
        .output()
        .map_err(missing)?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).split_once("\n\n").map_or("", |parts| parts.1).to_string())
}

// Without `extern "C" {` and `}`: the macro functions! adds them, or makes a table of pointers.
fn declarations(text: &str) -> String {
    let blocks = text.split("extern \"C\" {").skip(1);
    blocks.map(|block| format!("    {}\n", block.split('}').next().unwrap_or("").trim())).collect()
}

// The structs that have fields, by name.
fn fields(types: &str) -> String {
    let mut out = String::new();
    for one in types.split("pub struct ").skip(1) {
        let (name, rest) =
            one.split_at(one.find(|end: char| !(end.is_alphanumeric() || end == '_')).unwrap_or(0));
        let body = match rest.trim_start().strip_prefix('{') {
            Some(rest) => rest.split('}').next().unwrap_or(""),
            None => continue,
        };
        let names = body.split("pub ").skip(1).filter_map(|field| field.split(':').next());
        let names: Vec<&str> = names.map(str::trim).collect();
        if name.starts_with("moe_") && !names.is_empty() {
            let _ = writeln!(out, "    {} {{\n        {}\n    }}", name, names.join(",\n        "));
        }
    }
    out
}
