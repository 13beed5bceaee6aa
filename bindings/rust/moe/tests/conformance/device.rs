//! Memory and streams of a device; on the CPU they are the host's.
use crate::support::{case, refused_by_name, status_of};
use moe::{DeviceKind, DeviceMemory, Runtime, Space, Status, Stream};

/// MEM-01
#[test]
fn mem_01_memory_goes_in_and_out() {
    let n = case("MEM-01")["elements"].i64() as usize;
    let values: Vec<f32> = (0..n).map(|i| i as f32 + 1.0).collect();
    let runtime = Runtime::builder().n_threads(1).create().unwrap();
    let stream = Stream::new(DeviceKind::CPU, 0).unwrap();
    assert!(stream.as_raw().is_null());
    for space in [Space::HOST, Space::PINNED, Space::DEVICE] {
        let mut memory = DeviceMemory::new(Some(&runtime), DeviceKind::CPU, 0, space, 4 * n).unwrap();
        let mut got = vec![0.0f32; n];
        memory.upload(&values, &stream).unwrap();
        memory.download(&mut got, &stream).unwrap();
        assert_eq!(got, values);
        memory.zero(&stream).unwrap();
        memory.download(&mut got, &stream).unwrap();
        assert_eq!(got, vec![0.0; n]);
        refused_by_name(memory.upload(&vec![0.0f32; n + 1], &stream), "from");
        refused_by_name(memory.download(&mut vec![0.0f64; n], &stream), "to");
        assert_eq!((memory.len(), memory.address() as usize % 256), (4 * n, 0));
    }
    stream.synchronize().unwrap();
    let absent = DeviceMemory::new(None, DeviceKind::CPU, 7, Space::DEVICE, 64);
    assert_eq!(status_of(absent), Status::INVALID_ARGUMENT);
    assert_eq!(status_of(Stream::new(DeviceKind::AUTO, 0)), Status::INVALID_ARGUMENT);
}
