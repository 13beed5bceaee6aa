//! The host tools for one matrix.
use crate::support::{case, refused_by_name, relative_l2, status_of, Random};
use moe::{convert_scales, dequantize, quantize, Format, Role, ScaleLayout, Status, Tensor};

/// FWD-05
#[test]
fn fwd_05_quantise_and_read_back() {
    let case = case("FWD-05");
    for name in moe::formats().unwrap() {
        let is_the_case = name == case["format"].str();
        let (rows, columns) =
            if is_the_case { (case["rows"].i64(), case["columns"].i64()) } else { (128, 256) };
        let matrix = Random::new(1).floats((rows * columns) as usize);
        let format = Format::named(name).unwrap();
        let info = format.info().unwrap();
        let made = quantize(&matrix, rows, columns, &format, None);
        if !info.has_encode {
            assert_eq!(status_of(made), Status::UNSUPPORTED);
            continue;
        }
        let limit = match info.bits_per_weight as u32 {
            _ if is_the_case => case["relative_l2"].f64(),
            2 | 3 => 0.5,
            4 => 0.2,
            5 | 6 => 0.1,
            8 => 0.05,
            16 => 4e-3,
            _ => 0.0,
        };
        let again = dequantize(&made.unwrap().tensor(Role::GATE).expert(0), 0).unwrap();
        let error = relative_l2(&again, &matrix, matrix.len());
        assert!(error <= limit, "{}: {} > {}", name, error, limit);
    }
}

#[test]
fn sizes_are_checked() {
    let f32s = Format::named("f32").unwrap();
    refused_by_name(quantize(&[0.0; 3], 2, 2, &f32s, None), "matrix");
    refused_by_name(quantize(&[0.0; 4], -2, -2, &f32s, None), "matrix");
    refused_by_name(quantize(&[0.0; 4], 2, 2, &f32s, Some(&[0.0; 3])), "codebook");
    refused_by_name(dequantize(&moe::Tensor::dense(Role::GATE, i64::MAX, i64::MAX, &[0.0f32]), 0), "tensor");
    refused_by_name(dequantize(&moe::Tensor::dense(Role::GATE, 1 << 40, 2, &[0.0f32]), 0), "tensor");
}

#[test]
fn scales_go_to_tiles_and_back() {
    const LINEAR: ScaleLayout = ScaleLayout::LINEAR;
    const TILED: ScaleLayout = ScaleLayout::TILED_128X4;
    let (rows, columns, groups) = (130, 80, 5);
    let format = Format::named("nvfp4").unwrap();
    let matrix = Random::new(1).floats((rows * columns) as usize);
    let made = quantize(&matrix, rows, columns, &format, None).unwrap();
    let tiles = convert_scales(&made.scales, LINEAR, TILED, rows, groups).unwrap();
    assert_eq!(tiles.len(), 4 * 512);
    assert_eq!(tiles[21], made.scales[33 * 5 + 1]);
    assert_eq!(convert_scales(&tiles, TILED, LINEAR, rows, groups).unwrap(), made.scales);
    let tiled = |layout| {
        let tensor = Tensor::new(Role::GATE, &format, rows, columns, &made.data).expert(0);
        dequantize(&tensor.scales(&tiles).global_scale(&made.global_scale).scale_layout(layout), 0)
    };
    let wanted = dequantize(&made.tensor(Role::GATE).expert(0), 0).unwrap();
    assert_eq!(tiled(TILED).unwrap(), wanted);
    assert_ne!(tiled(LINEAR).unwrap(), wanted);
    assert_eq!(status_of(tiled(ScaleLayout(2))), Status::INVALID_ARGUMENT);
    refused_by_name(convert_scales(&tiles, TILED, LINEAR, 1 << 40, groups), "scales");
}

#[test]
fn element_types_are_the_formats() {
    let named = |name| Format::named(name).unwrap();
    let (floats, bytes, words) = ([0.0f32; 1024], [0u8; 4096], [0i32; 1024]);
    let (halves, doubles) = ([moe::F16(0); 1024], [0.0f64; 1024]);
    fn of<'a, T: moe::Element>(format: &Format, data: &'a [T]) -> Tensor<'a> {
        Tensor::new(Role::GATE, format, 32, 32, data).expert(0)
    }
    let refused = |tensor: Tensor<'_>, name| refused_by_name(dequantize(&tensor, 0), name);
    for name in ["f32", "f16", "bf16"] {
        let format = named(name);
        dequantize(&of(&format, &bytes), 0).unwrap();
        refused(of(&format, &doubles), "data");
        refused(of(&format, &words), "data");
        if name != "f32" {
            refused(of(&format, &floats), "data");
        }
        refused(Tensor::per_expert(Role::GATE, &format, 32, 32, &[&doubles[..]]).unwrap(), "data");
    }
    dequantize(&of(&named("f16"), &halves), 0).unwrap();
    refused(of(&named("nvfp4"), &floats), "data");
    refused(of(&named("nvfp4"), &bytes).scales(&floats), "scales");
    refused(of(&named("mxfp4"), &bytes).scales(&halves), "scales");
    dequantize(&of(&named("mxfp4"), &bytes[..512]).scales(&bytes[..32]), 0).unwrap();
    dequantize(&of(&named("kbit4_f32"), &words).scales(&floats), 0).unwrap();
    refused(of(&named("kbit4_f32"), &words).scales(&halves), "scales");
    let gptq = Format {
        kind: moe::Type::INT,
        bits: 4,
        scale_type: moe::Type::F16,
        packing: moe::Packing::GPTQ,
        zero_point: moe::ZeroPoint::PACKED,
        ..Format::default()
    };
    refused(of(&gptq, &words).scales(&halves).zero_points(&floats), "zero_points");
    refused(of(&named("f32"), &floats).pre_quant_scale(&halves), "pre_quant_scale");
}

/// A CPU plan refuses all of it; what is shown is which memory a description takes.
#[test]
fn quantised_matrices_of_a_device() {
    let (format, bytes) = (Format::named("nvfp4").unwrap(), [0u8; 4096]);
    let address = bytes.as_ptr() as *const std::os::raw::c_void;
    // SAFETY: nothing reads memory of a device here.
    let data = || unsafe { Tensor::device(Role::GATE, &format, 32, 32, address, 512).expert(0) };
    refused_by_name(dequantize(&data().scales(&bytes), 0), "scales");
    refused_by_name(dequantize(&data().zero_points(&bytes), 0), "zero_points");
    let on_host = || Tensor::new(Role::GATE, &format, 32, 32, &bytes).expert(0);
    let global = [1.0f32];
    unsafe {
        refused_by_name(dequantize(&on_host().device_scales(address, 64), 0), "scales");
        refused_by_name(dequantize(&on_host().device_zero_points(address, 64), 0), "zero_points");
        let complete = data().device_scales(address, 64).global_scale(&global);
        assert_eq!(status_of(dequantize(&complete, 0)), Status::INVALID_ARGUMENT);
        dequantize(&on_host().device_scales(address, 64).scales(&bytes).global_scale(&global), 0).unwrap();
    }
}
