#include "bench/peers/ggml_api.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace moe::bench::ggml {
namespace {

// Run with 0.15.3, 0.19.0 and 0.25.1. Older ones have other structs inside and lack some functions.
constexpr int oldest_minor = 15;

template <class Function>
void find(void* library, const char* name, Function& function) {
    void* address = dlsym(library, name);
    if (!address) throw std::runtime_error(std::string("this ggml has no function ") + name);
    std::memcpy(&function, &address, sizeof function);
}

void* open(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    return library;
}

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

Library::Library(const std::string& folder, DeviceKind kind) {
    load_base(open(file_of(folder, "libggml-base")));
    version_ = api_.version();
    check_version(version_);
    api_.log_set([](int, const char*, void*) {}, nullptr);
    void* registry = open(file_of(folder, "libggml"));
    find(registry, "ggml_backend_load_all_from_path", api_.load_all_from_path);
    find(registry, "ggml_backend_dev_by_type", api_.dev_by_type);
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

void Library::load_base(void* base) {
    find(base, "ggml_version", api_.version);
    find(base, "ggml_log_set", api_.log_set);
    find(base, "ggml_type_name", api_.type_name);
    find(base, "ggml_row_size", api_.row_size);
    find(base, "ggml_tensor_overhead", api_.tensor_overhead);
    find(base, "ggml_graph_overhead_custom", api_.graph_overhead_custom);
    find(base, "ggml_init", api_.init);
    find(base, "ggml_free", api_.free);
    find(base, "ggml_new_tensor_1d", api_.new_tensor_1d);
    find(base, "ggml_new_tensor_2d", api_.new_tensor_2d);
    find(base, "ggml_new_tensor_3d", api_.new_tensor_3d);
    find(base, "ggml_mul_mat_id", api_.mul_mat_id);
    find(base, "ggml_swiglu_split", api_.swiglu_split);
    find(base, "ggml_swiglu_oai", api_.swiglu_oai);
    find(base, "ggml_add_id", api_.add_id);
    find(base, "ggml_mul", api_.mul);
    find(base, "ggml_add", api_.add);
    find(base, "ggml_view_2d", api_.view_2d);
    find(base, "ggml_reshape_3d", api_.reshape_3d);
    find(base, "ggml_repeat_4d", api_.repeat_4d);
    find(base, "ggml_get_rows", api_.get_rows);
    find(base, "ggml_nbytes", api_.nbytes);
    find(base, "ggml_set_input", api_.set_input);
    find(base, "ggml_set_output", api_.set_output);
    find(base, "ggml_new_graph_custom", api_.new_graph_custom);
    find(base, "ggml_build_forward_expand", api_.build_forward_expand);
    find(base, "ggml_gallocr_new", api_.gallocr_new);
    find(base, "ggml_gallocr_alloc_graph", api_.gallocr_alloc_graph);
    find(base, "ggml_gallocr_free", api_.gallocr_free);
    find(base, "ggml_backend_tensor_set", api_.tensor_set);
    find(base, "ggml_backend_tensor_get", api_.tensor_get);
    find(base, "ggml_backend_tensor_alloc", api_.tensor_alloc);
    find(base, "ggml_backend_alloc_ctx_tensors_from_buft", api_.alloc_ctx_tensors_from_buft);
    find(base, "ggml_backend_buffer_get_base", api_.buffer_get_base);
    find(base, "ggml_backend_buffer_get_size", api_.buffer_get_size);
    find(base, "ggml_backend_buffer_free", api_.buffer_free);
    find(base, "ggml_backend_buft_name", api_.buft_name);
    find(base, "ggml_backend_dev_buffer_type", api_.dev_buffer_type);
    find(base, "ggml_backend_dev_buffer_from_host_ptr", api_.dev_buffer_from_host_ptr);
    find(base, "ggml_backend_dev_supports_op", api_.dev_supports_op);
    find(base, "ggml_backend_dev_init", api_.dev_init);
    find(base, "ggml_backend_dev_backend_reg", api_.dev_backend_reg);
    find(base, "ggml_backend_reg_get_proc_address", api_.reg_get_proc_address);
    find(base, "ggml_backend_free", api_.backend_free);
    find(base, "ggml_backend_graph_compute", api_.backend_graph_compute);
    find(base, "ggml_threadpool_params_init", api_.threadpool_params_init);
}

void Library::load_cpu(const std::string& path) {
    if (path.empty()) throw std::runtime_error("ggml's CPU backend is no library of its own");
    const std::string stem = std::filesystem::path(path).stem().string();
    variant_ = stem.substr(0, stem.find('.')).substr(std::strlen("libggml-cpu"));
    variant_ = variant_.empty() ? "cpu" : variant_.substr(1);
    void* cpu = open(path);
    find(cpu, "ggml_backend_cpu_set_n_threads", api_.set_n_threads);
    find(cpu, "ggml_backend_cpu_set_threadpool", api_.set_threadpool);
    find(cpu, "ggml_threadpool_new", api_.threadpool_new);
    find(cpu, "ggml_threadpool_free", api_.threadpool_free);
    find(cpu, "ggml_threadpool_pause", api_.threadpool_pause);
    find(cpu, "ggml_threadpool_resume", api_.threadpool_resume);
    void* extra = api_.reg_get_proc_address(api_.dev_backend_reg(device_),
                                            "ggml_backend_dev_get_extra_bufts");
    if (!extra) throw std::runtime_error("this ggml has no list of its CPU buffer types");
    std::memcpy(&api_.dev_get_extra_bufts, &extra, sizeof extra);
}

int Library::type_of(const std::string& name) const {
    constexpr int more_than_any = 64;
    for (int type = 0; type < more_than_any; ++type) {
        const char* one = api_.type_name(type);
        if (!one || std::strcmp(one, "NONE") == 0) break;
        if (name == one) return type;
    }
    return -1;
}

}  // namespace moe::bench::ggml
