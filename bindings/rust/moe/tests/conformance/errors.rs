//! Errors, and the gate that a library must pass before it is used.
use crate::support::{case, refused_by_name, root, scratch, status_of};
use moe::{Error, Format, LayerDesc, Status};
use std::path::PathBuf;
use std::process::{Command, Output};

/// ERR-01
#[test]
fn err_01_each_status_has_its_name() {
    let statuses = case("ERR-01")["statuses"].clone();
    for (name, number) in statuses.entries() {
        let error = Error::from_status(Status(number.i64() as i32), "a sentence", "moe_call");
        let status = error.status().unwrap();
        assert_eq!((status.0 as i64, status.name()), (number.i64(), Some(name.as_str())));
        assert_eq!(status.c_name(), format!("MOE_ERROR_{}", name));
    }
    assert_eq!(statuses.entries().len() + 1, Status::KNOWN.len());
}

/// ERR-01
#[test]
fn err_01_the_library_gives_them() {
    let error = LayerDesc::default().validate().unwrap_err();
    assert!(
        matches!(&error, Error::Library { status: Status(-1), call: "moe_layer_validate", .. }),
        "{:?}",
        error
    );
    assert!(error.to_string().contains("MOE_ERROR_INVALID_ARGUMENT"));
    assert_eq!(status_of(Format::named("no such format")), Status::NOT_FOUND);
    assert_eq!(status_of(moe::Checkpoint::open("no/such/folder")), Status::IO);
    refused_by_name(Format::named("a\0b"), "name");
}

/// ERR-02
#[test]
fn err_02_an_unknown_status_keeps_its_number() {
    let case = case("ERR-02");
    let number = case["unknown_status"].i64() as i32;
    let error = Error::from_status(Status(number), "from the future", "moe_call");
    let status = error.status().unwrap();
    assert_eq!((status.0, status.name()), (number, None));
    assert_eq!(status.c_name(), case["unknown_name"].str());
    assert_eq!(format!("{:?}", status), format!("Status({})", number));
    assert!(error.to_string().contains("from the future"));
}

/// ERR-03
#[test]
fn err_03_the_sentence_names_field_and_value() {
    let case = case("ERR-03");
    let bad = &case["bad_layer"];
    let field = |name: &str| bad[name].i64() as i32;
    let layer = LayerDesc {
        hidden: field("hidden"),
        intermediate: field("intermediate"),
        n_experts: field("n_experts"),
        top_k: field("top_k"),
        activation: moe::Activation(field("activation") as u32),
        is_gated: field("is_gated") != 0,
        ..Default::default()
    };
    let message = layer.validate().unwrap_err().message();
    assert!(case["message_has"].list().iter().all(|part| message.contains(part.str())), "{}", message);
    let path = case["absent_file"].str();
    assert!(moe::Checkpoint::open(path).unwrap_err().message().contains(path));
}

/// ERR-04
#[test]
fn err_04_threads_keep_their_own_sentences() {
    let case = case("ERR-04");
    let rounds = case["rounds"].i64();
    std::thread::scope(|scope| {
        for number in 0..case["threads"].i64() {
            scope.spawn(move || {
                let name = format!("format-of-thread-{}", number);
                for _ in 0..rounds {
                    let message = Format::named(&name).unwrap_err().message();
                    assert!(message.contains(&name), "{}", message);
                }
            });
        }
    });
}

/// VER-01
#[test]
fn ver_01_versions_can_be_read() {
    let case = case("VER-01");
    assert_eq!(moe::abi_version().unwrap() as i64, case["abi_version"].i64());
    assert_eq!(moe::abi_version().unwrap(), moe::sys::MOE_ABI_VERSION);
    assert_eq!(moe::version().unwrap(), moe::sys::MOE_VERSION_NUMBER);
    assert_eq!(moe::version_string().unwrap(), env!("CARGO_PKG_VERSION"));
    assert!(moe::build_info().unwrap().contains(case["build_info_has"].str()));
}

/// A library that claims an ABI version and has nothing else, in a folder of its own. One that is preloaded must not bear the
/// name of the real one, which it would replace.
fn fake(file: &str, version: i64) -> PathBuf {
    let library = scratch(&format!("{}-{}", file, version)).join(file);
    let source = root().join(case("VER-02")["source"].str());
    let define = format!("-DFAKE_ABI={}", version);
    let made =
        Command::new("cc").args(["-shared", "-fPIC", &define]).arg(source).arg("-o").arg(&library).status();
    assert!(made.expect("there is no C compiler").success());
    library
}

/// This program again, for what needs a process that has called nothing yet.
fn child(test: &str, variable: &str, value: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(variable, value).output().unwrap()
}

#[test]
#[ignore = "run by ver_02 in a process of its own"]
fn in_a_process_with_another_library() {
    println!("first: {:?}", moe::Runtime::new().unwrap_err());
    println!("second: {:?}", Format::named("f32").unwrap_err());
}

const CHILD: &str = "errors::in_a_process_with_another_library";

/// VER-02: the linker has looked up what is linked, so that here nothing but moe_abi_version is called; with the feature dlopen
/// nothing else is looked up.
#[test]
fn ver_02_another_abi_is_refused_first() {
    let variable = if cfg!(feature = "dlopen") { "MOE_LIBRARY" } else { "LD_PRELOAD" };
    for version in case("VER-02")["versions"].list() {
        let output = child(CHILD, variable, fake("libfirst.so", version.i64()).to_str().unwrap());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let wanted =
            format!("AbiVersion {{ found: {}, wanted: {} }}", version.i64(), moe::sys::MOE_ABI_VERSION);
        assert!(output.status.success(), "{}", text);
        assert_eq!(text.matches(&wanted).count(), 2, "{}", text);
    }
}

/// VER-02
#[cfg(feature = "dlopen")]
#[test]
fn ver_02_loading_another_abi_by_name_is_refused() {
    for version in case("VER-02")["versions"].list() {
        let error = moe::load(fake("libnamed.so", version.i64())).unwrap_err();
        let found = version.i64() as u32;
        assert_eq!(error, Error::AbiVersion { found, wanted: moe::sys::MOE_ABI_VERSION });
    }
    assert!(moe::version().is_ok());
}

/// VER-03
#[cfg(feature = "dlopen")]
#[test]
fn ver_03_a_library_without_functions_or_none_at_all() {
    let error = moe::load(fake("libmoe.so.0.1", 1)).unwrap_err().message();
    let names = format!("lacks the symbol {}", case("VER-03")["names"].str());
    assert!(error.contains(&names), "{}", error);
    assert!(moe::load("/no/such/libmoe.so").unwrap_err().message().contains("/no/such/libmoe.so"));
    let output = child(CHILD, "MOE_LIBRARY", "/no/such/other.so");
    assert!(String::from_utf8_lossy(&output.stdout).contains("/no/such/other.so"));
}

/// VER-03: of a library that is linked the loader says it, before the program begins.
#[cfg(not(feature = "dlopen"))]
#[test]
fn ver_03_a_library_without_functions_or_none_at_all() {
    let library = fake("libmoe.so.0.1", 1);
    let said = |folder: &str| {
        let output = child(CHILD, "LD_LIBRARY_PATH", folder);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let lacks = said(library.parent().unwrap().to_str().unwrap());
    assert!(lacks.contains(&format!("symbol: {}", case("VER-03")["names"].str())), "{}", lacks);
    assert!(said("/no/such/folder").contains("libmoe.so.0.1"));
}
