//! The crate against moe.h: every function wrapped or listed with a reason, every enum value there.
use crate::support::{root, text};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn here() -> PathBuf {
    root().join("bindings/rust")
}

fn source() -> String {
    let files = std::fs::read_dir(here().join("moe/src")).unwrap();
    files.map(|file| text(&file.unwrap().path())).collect()
}

/// The header without comments.
fn header() -> String {
    let all = text(&root().join("include/moe/moe.h"));
    let mut parts = all.split("/*");
    let first = parts.next().unwrap().to_string();
    parts.fold(first, |found, part| found + part.split_once("*/").unwrap().1)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|one: char| !(one.is_alphanumeric() || one == '_'))
}

fn declared_functions() -> BTreeSet<String> {
    let header = header();
    let behind = header.split("MOE_CALL ").skip(1).map(|rest| words(rest).next().unwrap().to_string());
    behind.filter(|name| name.starts_with("moe_") && !name.ends_with("_fn")).collect()
}

#[test]
fn every_function_is_wrapped_or_listed_with_a_reason() {
    let (functions, source) = (declared_functions(), source());
    assert!(functions.len() >= 50);
    let calls = source.split("call!(").chain(source.split("sys::")).skip(1);
    let mut called: BTreeSet<String> =
        calls.filter_map(|rest| words(rest).next()).map(str::to_string).collect();
    for destroy in source.split("handle!(").skip(1) {
        called.extend(words(destroy.split(')').next().unwrap()).map(str::to_string));
    }
    let readme = text(&here().join("README.md"));
    let rows = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `moe_")?.strip_suffix(" |")?.split_once("` | "));
    let listed: BTreeSet<String> = rows
        .filter(|(name, reason)| words(name).count() == 1 && !reason.trim().is_empty())
        .map(|(name, _)| format!("moe_{}", name))
        .filter(|name| functions.contains(name))
        .collect();
    let missing: BTreeSet<String> = functions.difference(&called).cloned().collect();
    assert_eq!(missing, listed);
}

#[test]
fn every_function_of_the_header_is_in_moe_sys() {
    let generated = text(&here().join("moe-sys/src/functions.rs"));
    let ours = generated.split("pub fn ").skip(1).map(|rest| words(rest).next().unwrap().to_string());
    assert_eq!(ours.collect::<BTreeSet<String>>(), declared_functions());
}

#[test]
fn every_enum_value_is_there() {
    let (header, source) = (header(), source());
    let known: BTreeSet<&str> = words(&source).collect();
    let mut count = 0;
    for body in header
        .split("enum ")
        .skip(1)
        .filter_map(|rest| rest.split_once('{')?.1.split_once('}'))
        .map(|one| one.0)
    {
        for entry in body.split(',').filter_map(|entry| entry.split_once('=')) {
            let name = entry.0.trim();
            count += 1;
            assert!(known.contains(name) || name.ends_with("FORCE_INT32"), "{}", name);
        }
    }
    assert!(count > 120, "{}", count);
}
