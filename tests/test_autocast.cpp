// Autocast's decisions against PyTorch's own: its lists, taken from its dispatcher, and recorded dtypes of results.
#include "sweep.h"

#include <ampscope/sim/program/autocast.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

using namespace amp;
using namespace amp::test;

namespace {

std::vector<FormatSpec> formats_of(std::initializer_list<const char*> names) {
    std::vector<FormatSpec> result;
    for (const char* name : names) result.push_back(format(name));
    return result;
}

/// The output's format, or "error".
std::string output_of(const Autocast& autocast, std::string_view op, const std::vector<FormatSpec>& inputs,
                      const std::optional<FormatSpec>& dtype = {}) {
    try {
        return std::string(op_formats(autocast, op, inputs, dtype).output.name);
    } catch (const std::invalid_argument&) {
        return "error";
    }
}

/// Ops that a device does not list, but which are made of ops that it lists, and get their class from these.
const std::set<std::pair<std::string, std::string>> by_its_parts = {
    {"cross_entropy", "cuda"},      {"cross_entropy", "cpu"},
    {"cross_entropy", "mps"},       {"cross_entropy", "xpu"},
    {"cross_entropy_loss", "cuda"}, {"cross_entropy_loss", "mps"},
    {"cross_entropy_loss", "xpu"},  {"einsum", "cpu"},
    {"chain_matmul", "cpu"},        {"linalg_multi_dot", "cpu"},
    {"tensordot", "cpu"},           {"rnn_tanh_cell", "cpu"},
    {"rnn_tanh_cell", "mps"},       {"rnn_relu_cell", "cpu"},
    {"rnn_relu_cell", "mps"},       {"linalg_vecdot", "mps"}};

/// Unlisted ops that are made of several listed ones: their results follow from no one class.
const std::set<std::pair<std::string, std::string>> without_a_class = {
    {"lstm_cell", "cpu"}, {"gru_cell", "cpu"}, {"gru_cell", "mps"}};

/// Where kernels differ from the rule for operands of different formats. On the processor, outside a region: they work
/// in place on one operand, or do not check. In a region: the op checks its operands before its parts cast them.
const std::set<std::pair<std::string, std::string>> of_their_own = {{"binary_cross_entropy_with_logits", "none"},
                                                                    {"huber_loss", "none"},
                                                                    {"soft_margin_loss", "none"},
                                                                    {"conv_tbc", "none"},
                                                                    {"chain_matmul", "cpu"},
                                                                    {"linalg_multi_dot", "cpu"},
                                                                    {"tensordot", "cpu"},
                                                                    {"linalg_vecdot", "mps"}};

/// What only a device or a library behind PyTorch can call, and what gives whole numbers.
const std::set<std::string_view> no_evidence = {"_cudnn_rnn",
                                                "cudnn_convolution",
                                                "cudnn_convolution_transpose",
                                                "_mps_convolution",
                                                "rope",
                                                "mkldnn_rnn_layer",
                                                "_thnn_fused_lstm_cell",
                                                "_thnn_fused_gru_cell",
                                                "_native_multi_head_attention",
                                                "linalg_matrix_rank",
                                                "_scaled_dot_product_flash_attention"};

/// A call that tests/data/torch/autocast_calls.py made.
struct Call {
    std::string line, device, op;
    std::vector<FormatSpec> inputs{};
    std::optional<FormatSpec> dtype{};
    std::string output{};

    [[nodiscard]] Autocast autocast() const {
        if (device == "none") return {};
        const auto policy = parse_name<AutocastPolicy>("device", autocast_policy_names, device);
        return {true, policy, default_format(policy)};
    }
    /// Whether the table is asked for more than the call shows, given its answer. A kernel may lack a format; fake
    /// tensors have no kernels, which would refuse operands of different formats.
    [[nodiscard]] bool says_nothing(const std::string& answer) const {
        const bool alike = std::ranges::all_of(inputs, [&](const FormatSpec& f) { return f == inputs.front(); });
        const bool fake = device != "none" && device != "cpu";
        return alike ? output == "error" && answer != "error"
                     : of_their_own.contains({op, device}) || (fake && answer == "error");
    }
};

/// The call that "fp32,fp16,dtype:fp16=fp16" stands for.
Call parse_call(const std::string& device, const std::string& op, const std::string& text) {
    Call call{.line = fmt::format("{} {} {}", device, op, text), .device = device, .op = op};
    const std::size_t equals = text.find('=');
    call.output = text.substr(equals + 1);
    std::istringstream words(text.substr(0, equals));
    for (std::string word; std::getline(words, word, ',');) {
        if (word.starts_with("dtype:")) call.dtype = format(word.substr(6));
        else call.inputs.push_back(format(word));
    }
    return call;
}

std::vector<Call> recorded_calls() {
    std::ifstream file(AMPSCOPE_TEST_DATA "/torch/autocast_calls.txt");
    std::vector<Call> calls;
    std::string line;
    std::getline(file, line); // skips the version
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string device, op;
        words >> device >> op;
        for (std::string word; words >> word;) calls.push_back(parse_call(device, op, word));
    }
    return calls;
}

const Autocast cuda_fp16{.enabled = true, .policy = AutocastPolicy::cuda, .low = format("fp16")};

} // namespace

TEST_CASE("every op of PyTorch's lists is a row, and has the class that they state on each kind of device") {
    const std::map<std::string, AutocastClass> meanings = {{"", AutocastClass::unlisted},
                                                           {"lower_precision_fp", AutocastClass::lower_precision},
                                                           {"fp32", AutocastClass::fp32},
                                                           {"fp32_set_opt_dtype", AutocastClass::fp32_output},
                                                           {"fp32_append_dtype", AutocastClass::fp32_output},
                                                           {"promote", AutocastClass::widest},
                                                           {"banned", AutocastClass::banned}};
    std::ifstream file(AMPSCOPE_TEST_DATA "/torch/autocast_lists.json");
    const auto lists = nlohmann::json::parse(file);
    Tally tally;
    for (std::size_t d = 0; d < autocast_policy_names.size(); ++d) {
        REQUIRE(lists["devices"][d] == autocast_policy_names[d]);
        const auto policy = static_cast<AutocastPolicy>(d);
        const std::string device(name_of(policy));
        CHECK(lists["default"][device] == default_format(policy).name);
        for (const auto& item : lists["ops"].items()) {
            const std::string& op = item.key();
            const auto listed = item.value()[d].get<std::string>();
            if (listed.empty() && by_its_parts.contains({op, device})) continue;
            const AutocastClass ours = autocast_row(op).of(policy);
            tally.expect(std::uint32_t{ours == meanings.at(listed)}, 1U, [&] {
                return fmt::format("{} on {}: {}, listed as '{}'", op, device, name_of(ours), listed);
            });
        }
    }
    report("classes of ops against PyTorch's lists", tally);
    std::set<std::string_view> names;
    for (const AutocastRow& row : autocast_rows()) {
        CHECK_MESSAGE(names.insert(row.name).second, row.name, " is there twice");
        if (lists["ops"].contains(std::string(row.name))) continue;
        for (std::size_t d = 0; d < autocast_policy_names.size(); ++d) {
            const auto policy = static_cast<AutocastPolicy>(d);
            const bool listed = row.of(policy) != AutocastClass::unlisted;
            CHECK_MESSAGE(listed == by_its_parts.contains({std::string(row.name), std::string(name_of(policy))}),
                          row.name);
        }
    }
    for (const auto& item : lists["ops"].items()) CHECK_MESSAGE(names.contains(item.key()), item.key());
}

TEST_CASE("results have the dtypes that PyTorch gave them") {
    Tally tally;
    std::set<std::string> seen;
    for (const Call& call : recorded_calls()) {
        if (without_a_class.contains({call.op, call.device})) continue;
        const std::string got = output_of(call.autocast(), call.op, call.inputs, call.dtype);
        if (call.says_nothing(got)) continue;
        tally.expect(std::uint32_t{got == call.output}, 1U, [&] { return call.line + " and not " + got; });
        seen.insert(call.op);
    }
    report("autocast against PyTorch's results", tally);
    for (const AutocastRow& row : autocast_rows())
        CHECK_MESSAGE(seen.contains(std::string(row.name)) != no_evidence.contains(row.name), row.name);
}

TEST_CASE("on the processor most has stayed as it was in PyTorch 1.13") {
    std::ifstream file(AMPSCOPE_TEST_DATA "/torch/autocast_cpu.json");
    const auto golden = nlohmann::json::parse(file);
    // PyTorch 1.13 has no BF16 kernel of these; later versions do.
    const std::set<std::string> no_kernel = {"prod", "mse_loss", "binary_cross_entropy"};
    Tally tally;
    for (const auto& row : golden["rows"]) {
        const auto op = row["op"].get<std::string>();
        std::vector<FormatSpec> inputs;
        bool bf16_only = true;
        for (const auto& name : row["inputs"]) {
            inputs.push_back(format(name.get<std::string>()));
            bf16_only = bf16_only && name == "bf16";
        }
        if (row["output"] == "error" && bf16_only && no_kernel.contains(op)) continue;
        // There it works in place on the target, which is an accident of that version's kernel and not a rule.
        if (op == "binary_cross_entropy_with_logits" && !row["autocast"] && row["inputs"][0] != row["inputs"][1])
            continue;
        const Autocast autocast{row["autocast"].get<bool>(), AutocastPolicy::cpu, format("bf16")};
        const std::string got = output_of(autocast, op, inputs);
        tally.expect(std::uint32_t{got == row["output"]}, 1U, [&] { return row.dump() + " and not " + got; });
    }
    report("autocast on the processor against PyTorch 1.13", tally);
    CHECK(tally.cases == 207);
}

TEST_CASE("an op that no list has runs in the formats of its operands, whatever its name") {
    for (std::size_t d = 0; d < autocast_policy_names.size(); ++d) {
        const auto policy = static_cast<AutocastPolicy>(d);
        const Autocast autocast{true, policy, default_format(policy)};
        for (const char* op : {"my_op", "matmull", ""}) {
            CHECK(autocast_row(op).of(policy) == AutocastClass::unlisted);
            CHECK(output_of(autocast, op, formats_of({"fp16"})) == "fp16");
            CHECK(output_of(autocast, op, formats_of({"bf16", "fp32"})) == "fp32");
            CHECK(output_of(autocast, op, formats_of({"bf16"}), format("fp16")) == "fp16");
        }
    }
}

TEST_CASE("under the CUDA policy products go down, functions that overflow go up, sums come out in FP32") {
    const auto with = [](const char* op, std::initializer_list<const char*> inputs) {
        return op_formats(cuda_fp16, op, formats_of(inputs));
    };
    const OpFormats product = with("linear", {"fp32", "fp32", "fp32"});
    for (const FormatSpec& f : product.inputs) CHECK(f == format("fp16"));
    CHECK(product.output == format("fp16"));
    CHECK(product.rule == AutocastClass::lower_precision);

    CHECK(with("layer_norm", {"fp16"}).inputs[0] == format("fp32"));
    CHECK(with("layer_norm", {"fp16"}).output == format("fp32"));
    CHECK(with("softmax", {"fp16"}).inputs[0] == format("fp16")); // read as it is
    CHECK(with("softmax", {"fp16"}).output == format("fp32"));
    const auto half = formats_of({"fp16"});
    CHECK(op_formats(cuda_fp16, "softmax", half, format("fp16")).output == format("fp16")); // softmax(dtype=torch.half)
    CHECK(op_formats(cuda_fp16, "softmax", half, format("fp16")).rule == AutocastClass::fp32_output);
    CHECK_THROWS_WITH(op_formats(cuda_fp16, "exp", half, format("fp16")), "exp: takes no dtype");
    CHECK(with("sum", {"fp16"}).output == format("fp32"));
    CHECK(with("mean", {"fp16"}).output == format("fp16")); // unlisted, unlike sum
    CHECK(with("relu", {"fp16"}).output == format("fp16"));
    CHECK(with("add", {"fp16", "fp32"}).output == format("fp32"));
    CHECK(with("add", {"fp16", "fp32"}).inputs[0] == format("fp16")); // promoted, not cast by autocast
    CHECK(with("dot", {"fp16", "fp32"}).inputs[0] == format("fp32")); // cast
    CHECK(with("dot", {"fp16", "fp16"}).output == format("fp16"));
    CHECK(with("cross_entropy", {"fp16"}).output == format("fp32"));
    CHECK(with("linear", {"bf16", "fp16"}).output == format("fp16"));
    CHECK(with("add", {"bf16", "fp16"}).output == format("fp32"));
}

TEST_CASE("under the processor's policy it is joining that asks for the widest") {
    const Autocast cpu{.enabled = true, .policy = AutocastPolicy::cpu, .low = format("bf16")};
    for (const char* op : {"cat", "stack"}) {
        const OpFormats f = op_formats(cpu, op, formats_of({"bf16", "fp32"}));
        CHECK(f.inputs[0] == format("fp32"));
        CHECK(f.rule == AutocastClass::widest);
        CHECK(op_formats(cpu, op, formats_of({"bf16", "bf16"})).output == format("bf16"));
    }
}

TEST_CASE("what PyTorch refuses is refused, by name") {
    const auto message = [](const Autocast& autocast, const char* op, std::initializer_list<const char*> inputs) {
        try {
            op_formats(autocast, op, formats_of(inputs));
        } catch (const std::invalid_argument& error) {
            return std::string(error.what());
        }
        return std::string("no error");
    };
    CHECK(message(cuda_fp16, "binary_cross_entropy", {"fp16", "fp16"}).find("_with_logits") != std::string::npos);
    CHECK(message({}, "matmul", {"fp32", "fp16"}).find("matmul: operands are fp32 and fp16") == 0);
    CHECK(message(cuda_fp16, "dot", {"bf16", "fp16"}).find("dot: an operand is bf16") == 0);
    CHECK(message(cuda_fp16, "matmul", {"e4m3", "fp16"}).find("not e4m3") != std::string::npos);
    CHECK(message(cuda_fp16, "dot", {"fp32", "bf16"}) == "no error"); // FP32 by then
    CHECK(message(cuda_fp16, "matmul", {}) == "matmul: no operands");
    const Autocast to_fp32{.enabled = true, .policy = AutocastPolicy::cpu, .low = format("fp32")};
    CHECK(message(to_fp32, "matmul", {"fp32", "fp32"}).find("only fp16 and bf16") != std::string::npos);
}

TEST_CASE("outside a region nothing is cast") {
    for (const AutocastRow& row : autocast_rows()) {
        const OpFormats f = op_formats({}, row.name, formats_of({"fp16", "fp16"}));
        CHECK(f.output == format("fp16"));
        CHECK(f.rule == AutocastClass::unlisted);
        for (const FormatSpec& input : f.inputs) CHECK(input == format("fp16"));
    }
}
