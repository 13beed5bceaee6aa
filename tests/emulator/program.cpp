// Finds kernels by name in the PTX files and launches them.
#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <thread>
#include <unordered_map>

#include "tests/emulator/builder.hpp"
#include "tests/emulator/warp.hpp"

namespace emulator {
namespace {

struct Entry {
    Module* module = nullptr;
    const FileItem* item = nullptr;
    std::unique_ptr<Kernel> kernel;
};

void check_launch(const Kernel& kernel, const Launch& launch) {
    const auto fail = [&](const std::string& what) { throw Fault(kernel.name + ": " + what); };
    const Dim3 &grid = launch.grid, &block = launch.block, &cluster = launch.cluster;
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    if (threads == 0 || threads > std::min(kernel.max_threads, 1024u))
        fail("blocks of " + std::to_string(threads) + " threads");
    if (!grid.x || !grid.y || !grid.z) fail("a grid without blocks");
    if (!cluster.x || !cluster.y || !cluster.z || grid.x % cluster.x || grid.y % cluster.y ||
        grid.z % cluster.z)
        fail("a grid that is not made of whole clusters");
    const uint64_t dynamic = kernel.dynamic_shared - shared_base;
    if (dynamic + launch.dynamic_shared_bytes > max_shared_bytes)
        fail(std::to_string(launch.dynamic_shared_bytes) + " bytes of dynamic shared memory");
    uint32_t bytes = 0;
    for (const auto& [offset, size] : kernel.parameters) bytes = offset + size;
    if (launch.parameters.size() < bytes)
        fail(std::to_string(launch.parameters.size()) + " bytes of parameters, not " +
             std::to_string(bytes));
}

}  // namespace

struct Program::State {
    explicit State(const Memory& m) : memory(m) {}

    const Memory& memory;
    Memory variables;
    std::mutex mutex;
    std::deque<Module> modules;
    std::unordered_map<std::string_view, Entry> kernels;

    const Kernel& kernel(std::string_view name) {
        const std::lock_guard lock(mutex);
        const auto found = kernels.find(name);
        if (found == kernels.end()) throw Fault("no kernel " + std::string(name));
        Entry& entry = found->second;
        if (!entry.kernel) {
            auto kernel = std::make_unique<Kernel>();
            Builder(*entry.module, *kernel).build(*entry.item);
            entry.kernel = std::move(kernel);
        }
        return *entry.kernel;
    }
};

Program::Program(const Memory& memory) : state_(std::make_unique<State>(memory)) {}
Program::~Program() = default;

void Program::add_file(const std::string& path) {
    const std::lock_guard lock(state_->mutex);
    Module& module = state_->modules.emplace_back();
    module.read(path);
    for (const auto& [name, storage] : module.variables)
        state_->variables.add(storage.data(), storage.size() * sizeof storage[0]);
    for (const FileItem& item : module.items) {
        if (item.kind != FileItem::Kind::kernel) continue;
        Entry entry;
        entry.module = &module, entry.item = &item;
        state_->kernels.erase(item.name);
        state_->kernels.emplace(item.name, std::move(entry));
    }
}

bool Program::has(std::string_view kernel) const {
    const std::lock_guard lock(state_->mutex);
    return state_->kernels.contains(kernel);
}

KernelFacts Program::facts(std::string_view name) {
    const Kernel& kernel = state_->kernel(name);
    KernelFacts facts;
    facts.static_shared_bytes = kernel.static_shared;
    facts.max_threads = kernel.max_threads;
    for (const auto& [offset, size] : kernel.parameters) facts.parameter_bytes = offset + size;
    return facts;
}

std::vector<std::pair<uint32_t, uint32_t>> Program::parameters(std::string_view name) {
    return state_->kernel(name).parameters;
}

std::vector<std::string> Program::unknown_instructions(std::string_view name) {
    return state_->kernel(name).texts;
}

void Program::run(std::string_view name, const Launch& launch, Neighbours* neighbours) {
    const Kernel& kernel = state_->kernel(name);
    check_launch(kernel, launch);
    const auto volume = [](const Dim3& d) { return uint64_t{d.x} * d.y * d.z; };
    const uint64_t cluster = volume(launch.cluster), clusters = volume(launch.grid) / cluster;
    const uint64_t at_once =
        std::max<uint64_t>((launch.resident_blocks + cluster - 1) / cluster, 1);
    const uint64_t n = std::min({uint64_t{std::max(launch.host_threads, 1u)}, clusters, at_once});
    if (neighbours && n > 1) neighbours->end_earlier();
    Progress progress;
    std::mutex mutex;
    std::exception_ptr failure;
    const auto run_part = [&] {
        try {
            Run run;
            run.memory = &state_->memory;
            run.variables = &state_->variables;
            run.kernel = &kernel;
            run.launch = &launch;
            run.neighbours = n > 1 ? nullptr : neighbours;
            run.parameters.resize(launch.parameters.size() / 8 + 2);
            std::memcpy(run.parameters.data(), launch.parameters.data(), launch.parameters.size());
            run.shared_bytes = kernel.dynamic_shared - shared_base + launch.dynamic_shared_bytes;
            run.execute(progress, (at_once + n - 1) / n);
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (!failure) failure = std::current_exception();
            progress.is_over = true;
        }
    };
    std::vector<std::thread> others;
    for (uint64_t i = 1; i < n; ++i) others.emplace_back(run_part);
    run_part();
    for (std::thread& other : others) other.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace emulator
