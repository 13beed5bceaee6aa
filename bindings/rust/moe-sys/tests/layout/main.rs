// The layouts that rustc gives to the structs of moe.h against those of a C compiler.
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

struct Struct {
    name: &'static str,
    size: usize,
    fields: Vec<(&'static str, usize, usize)>,
}

macro_rules! layout {
    ($($name:ident { $($field:ident),* })*) => {
        fn structs() -> Vec<Struct> {
            vec![$({
                let memory = std::mem::MaybeUninit::<moe_sys::$name>::zeroed();
                let base = memory.as_ptr();
                let fields = vec![$({
                    // SAFETY: only addresses are taken, inside memory.
                    let place = unsafe { std::ptr::addr_of!((*base).$field) };
                    (stringify!($field), place as usize - base as usize, size_of_pointee(place))
                }),*];
                Struct { name: stringify!($name), size: std::mem::size_of::<moe_sys::$name>(), fields }
            }),*]
        }
    };
}
include!("structs.rs");

fn size_of_pointee<T>(_: *const T) -> usize {
    std::mem::size_of::<T>()
}

fn program(structs: &[Struct]) -> String {
    let mut text = "#include \"moe/moe.h\"\n#include <stdio.h>\nint main(void) {\n".to_string();
    for one in structs {
        writeln!(text, "printf(\"{0} %zu\\n\", sizeof({0}));", one.name).unwrap();
        for (field, ..) in &one.fields {
            let field = field.trim_end_matches('_');
            writeln!(
                text,
                "printf(\"{0}.{1} %zu %zu\\n\", offsetof({0}, {1}), sizeof((({0} *)0)->{1}));",
                one.name, field
            )
            .unwrap();
        }
    }
    text + "return 0;\n}\n"
}

#[test]
fn layouts_are_those_of_a_c_compiler() {
    let structs = structs();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../include");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, built) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program(&structs)).unwrap();
    let compiled = Command::new("cc").arg("-I").arg(header).arg(&source).arg("-o").arg(&built).status();
    assert!(compiled.expect("there is no C compiler").success());
    let output = Command::new(&built).output().unwrap().stdout;
    let mut ours = String::new();
    for one in &structs {
        writeln!(ours, "{} {}", one.name, one.size).unwrap();
        for (field, offset, size) in &one.fields {
            writeln!(ours, "{}.{} {} {}", one.name, field.trim_end_matches('_'), offset, size).unwrap();
        }
    }
    assert!(ours.lines().count() > 300);
    assert_eq!(String::from_utf8_lossy(&output), ours);
}

#[test]
fn every_struct_of_the_header_is_among_them() {
    let header =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../include/moe/moe.h"))
            .unwrap();
    let declared = header.lines().filter_map(|line| line.strip_prefix("typedef struct ")?.strip_suffix(" {"));
    let mut declared: Vec<&str> = declared.collect();
    let mut ours: Vec<&str> = structs().iter().map(|one| one.name).collect();
    declared.sort_unstable();
    ours.sort_unstable();
    assert_eq!(declared, ours);
}
