#include "bench/peers/ik_api.hpp"

#include <filesystem>
#include <stdexcept>

namespace moe::bench::ik {
namespace {

// The forks of ggml have no version to ask for, so the file is known by its functions.
const char* const owner = "libggml.so of ik_llama.cpp";

std::string file_in(const std::string& folder) {
    const std::filesystem::path path = std::filesystem::path(folder) / "libggml.so";
    std::error_code error;
    if (!std::filesystem::exists(path, error))
        throw std::runtime_error(folder + " has no libggml.so");
    return path;
}

// Functions of ik's own come first: another fork of ggml is refused by one of them.
void load(const SharedLibrary& library, Api& api) {
    library.find("ggml_moe_up_gate_ext", api.moe_up_gate_ext);
    library.find("ggml_mul_multi_add", api.mul_multi_add);
    library.find("iqk_repack_tensor", api.repack_tensor);
    library.find("iqk_repacked_type", api.repacked_type);
    api.load(library);
    library.find("ggml_unary_op_name", api.unary_op_name);
    library.find("ggml_backend_tensor_alloc", api.tensor_alloc);
    library.find("ggml_backend_cpu_init", api.init_cpu);
    library.find("ggml_backend_cpu_set_n_threads", api.set_n_threads);
    library.find("ggml_backend_cpu_buffer_type", api.buffer_type);
    library.find("ggml_backend_cpu_buffer_from_ptr", api.buffer_from_ptr);
    library.find_any("omp_pause_resource_all", api.pause_threads);
}

// Numbers that moved would compute something else, or end the program.
void check_numbers(const Api& api) {
    const std::string silu = api.unary_op_name(unary_silu);
    const std::string swiglu = api.unary_op_name(unary_swiglu_oai);
    if (silu != "SILU" || swiglu != "SWIGLU_OAI")
        throw std::runtime_error(
            "this ik_llama.cpp is not known here: its activations " + std::to_string(unary_silu) +
            " and " + std::to_string(unary_swiglu_oai) + " are " + silu + " and " + swiglu);
    const std::string f32 = api.type_name(ggml::type_f32), i32 = api.type_name(ggml::type_i32);
    if (f32 != "f32" || i32 != "i32")
        throw std::runtime_error("this ik_llama.cpp is not known here: its types " +
                                 std::to_string(ggml::type_f32) + " and " +
                                 std::to_string(ggml::type_i32) + " are " + f32 + " and " + i32);
}

std::string compiled_for(const SharedLibrary& library) {
    std::string last;
    for (const char* extension : {"avx2", "avx512", "avx512_vnni", "avx512_bf16"}) {
        int (*is_compiled)();
        library.find((std::string("ggml_cpu_has_") + extension).c_str(), is_compiled);
        if (!is_compiled()) break;
        last = extension;
    }
    if (last.empty()) throw std::runtime_error("this ik_llama.cpp is built without AVX2");
    return last;
}

}  // namespace

Library::Library(const std::string& folder) {
    const SharedLibrary library(owner, file_in(folder));
    load(library, api_);
    check_numbers(api_);
    variant_ = compiled_for(library);
    ggml::Backend* backend = api_.init_cpu();
    if (!backend) throw std::runtime_error("ik_llama.cpp's CPU backend does not start");
    backend_ = {backend, api_.backend_free};
}

}  // namespace moe::bench::ik
