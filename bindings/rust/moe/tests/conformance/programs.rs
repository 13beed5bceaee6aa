//! The example and the Rust of the README, run on a checkpoint that the command `moe` makes.
use crate::support::{root, scratch, text};
use std::path::{Path, PathBuf};
use std::process::Command;

/// MOE_COMMAND names the command, else that of build/cpu is taken.
fn checkpoint(name: &str) -> PathBuf {
    let command =
        std::env::var_os("MOE_COMMAND").map_or_else(|| root().join("build/cpu/bin/moe"), PathBuf::from);
    let folder = scratch(name).join("qwen3");
    let mut command = Command::new(command);
    let made = command.args(["make-model", "qwen3-30b-a3b"]).arg(&folder).arg("--reduced").output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder
}

/// Cargo builds examples beside the tests, in target/<profile>/examples; this program is in target/<profile>/deps.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf()
}

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn the_example() {
    let folder = checkpoint("example");
    let output = output(Command::new(target().join("examples/layer")).arg(&folder).arg("3"));
    assert!(output.contains("qwen3_moe, layer 0") && output.contains("token 2: experts"), "{}", output);
    let sizes =
        output.split("rms of out ").skip(1).map(|rest| rest.lines().next().unwrap().parse::<f32>().unwrap());
    assert!(sizes.fold(f32::INFINITY, f32::min) > 0.0);
}

fn programs(page: &Path) -> Vec<String> {
    let page = text(page);
    page.split("\n```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_string()).collect()
}

/// A crate of its own with the program in main, as a user would have it.
#[test]
fn the_programs_of_the_readme() {
    let (folder, checkpoint) = (scratch("readme"), checkpoint("readme"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let feature = if cfg!(feature = "dlopen") { "[\"dlopen\"]" } else { "[]" };
    let manifest = format!(
        "[package]\nname = \"readme\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n[dependencies]\nmoe = {{ path = {:?}, features = {} }}\n",
        here, feature
    );
    std::fs::create_dir_all(folder.join("src")).unwrap();
    std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    let mut count = 0;
    for program in programs(&root().join("bindings/rust/README.md")) {
        assert!(program.contains("/tmp/qwen3"), "{}", program);
        let body = program.replace("/tmp/qwen3", checkpoint.to_str().unwrap());
        let main = format!("fn main() -> Result<(), moe::Error> {{\n{}\nOk(())\n}}\n", body);
        std::fs::write(folder.join("src/main.rs"), main).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["run", "--offline", "--quiet", "-j1", "--target-dir"]).arg(folder.join("target"));
        assert!(!output(cargo.current_dir(&folder)).trim().is_empty());
        count += 1;
    }
    assert!(count >= 1);
}
