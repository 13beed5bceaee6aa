// How tensors are given (stacks, tables, one by one, fused, transposed) and what may be done with
// weights: updates, memory of the caller, several plans on one workspace.
#include <cstdio>
#include <cstring>

#include "families.hpp"
#include "layer_kinds.hpp"

namespace moe_gpu {
namespace {

struct Shape {
    const char* name;
    Form form;
    moe_gate_up_order fused;
    bool transposed;
};
constexpr Shape shapes[] = {
    {"stacked", Form::stacked, MOE_GATE_UP_NONE, false},
    {"table", Form::table, MOE_GATE_UP_NONE, false},
    {"each", Form::tensor_per_expert, MOE_GATE_UP_NONE, false},
    {"gate_first", Form::stacked, MOE_GATE_UP_GATE_FIRST, false},
    {"up_first", Form::table, MOE_GATE_UP_UP_FIRST, false},
    {"interleaved", Form::tensor_per_expert, MOE_GATE_UP_INTERLEAVED, false},
    {"transposed", Form::stacked, MOE_GATE_UP_NONE, true},
    {"gpt_oss", Form::stacked, MOE_GATE_UP_INTERLEAVED, true},
};

void add_shapes(CaseList& list) {
    for (const Shape& shape : shapes)
        for (const char* format : {"f32", "bf16", "nvfp4", "mxfp4", "kbit3"}) {
            if (shape.transposed && format[0] != 'b' && format[0] != 'f') continue;
            list.add(text("weights/%s/%s", shape.name, format), Extent::smoke,
                     [=](Context& context) {
                         PairSpec spec;
                         spec.layer.desc = rich_layer(128, 96, 6, 2);
                         spec.layer.format = format;
                         spec.layer.form = shape.form;
                         spec.layer.fused = shape.fused;
                         spec.layer.transposed = shape.transposed;
                         spec.numbers = format[0] == 'f' ? f32 : bf16;
                         spec.max_tokens = 40;
                         const Pair pair(context, spec);
                         for (const int64_t T : {1, 40}) pair.check(pair.routed_call(T));
                     });
        }
}

// With a codebook that is given, matrices that all had the same one end with different ones.
void check_update(const Pair& pair) {
    Context& context = pair.context;
    const Result before = pair.check(pair.routed_call(40), "before");
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_DOWN, MOE_ROLE_UP})
        for (const int32_t expert : {0, 5}) {
            // The reference borrows the decoded values that change with it.
            const moe_tensor tensor =
                pair.data->replace(role, expert, 900 + static_cast<uint64_t>(role + expert));
            must(moe_weights_update(pair.subject.weights.get(), &tensor, pair.subject.stream()),
                 "moe_weights_update");
            pair.subject.synchronize();
            pair.check(pair.routed_call(1), moe_role_name(role));
            const Result after = pair.check(pair.routed_call(40), moe_role_name(role));
            context.expect(after.bits != before.bits, "the update has no effect");
        }
}

PairSpec update_spec(const moe_layer_desc& desc, const char* format) {
    PairSpec spec;
    spec.layer.desc = desc;
    spec.layer.format = format;
    spec.max_tokens = 40;
    return spec;
}

// Every family has weights of its own: an update changes them.
void add_updates(CaseList& list) {
    for (const char* format : {"bf16", "nvfp4", "fp8_128x128", "kbit4", "kbit4_given", "q8_0"}) {
        list.add(text("weights/update/%s", format), Extent::smoke, [=](Context& context) {
            check_update(Pair(context, update_spec(plain_layer(128, 128, 6, 2), format)));
        });
        list.add(text("families/weights/update/%s", format), Extent::smoke, [=](Context& context) {
            const PairSpec spec = update_spec(rich_layer_on_grid(128, 128, 6, 2), format);
            force_every_family(context, spec, [&](const ForcePlan& force) {
                PairSpec forced = spec;
                forced.subject = force;
                check_update(Pair(context, forced));
            });
        });
    }
    // Tables of columns, which are replaced with the matrices.
    for (const char* format : {"gptq4_any_order", "nvfp4_pre_quant"})
        list.add(text("weights/update/%s", format), Extent::smoke, [=](Context& context) {
            check_update(Pair(context, update_spec(rich_layer_on_grid(128, 128, 6, 2), format)));
        });
}

// Memory of the caller, poisoned before: every byte that a kernel reads is written by the load.
void check_caller_memory(Context& context, const char* format) {
    PairSpec spec;
    spec.layer.desc = rich_layer(128, 96, 6, 2);
    spec.layer.format = format;
    spec.max_tokens = 40;
    const Pair pair(context, spec);
    moe_weights_desc desc = pair.data->weights_desc();
    desc.ownership = MOE_OWN_CALLER;
    desc.memory_space = context.device.is_cuda() ? MOE_SPACE_DEVICE : MOE_SPACE_HOST;
    uint64_t bytes = 0;
    must(moe_weights_size(pair.subject.plan.get(), &desc, &bytes), "moe_weights_size");
    Buffer memory(context.device, bytes);
    memory.poison();
    desc.memory = memory.data();
    desc.memory_bytes = bytes;
    const Weights weights = load_weights(pair.subject.plan.get(), desc);
    const Forward call = pair.routed_call(40);
    ForwardBuffers buffers(pair.subject, call, pair.subject.stream());
    must(moe_forward(pair.subject.plan.get(), weights.get(), pair.subject.workspace(),
                     &buffers.args()),
         "moe_forward");
    pair.subject.synchronize();
    context.expect(buffers.get(call).bits == pair.check(call).bits,
                   "weights in the caller's memory give other bits");
    desc.memory_bytes = bytes - 1;
    moe_weights* none = nullptr;
    context.expect(moe_weights_load(pair.subject.plan.get(), &desc, &none) != MOE_OK,
                   "a byte too few is accepted");
    moe_weights_destroy(none);
}

// Loaded on a thread and a stream of the library's own, beside calls of the plan.
void check_in_background(Context& context, const char* format) {
    PairSpec spec;
    spec.layer.desc = rich_layer(128, 96, 6, 2);
    spec.layer.format = format;
    spec.max_tokens = 40;
    const Pair pair(context, spec);
    const moe_plan* plan = pair.subject.plan.get();
    const moe_weights_desc desc = pair.data->weights_desc();
    const Forward call = pair.routed_call(40);
    moe_loading* started = nullptr;
    must(moe_loading_start(plan, &desc, &started), "moe_loading_start");
    const Loading loading(started);
    const Result wanted = pair.check(call);
    moe_weights* raw = nullptr;
    must(moe_loading_wait(started, &raw), "moe_loading_wait");
    const Weights weights(raw);
    auto progress = sized<moe_loading_progress>();
    must(moe_loading_poll(started, &progress), "moe_loading_poll");
    context.expect(
        progress.is_done && progress.bytes_done == progress.bytes_total && progress.bytes_total > 0,
        "a load that is done has not all bytes");
    ForwardBuffers buffers(pair.subject, call, pair.subject.stream());
    must(moe_forward(plan, weights.get(), pair.subject.workspace(), &buffers.args()),
         "moe_forward");
    pair.subject.synchronize();
    context.expect(buffers.get(call).bits == wanted.bits,
                   "weights that were loaded in the background give other bits");
    must(moe_loading_start(plan, &desc, &started), "moe_loading_start");
    const Loading cancelled(started);
    must(moe_loading_cancel(started), "moe_loading_cancel");
    const moe_status status = moe_loading_wait(started, nullptr);
    context.expect(status == MOE_OK || status == MOE_ERROR_CANCELLED, moe_last_error());
}

// Bytes beside the formats' own: at most 2 % and a megabyte.
void check_size(Context& context, const char* format) {
    PairSpec spec;
    spec.layer.desc = plain_layer(512, 256, 16, 2);
    spec.layer.format = format;
    spec.max_tokens = 4;
    const Pair pair(context, spec);
    auto report = sized<moe_memory_report>();
    must(moe_weights_memory(pair.subject.weights.get(), &report), "moe_weights_memory");
    const uint64_t held = context.device.is_cuda() ? report.device_bytes : report.host_bytes;
    const moe_format type = format_named(format);
    uint64_t data = 0, scales = 0, own = 16 * 512 * 4;
    must(moe_format_size(&type, 256, 512, &data, &scales), "moe_format_size");
    own += 16 * 2 * (data + scales);
    must(moe_format_size(&type, 512, 256, &data, &scales), "moe_format_size");
    own += 16 * (data + scales);
    context.expect(static_cast<double>(held) <= 1.02 * static_cast<double>(own) + (1 << 20),
                   text("%lu bytes are held, the tensors have %lu",
                        static_cast<unsigned long>(held), static_cast<unsigned long>(own)));
    context.measure("bytes held, of the tensors'",
                    static_cast<double>(held) / static_cast<double>(own),
                    1.02 + 1048576.0 / static_cast<double>(own));
}

// Weights loaded by one plan serve every plan with the layout's id, and outlive it.
void check_sharing(Context& context) {
    PairSpec spec;
    spec.layer.desc = plain_layer(128, 96, 6, 2);
    spec.max_tokens = 8;
    auto data = std::make_shared<LayerData>(spec.layer);
    auto first = std::make_unique<Pair>(context, spec, data);
    spec.max_tokens = 300;
    spec.numbers = bf16_to_f32;
    const Pair second(context, spec, data);
    uint8_t a[16], b[16];
    must(moe_plan_layout_id(first->subject.plan.get(), a), "moe_plan_layout_id");
    must(moe_weights_layout_id(second.subject.weights.get(), b), "moe_weights_layout_id");
    context.expect(std::memcmp(a, b, 16) == 0, "the layouts' ids differ");
    moe_weights_desc desc = data->weights_desc();
    const Weights weights = load_weights(first->subject.plan.get(), desc);
    first.reset();
    const Forward call = second.routed_call(300);
    ForwardBuffers buffers(second.subject, call, second.subject.stream());
    must(moe_forward(second.subject.plan.get(), weights.get(), second.subject.workspace(),
                     &buffers.args()),
         "moe_forward");
    second.subject.synchronize();
    context.expect(buffers.get(call).bits == second.check(call).bits,
                   "weights of another plan give other bits");
}

// Saved and opened, weights give the bits that they gave, also after an update; a CPU has nothing
// to save.
void check_file(Context& context, const char* format) {
    PairSpec spec;
    spec.layer.desc = rich_layer(128, 96, 6, 2);
    if (!can_hold(format, spec.layer.desc)) spec.layer.desc = rich_layer(256, 256, 6, 2);
    spec.layer.format = format;
    spec.max_tokens = 40;
    const Pair pair(context, spec);
    const moe_plan* plan = pair.subject.plan.get();
    const std::string path = text("packed-%s.moe", format);
    const moe_status saved = moe_weights_save(pair.subject.weights.get(), path.c_str());
    if (!context.device.is_cuda()) {
        context.expect(saved == MOE_ERROR_UNSUPPORTED, moe_status_name(saved));
        return;
    }
    must(saved, "moe_weights_save");
    moe_weights* raw = nullptr;
    const moe_status opened = moe_weights_open(plan, path.c_str(), &raw);
    std::remove(path.c_str());
    must(opened, "moe_weights_open");
    const Weights weights(raw);
    const Forward call = pair.routed_call(40);
    const auto bits = [&] {
        ForwardBuffers buffers(pair.subject, call, pair.subject.stream());
        must(moe_forward(plan, weights.get(), pair.subject.workspace(), &buffers.args()),
             "moe_forward");
        pair.subject.synchronize();
        return buffers.get(call).bits;
    };
    context.expect(bits() == pair.check(call, "before").bits, "the file gives other bits");
    const moe_tensor tensor = pair.data->replace(MOE_ROLE_DOWN, 3, 77);
    must(moe_weights_update(weights.get(), &tensor, pair.subject.stream()), "moe_weights_update");
    must(moe_weights_update(pair.subject.weights.get(), &tensor, pair.subject.stream()),
         "moe_weights_update");
    context.expect(bits() == pair.check(call, "after").bits, "the update gives other bits");
}

int32_t stop(uint64_t, uint64_t, void*) {
    return 1;
}

void check_cancelled(Context& context) {
    PairSpec spec;
    spec.layer.desc = plain_layer(128, 96, 6, 2);
    const Pair pair(context, spec);
    moe_weights_desc desc = pair.data->weights_desc();
    desc.progress = stop;
    moe_weights* none = nullptr;
    const moe_status status = moe_weights_load(pair.subject.plan.get(), &desc, &none);
    context.expect(status == MOE_ERROR_CANCELLED && !none,
                   std::string("cancelled: ") + moe_status_name(status));
}

}  // namespace

void add_weight_cases(CaseList& list) {
    add_shapes(list);
    add_updates(list);
    for (const char* format : {"bf16", "nvfp4", "fp8_128x128", "kbit4", "kbit4_given", "q8_0"})
        list.add(text("weights/caller_memory/%s", format), Extent::smoke,
                 [=](Context& context) { check_caller_memory(context, format); });
    for (const char* format : packed_formats())
        list.add(text("weights/size/%s", format), Extent::full,
                 [=](Context& context) { check_size(context, format); });
    auto formats = packed_formats();
    formats.insert(formats.end(), {"gptq4_any_order", "nvfp4_pre_quant"});
    for (const char* format : formats)
        list.add(text("weights/file/%s", format), Extent::full,
                 [=](Context& context) { check_file(context, format); });
    for (const char* format : {"f32", "bf16", "nvfp4", "q8_0"})
        list.add(text("weights/in_background/%s", format), Extent::smoke,
                 [=](Context& context) { check_in_background(context, format); });
    list.add("weights/sharing", Extent::smoke, check_sharing);
    list.add("weights/cancelled", Extent::smoke, check_cancelled);
}

}  // namespace moe_gpu
