// What is checked in is what the command bindgen makes of moe.h now, whatever formatted it. Versions of bindgen differ in how
// they order and group declarations; of another one than 0.60 the declarations themselves are compared.
#[path = "../generate.rs"]
mod generate;

use std::collections::BTreeSet;
use std::path::Path;

#[test]
#[cfg_attr(
    not(feature = "bindgen"),
    ignore = "needs the command bindgen: cargo test -p moe-sys --features bindgen"
)]
fn checked_in_files_are_those_of_bindgen() {
    let version = generate::version().unwrap();
    let is_same = version.starts_with(&format!("{}.", generate::VERSION));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let include = here.join("../../../include");
    if std::env::var_os("MOE_WRITE_BINDINGS").is_some() {
        assert!(is_same, "bindings are written with bindgen {}, and this is {}", generate::VERSION, version);
        write(here, &include);
    }
    for (name, text) in generate::generate(&include, &["--no-rustfmt-bindings"]).unwrap() {
        let found = std::fs::read_to_string(here.join(name)).unwrap();
        let changed = if is_same || !name.starts_with("src/") {
            (words(&found) != words(&text)).then(|| "the words".to_string())
        } else {
            assert!(declared(&found).len() > 50, "{}: {:?}", name, declared(&found));
            declared(&found).symmetric_difference(&declared(&text)).next().cloned()
        };
        if let Some(what) = changed {
            panic!(
                "{} is not what bindgen {} makes of this moe.h: {}; with bindgen {}, MOE_WRITE_BINDINGS=1 writes it",
                name, version, what, generate::VERSION
            );
        }
    }
}

fn write(here: &Path, include: &Path) {
    let style = here.join("../rustfmt.toml").canonicalize().unwrap();
    let format = ["--rustfmt-configuration-file", style.to_str().unwrap()];
    for (name, text) in generate::generate(include, &format).unwrap() {
        std::fs::write(here.join(name), text).unwrap();
    }
}

/// Without white space, and without commas before a closing bracket.
fn words(text: &str) -> String {
    let dense: String = text.chars().filter(|one| !one.is_whitespace()).collect();
    dense.replace(",)", ")").replace(",}", "}").replace(",>", ">")
}

/// Constants with their values, functions with their types, and fields with their place, of every name of moe.h.
fn declared(text: &str) -> BTreeSet<String> {
    let (mut outer, mut place) = (String::new(), 0);
    let mut found = BTreeSet::new();
    for piece in text.split("pub ").skip(1) {
        let (kind, rest) = piece.split_at(piece.find(char::is_whitespace).unwrap_or(piece.len()));
        let rest = words(rest);
        let name = rest.split(|one: char| !(one.is_alphanumeric() || one == '_')).next().unwrap_or("");
        let one = match kind {
            "const" | "fn" | "type" => format!("{} {}", kind, upto(&rest, &[";"])),
            "struct" | "union" => {
                outer = name.to_string();
                place = 0;
                format!("{} {}", kind, name)
            }
            _ => {
                place += 1;
                format!("field {}.{} {}", outer, place, upto(&words(piece), &["}", ");", "#["]))
            }
        };
        if one.split(' ').nth(1).map_or(false, |name| name.to_lowercase().starts_with("moe_")) {
            found.insert(one.replace("::core::ffi::", "::std::os::raw::").replace("::core::", "::std::"));
        }
    }
    found.into_iter().map(|one| one.replace("usize]", "]")).collect()
}

fn upto<'a>(text: &'a str, ends: &[&str]) -> &'a str {
    let end = ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    text[..end].trim_end_matches(',')
}

#[test]
fn formatting_makes_no_difference_and_words_do() {
    assert_eq!(words("fn f(\n    a: u8,\n);"), words("fn f (a : u8) ;"));
    assert_ne!(words("fn f(a: u8);"), words("fn f(b: u8);"));
}

#[test]
fn grouping_makes_no_difference_and_values_types_and_places_do() {
    const TEXT: &str = "pub type __int32_t = i32; impl moe_a { pub const MOE_B: moe_a = moe_a(1); } impl moe_a {
        pub const MOE_C: moe_a = moe_a(2); } #[repr(transparent)] pub struct moe_a(pub u32); #[repr(C)] pub struct moe_d {
        pub e: [u32; 4usize], pub f: ::std::option::Option<fn(g: u8, h: u8)>, } pub fn moe_i(j: u8) -> u32;";
    let other = "impl moe_a { pub const MOE_C : moe_a = moe_a (2) ; pub const MOE_B : moe_a = moe_a (1) ; }
        pub struct moe_a (pub u32) ; # [derive (Debug)] pub struct moe_d { pub e : [u32 ; 4] , pub f :
        :: core :: option :: Option < fn (g : u8 , h : u8 ,) > } pub fn moe_i (j : u8) -> u32 ;";
    assert_eq!(declared(TEXT), declared(other));
    assert_eq!(declared(TEXT).len(), 8);
    let changes = [
        ("(1)", "(3)"),
        ("[u32", "[i32"),
        ("4us", "5us"),
        ("(pub u32)", "(pub i32)"),
        ("h: u8", "h: u16"),
        ("j: u8", "j: i8"),
    ];
    for (from, to) in changes {
        assert_ne!(declared(TEXT), declared(&TEXT.replace(from, to)), "{}", to);
    }
    assert_ne!(
        declared("pub struct moe_d { pub e: u8, pub f: u8 }"),
        declared("pub struct moe_d { pub f: u8, pub e: u8 }")
    );
}
