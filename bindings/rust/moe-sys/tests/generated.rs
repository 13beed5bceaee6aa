// What is checked in is what the command bindgen makes of moe.h now.
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
    for (name, text) in generate::generate(&here.join("../../../include")).unwrap() {
        let file = here.join(name);
        if std::env::var_os("MOE_WRITE_BINDINGS").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &text).unwrap();
        }
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(found == text, "{} is not what bindgen makes of moe.h; MOE_WRITE_BINDINGS=1 writes it", name);
    }
}
