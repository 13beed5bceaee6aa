// What is checked in is what the command bindgen makes of moe.h now, whatever formatted it.
#[path = "../generate.rs"]
mod generate;

use std::path::Path;

#[test]
fn checked_in_files_are_those_of_bindgen() {
    if !generate::is_installed() {
        eprintln!("bindgen 0.60 is not installed: nothing is compared");
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let include = here.join("../../../include");
    if std::env::var_os("MOE_WRITE_BINDINGS").is_some() {
        let style = here.join("../rustfmt.toml").canonicalize().unwrap();
        let format = ["--rustfmt-configuration-file", style.to_str().unwrap()];
        for (name, text) in generate::generate(&include, &format).unwrap() {
            std::fs::write(here.join(name), text).unwrap();
        }
    }
    for (name, text) in generate::generate(&include, &["--no-rustfmt-bindings"]).unwrap() {
        let found = std::fs::read_to_string(here.join(name)).unwrap();
        assert!(
            words(&found) == words(&text),
            "{} is not of this moe.h; MOE_WRITE_BINDINGS=1 writes it",
            name
        );
    }
}

/// Without white space, and without commas before a closing bracket.
fn words(text: &str) -> String {
    let dense: String = text.chars().filter(|one| !one.is_whitespace()).collect();
    dense.replace(",)", ")").replace(",}", "}").replace(",>", ">")
}

#[test]
fn formatting_makes_no_difference_and_words_do() {
    assert_eq!(words("fn f(\n    a: u8,\n);"), words("fn f (a : u8) ;"));
    assert_ne!(words("fn f(a: u8);"), words("fn f(b: u8);"));
}
