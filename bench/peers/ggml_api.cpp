#include "bench/peers/ggml_api.hpp"

#include <link.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace moe::bench::ggml {
namespace {

// Run with 0.15.3, 0.19.0 and 0.25.1. Older ones have other structs inside and lack some functions.
constexpr int oldest_minor = 15;

// Packages write the version before or behind .so.
std::string file_of(const std::string& folder, const std::string& name) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
        const std::string file = entry.path().filename().string();
        if (file.rfind(name + ".", 0) == 0 && file.find(".so") != file.npos) return entry.path();
    }
    throw std::runtime_error(folder + " has no " + name + ".so");
}

// The loaded library whose file begins with libggml-cpu.
std::string loaded_cpu_library() {
    std::string path;
    const auto visit = [](dl_phdr_info* info, size_t, void* found) {
        const std::string name = std::filesystem::path(info->dlpi_name).filename().string();
        if (name.rfind("libggml-cpu", 0) == 0) *static_cast<std::string*>(found) = info->dlpi_name;
        return 0;
    };
    dl_iterate_phdr(visit, &path);
    return path;
}

void check_version(const std::string& version) {
    int major = 0, minor = 0;
    if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2 || major != 0 ||
        minor < oldest_minor)
        throw std::runtime_error("ggml " + version + " is not known here: 0." +
                                 std::to_string(oldest_minor) + " or a newer 0.x is needed");
}

}  // namespace

void SharedApi::load(const SharedLibrary& base) {
    base.find("ggml_type_name", type_name);
    base.find("ggml_tensor_overhead", tensor_overhead);
    base.find("ggml_graph_overhead_custom", graph_overhead_custom);
    base.find("ggml_init", init);
    base.find("ggml_free", free);
    base.find("ggml_new_tensor_2d", new_tensor_2d);
    base.find("ggml_new_tensor_3d", new_tensor_3d);
    base.find("ggml_mul_mat_id", mul_mat_id);
    base.find("ggml_add_id", add_id);
    base.find("ggml_add", add);
    base.find("ggml_nbytes", nbytes);
    base.find("ggml_set_input", set_input);
    base.find("ggml_set_output", set_output);
    base.find("ggml_new_graph_custom", new_graph_custom);
    base.find("ggml_build_forward_expand", build_forward_expand);
    base.find("ggml_gallocr_new", gallocr_new);
    base.find("ggml_gallocr_alloc_graph", gallocr_alloc_graph);
    base.find("ggml_gallocr_free", gallocr_free);
    base.find("ggml_backend_tensor_set", tensor_set);
    base.find("ggml_backend_tensor_get", tensor_get);
    base.find("ggml_backend_buffer_free", buffer_free);
    base.find("ggml_backend_free", backend_free);
    base.find("ggml_backend_graph_compute", backend_graph_compute);
}

Library::Library(const std::string& folder, DeviceKind kind) {
    load_base(SharedLibrary("ggml", file_of(folder, "libggml-base")));
    version_ = api_.version();
    check_version(version_);
    api_.log_set([](int, const char*, void*) {}, nullptr);
    const SharedLibrary registry("ggml", file_of(folder, "libggml"));
    registry.find("ggml_backend_load_all_from_path", api_.load_all_from_path);
    registry.find("ggml_backend_dev_by_type", api_.dev_by_type);
    // It would load a plug-in, which may take the experts over.
    unsetenv("GGML_BACKEND_PATH");
    api_.load_all_from_path(folder.c_str());
    const bool is_cpu = kind == DeviceKind::cpu;
    const std::string name = is_cpu ? "CPU" : "GPU";
    device_ = api_.dev_by_type(static_cast<int>(kind));
    if (!device_) throw std::runtime_error("ggml found no " + name + " backend in " + folder);
    if (is_cpu) load_cpu(loaded_cpu_library());
    Backend* backend = api_.dev_init(device_, nullptr);
    if (!backend) throw std::runtime_error("ggml's " + name + " backend does not start");
    backend_ = {backend, api_.backend_free};
}

void Library::load_base(const SharedLibrary& base) {
    api_.load(base);
    base.find("ggml_version", api_.version);
    base.find("ggml_log_set", api_.log_set);
    base.find("ggml_swiglu_split", api_.swiglu_split);
    base.find("ggml_swiglu_oai", api_.swiglu_oai);
    base.find("ggml_mul", api_.mul);
    base.find("ggml_view_2d", api_.view_2d);
    base.find("ggml_reshape_3d", api_.reshape_3d);
    base.find("ggml_repeat_4d", api_.repeat_4d);
    base.find("ggml_get_rows", api_.get_rows);
    base.find("ggml_backend_tensor_alloc", api_.tensor_alloc);
    base.find("ggml_backend_alloc_ctx_tensors_from_buft", api_.alloc_ctx_tensors_from_buft);
    base.find("ggml_backend_buffer_get_base", api_.buffer_get_base);
    base.find("ggml_backend_buffer_get_size", api_.buffer_get_size);
    base.find("ggml_backend_buft_name", api_.buft_name);
    base.find("ggml_backend_dev_buffer_type", api_.dev_buffer_type);
    base.find("ggml_backend_dev_buffer_from_host_ptr", api_.dev_buffer_from_host_ptr);
    base.find("ggml_backend_dev_supports_op", api_.dev_supports_op);
    base.find("ggml_backend_dev_init", api_.dev_init);
    base.find("ggml_backend_dev_backend_reg", api_.dev_backend_reg);
    base.find("ggml_backend_reg_get_proc_address", api_.reg_get_proc_address);
    base.find("ggml_threadpool_params_init", api_.threadpool_params_init);
}

void Library::load_cpu(const std::string& path) {
    if (path.empty()) throw std::runtime_error("ggml's CPU backend is no library of its own");
    const std::string stem = std::filesystem::path(path).stem().string();
    variant_ = stem.substr(0, stem.find('.')).substr(std::strlen("libggml-cpu"));
    variant_ = variant_.empty() ? "cpu" : variant_.substr(1);
    const SharedLibrary cpu("ggml", path);
    cpu.find("ggml_backend_cpu_set_n_threads", api_.set_n_threads);
    cpu.find("ggml_backend_cpu_set_threadpool", api_.set_threadpool);
    cpu.find("ggml_threadpool_new", api_.threadpool_new);
    cpu.find("ggml_threadpool_free", api_.threadpool_free);
    cpu.find("ggml_threadpool_pause", api_.threadpool_pause);
    cpu.find("ggml_threadpool_resume", api_.threadpool_resume);
    void* extra = api_.reg_get_proc_address(api_.dev_backend_reg(device_),
                                            "ggml_backend_dev_get_extra_bufts");
    if (!extra) throw std::runtime_error("this ggml has no list of its CPU buffer types");
    std::memcpy(&api_.dev_get_extra_bufts, &extra, sizeof extra);
}

}  // namespace moe::bench::ggml
