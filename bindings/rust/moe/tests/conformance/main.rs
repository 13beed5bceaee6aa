// The cases of bindings/conformance/cases.toml, and what else the crate promises. A test says in a comment which case it shows
// and has the id in its name, `err_01_..`: results.py reads the outcome from what `cargo test` prints. A case that does not
// apply is an ignored test with the reason.
mod arrays;
mod callbacks;
mod device;
mod errors;
mod header;
mod lifetime;
mod loading;
mod plans;
mod programs;
mod results;
mod stages;
mod support;
mod tools;
