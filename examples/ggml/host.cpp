#include "host.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <vector>

namespace moe::ggml {
namespace {

// Layouts are known from the first to the last of these, run with 0.9.4, 0.9.7, 0.15.3, 0.19.0,
// 0.23.0 and 0.25.1.
constexpr int oldest_minor = 9, oldest_patch = 4;
constexpr int newest_minor = 25;

using Find = std::function<void*(const char* name)>;

template <class Function>
bool take_if(const Find& find, const char* name, Function& function) {
    void* address = find(name);
    std::memcpy(&function, &address, sizeof function);
    return address != nullptr;
}

template <class Function>
void take(const Find& find, const char* name, Function& function) {
    if (!take_if(find, name, function))
        throw std::runtime_error(std::string("ggml has no function ") + name);
}

// The first is asked before anything else is looked up. Those behind ggml_backend_register may be
// missing; libmoe then has threads of its own.
constexpr const char* function_names[] = {
    "ggml_version",
    "ggml_tensor_overhead",
    "ggml_nbytes",
    "ggml_op_name",
    "ggml_unary_op_name",
    "ggml_glu_op_name",
    "ggml_type_name",
    "ggml_graph_n_nodes",
    "ggml_graph_node",
    "ggml_backend_buffer_get_type",
    "ggml_backend_buffer_get_base",
    "ggml_backend_buffer_get_size",
    "ggml_backend_buffer_get_usage",
    "ggml_backend_buft_is_host",
    "ggml_backend_buffer_init",
    "ggml_backend_register",
    "ggml_backend_reg_by_name",
    "ggml_init",
    "ggml_free",
    "ggml_custom_4d",
    "ggml_graph_overhead",
    "ggml_new_graph",
    "ggml_build_forward_expand",
    "ggml_threadpool_params_init",
    "ggml_graph_plan",
    "ggml_graph_compute",
    "ggml_threadpool_new",
    "ggml_threadpool_free",
};

// Versions between 0.9.11 and 0.10.0 bear the number 0.9.11 and have either layout. This function
// came with the newer one.
constexpr const char* newer_layout_function = "ggml_backend_tensor_set_2d";

bool has_row_copies(const std::string& version, const Find& find) {
    int minor = 0, patch = 0;
    std::sscanf(version.c_str(), "0.%d.%d", &minor, &patch);
    if (minor == 9 && patch == 11) return find(newer_layout_function) != nullptr;
    return minor >= 10;
}

bool take_compute(const Find& find, HostCompute& compute) {
    return take_if(find, "ggml_graph_plan", compute.plan) &&
           take_if(find, "ggml_graph_compute", compute.compute) &&
           take_if(find, "ggml_threadpool_new", compute.pool_new) &&
           take_if(find, "ggml_threadpool_free", compute.pool_free);
}

void take_threads(const Find& find, Host& found) {
    const bool has_all = take_if(find, "ggml_init", found.context_new) &&
                         take_if(find, "ggml_free", found.context_free) &&
                         take_if(find, "ggml_custom_4d", found.custom_4d) &&
                         take_if(find, "ggml_graph_overhead", found.graph_overhead) &&
                         take_if(find, "ggml_new_graph", found.graph_new) &&
                         take_if(find, "ggml_build_forward_expand", found.graph_expand) &&
                         take_if(find, "ggml_threadpool_params_init", found.pool_params) &&
                         take_if(find, "ggml_backend_reg_by_name", found.reg_by_name);
    if (!has_all) found.reg_by_name = nullptr;
    if (!take_compute(find, found.compute)) found.compute = {};
}

Host take_all(const Find& find) {
    Host found{};
    take(find, "ggml_version", found.version);
    const std::string version = found.version();
    if (const std::string reason = refusal_of(version); !reason.empty())
        throw std::runtime_error(reason);
    take(find, "ggml_tensor_overhead", found.tensor_overhead);
    if (found.tensor_overhead() != tensor_overhead)
        throw std::runtime_error("tensors of ggml " + version + " have another size than is known");
    take(find, "ggml_nbytes", found.nbytes);
    take(find, "ggml_op_name", found.op_name);
    take(find, "ggml_unary_op_name", found.unary_op_name);
    take(find, "ggml_glu_op_name", found.glu_op_name);
    take(find, "ggml_type_name", found.type_name);
    take(find, "ggml_graph_n_nodes", found.graph_n_nodes);
    take(find, "ggml_graph_node", found.graph_node);
    take(find, "ggml_backend_buffer_get_type", found.buffer_get_type);
    take(find, "ggml_backend_buffer_get_base", found.buffer_get_base);
    take(find, "ggml_backend_buffer_get_size", found.buffer_get_size);
    take(find, "ggml_backend_buffer_get_usage", found.buffer_get_usage);
    take(find, "ggml_backend_buft_is_host", found.buft_is_host);
    take(find, "ggml_backend_buffer_init", found.buffer_init);
    take_threads(find, found);
    found.has_row_copies = has_row_copies(version, find);
    found.has_compute_flag = find("ggml_build_forward_select") != nullptr;
    return found;
}

// Where a process has several copies of ggml, the one that the caller was linked with is meant: a
// handle of the caller finds functions of the libraries that it needs.
void* library_of(const void* address) {
    Dl_info info{};
    if (!dladdr(address, &info) || !info.dli_fname) return nullptr;
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

// Programs such as Node and Python load ggml's libraries without making their names global.
std::vector<std::string> loaded_ggml_libraries() {
    std::vector<std::string> paths;
    const auto visit = [](dl_phdr_info* info, size_t, void* found) {
        if (info->dlpi_name && std::strstr(info->dlpi_name, "ggml-base"))
            static_cast<std::vector<std::string>*>(found)->emplace_back(info->dlpi_name);
        return 0;
    };
    dl_iterate_phdr(visit, &paths);
    return paths;
}

}  // namespace

Host host{};

std::string refusal_of(const std::string& version) {
    int major = 0, minor = 0, patch = 0;
    if (std::sscanf(version.c_str(), "%d.%d.%d", &major, &minor, &patch) < 2)
        return "the version of ggml is \"" + version + "\", which is no number";
    const bool is_too_old =
        major == 0 && (minor < oldest_minor || (minor == oldest_minor && patch < oldest_patch));
    if (is_too_old) return "ggml " + version + " is too old: 0.9.4 or newer is needed";
    if (major == 0 && minor <= newest_minor) return "";
    const char* accepted = std::getenv("MOE_GGML_ACCEPT");
    if (major == 0 && accepted && version == accepted) return "";
    return "ggml " + version +
           " is newer than 0.25, the last one that is known. Where its backend "
           "interface is still that of 0.25, MOE_GGML_ACCEPT=" +
           version + " accepts it";
}

Host host_of_process(const void* caller) {
    std::vector<void*> places{library_of(caller)};
    for (const std::string& path : loaded_ggml_libraries())
        places.push_back(dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD));
    places.push_back(RTLD_DEFAULT);
    for (void* place : places) {
        if (place != RTLD_DEFAULT && !place) continue;
        if (!dlsym(place, "ggml_version")) continue;
        return take_all([place](const char* name) { return dlsym(place, name); });
    }
    throw std::runtime_error("no library of ggml with a version is loaded in this process");
}

bool find_compute(Host& found, void* address) {
    if (found.compute.compute) return true;
    void* library = library_of(address);
    const Find find = [=](const char* name) { return dlsym(library, name); };
    return library && take_compute(find, found.compute);
}

Host host_of_list(const moe_ggml_function* functions, size_t n_functions) {
    const Find find = [=](const char* name) -> void* {
        for (size_t i = 0; i < n_functions; ++i) {
            void* address = nullptr;
            std::memcpy(&address, &functions[i].address, sizeof address);
            if (functions[i].name && std::strcmp(functions[i].name, name) == 0) return address;
        }
        return nullptr;
    };
    Host found = take_all(find);
    take(find, "ggml_backend_register", found.backend_register);
    return found;
}

}  // namespace moe::ggml

const char* moe_ggml_function_at(size_t index) {
    constexpr size_t n = std::size(moe::ggml::function_names);
    return index < n ? moe::ggml::function_names[index] : nullptr;
}
