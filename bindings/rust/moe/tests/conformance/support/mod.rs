//! Data of the tests: cases, golden fixtures, an allocator that keeps a ledger.
pub mod memory;
pub mod schema;
pub mod values;

use moe::{Checkpoint, Error, Plan, PlanOptions, Runtime, Status, Type, Weights, Workspace};
use std::path::{Path, PathBuf};
pub use values::Value;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// A case of cases.toml.
pub fn case(id: &str) -> Value {
    values::toml_case(&text(&root().join("bindings/conformance/cases.toml")), id)
}

pub fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {}", path.display(), error))
}

/// Where a test writes files of its own.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{}", name, std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[track_caller]
pub fn status_of<T>(result: Result<T, Error>) -> Status {
    let error = result.err().expect("the call succeeded");
    error.status().unwrap_or_else(|| panic!("{:?}", error))
}

#[track_caller]
pub fn refused_by_name<T>(result: Result<T, Error>, wanted: &str) {
    match result.err().expect("the call succeeded") {
        Error::Argument { name, .. } => assert_eq!(name, wanted),
        other => panic!("{:?}", other),
    }
}

/// A checkpoint with what the tool that wrote it computes.
pub struct Golden {
    pub path: PathBuf,
    pub layer: i32,
    pub n_tokens: usize,
    pub x: Vec<f32>,
    pub y: Vec<f32>,
    pub ids: Vec<i32>,
    pub weights: Vec<f32>,
}

pub struct Handles {
    pub checkpoint: Checkpoint,
    pub plan: Plan,
    pub weights: Weights<'static>,
    pub workspace: Workspace<'static>,
}

impl Golden {
    pub fn new(folder: &str) -> Golden {
        let folder = root().join(folder);
        let gguf = folder.join("model.gguf");
        let facts = values::json(&text(&folder.join("case.json")));
        let (shape, x) = npy(&folder.join("x.npy"));
        Golden {
            path: if gguf.exists() { gguf } else { folder.clone() },
            layer: facts["layer"].i64() as i32,
            n_tokens: shape[0],
            x: x.iter().map(|&bits| f32::from_bits(bits)).collect(),
            y: npy(&folder.join("y.npy")).1.iter().map(|&bits| f32::from_bits(bits)).collect(),
            ids: npy(&folder.join("ids.npy")).1.iter().map(|&bits| bits as i32).collect(),
            weights: npy(&folder.join("weights.npy")).1.iter().map(|&bits| f32::from_bits(bits)).collect(),
        }
    }

    pub fn of_case(id: &str) -> Golden {
        Golden::new(case(id)["fixture"].str())
    }

    pub fn options<'a>(&self, checkpoint: &'a Checkpoint) -> PlanOptions<'a> {
        Plan::options(Type::F32, 64).checkpoint(checkpoint, self.layer).device(moe::DeviceKind::CPU)
    }

    pub fn open(&self) -> Handles {
        self.open_with(None)
    }

    pub fn open_with(&self, runtime: Option<&Runtime>) -> Handles {
        let mut checkpoint = Checkpoint::options();
        let mut workspace = Workspace::options();
        if let Some(runtime) = runtime {
            checkpoint = checkpoint.runtime(runtime);
            workspace = workspace.runtime(runtime);
        }
        let checkpoint = checkpoint.open(&self.path).unwrap();
        let mut options = self.options(&checkpoint);
        if let Some(runtime) = runtime {
            options = options.runtime(runtime);
        }
        let plan = options.create().unwrap();
        let weights = Weights::load_checkpoint(&plan, &checkpoint, self.layer).unwrap();
        let workspace = workspace.plan(&plan).create().unwrap();
        Handles { checkpoint, plan, weights, workspace }
    }

    pub fn forward(&self, handles: &mut Handles) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.y.len()];
        let call = moe::Forward::new(self.n_tokens).x(&self.x).out(&mut out);
        call.run(&handles.plan, &handles.weights, &mut handles.workspace).unwrap();
        out
    }
}

/// Shape and elements of a file of 4-byte elements.
fn npy(path: &Path) -> (Vec<usize>, Vec<u32>) {
    let bytes = std::fs::read(path).unwrap();
    let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let words = String::from_utf8_lossy(&bytes[10..header]);
    assert!(words.contains("'<f4'") || words.contains("'<i4'"), "{}: {}", path.display(), words);
    let shape = words.split(['(', ')']).nth(1).unwrap();
    let shape = shape.split(',').filter_map(|one| one.trim().parse().ok()).collect();
    let elements = bytes[header..].chunks(4).map(|one| u32::from_le_bytes([one[0], one[1], one[2], one[3]]));
    (shape, elements.collect())
}

/// The largest over rows; NaN counts as infinite, and zeros are one.
pub fn relative_l2(got: &[f32], wanted: &[f32], columns: usize) -> f64 {
    assert_eq!(got.len(), wanted.len());
    let norm = |row: &mut dyn Iterator<Item = f64>| row.map(|one| one * one).sum::<f64>().sqrt();
    let errors = got.chunks(columns).zip(wanted.chunks(columns)).map(|(got, wanted)| {
        let size = norm(&mut wanted.iter().map(|&one| one as f64));
        assert!(size > 0.0);
        let error =
            norm(&mut got.iter().zip(wanted).map(|(&got, &wanted)| got as f64 - wanted as f64)) / size;
        if error.is_nan() {
            f64::INFINITY
        } else {
            error
        }
    });
    errors.fold(0.0, f64::max)
}

#[track_caller]
pub fn assert_near(got: &[f32], wanted: &[f32], n_rows: usize, limit: f64) {
    let found = relative_l2(got, wanted, wanted.len() / n_rows);
    assert!(found <= limit, "relative L2 {} > {}", found, limit);
}

/// Numbers around zero, the same each time.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    fn float(&mut self) -> f32 {
        let sum: f64 = (0..4).map(|_| self.uniform()).sum();
        ((sum - 2.0) * 1.732) as f32
    }

    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[test]
fn relative_l2_rejects_zeros_and_nan() {
    assert_eq!(relative_l2(&[0.0, 0.0], &[3.0, 4.0], 2), 1.0);
    assert_eq!(relative_l2(&[f32::NAN, 4.0], &[3.0, 4.0], 2), f64::INFINITY);
    assert_eq!(relative_l2(&[3.0, 4.0, 3.0, 5.0], &[3.0, 4.0, 3.0, 4.0], 2), 0.2);
}
