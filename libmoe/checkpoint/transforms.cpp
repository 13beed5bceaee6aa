// Transforms of what a matrix takes or gives when it runs, as quantisers name them in the
// configuration. There are none here (docs/limits.md), so they are refused. Transforms that are in
// the file's values already change nothing.
#include "libmoe/base/error.hpp"
#include "libmoe/base/fmt.hpp"
#include "libmoe/checkpoint/layer_builder.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

// Rotations by SpinQuant's numbers: R1 of the hidden size, R4 of what down takes. R2 and R3 are of
// the attention.
bool rotates_when_run(const SettingsPart& part, bool r1_default, bool r4_default) {
    const bool r1 = part.find_flag("r1").value_or(r1_default);
    return part.find_flag("r4").value_or(r4_default) ||
           (r1 && part.find_flag("online_r1_rotation").value_or(r1_default));
}

// AutoRound writes a newer and an older name. Rotations of every matrix by itself have no flags,
// and always turn what it takes.
std::string_view rotation_of_autoround(const Settings& settings) {
    for (const std::string_view stem :
         {"quantization_config.rotation_config", "quantization_config.spinquant_config"}) {
        const std::string members = std::string(stem) + ".";
        if (settings.has_part(stem) && rotates_when_run({settings, members}, true, false))
            return stem;
    }
    return {};
}

// Quark lists its algorithms. All others are in the values.
std::string rotation_of_quark(const Settings& settings) {
    for (int32_t i = 0;; ++i) {
        const std::string stem = fmt::format("quantization_config.algo_config.{}", i);
        const std::string members = stem + ".";
        if (!settings.has_part(members)) return {};
        const SettingsPart part(settings, members);
        const std::string_view name = part.find_text("name").value_or("");
        const bool is_quarot = name == "quarot";
        if ((is_quarot || name == "rotation") && rotates_when_run(part, false, is_quarot))
            return stem;
    }
}

}  // namespace

// The matrix is often in the file once, beside one of the modules that share it.
void LayerBuilder::refuse_transform(std::string_view stem, moe_role role) const {
    const std::string_view module = full_name(stem);
    std::string named;
    if (const ModuleRule* rule = files_.rules.find_transform(module))
        named = "quantization_config." + std::string(rule->stem);
    const bool may_rotate = role != MOE_ROLE_ROUTER;
    if (named.empty() && may_rotate) named = rotation_of_autoround(settings());
    if (named.empty() && may_rotate) named = rotation_of_quark(settings());
    if (named.empty()) return;
    fail(MOE_ERROR_UNSUPPORTED, "{}: '{}' transforms what '{}' takes or gives, which is not read",
         settings().file(), printable(named).text, printable(module).text);
}

}  // namespace moe
