// Autocast's decisions against PyTorch's own: recorded dtypes for the processor, the cited lists for CUDA.
#include "sweep.h"

#include <ampscope/sim/program/autocast.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <stdexcept>

using namespace amp;
using namespace amp::test;

namespace {

std::vector<FormatSpec> formats_of(std::initializer_list<const char*> names) {
    std::vector<FormatSpec> result;
    for (const char* name : names) result.push_back(format(name));
    return result;
}

/// The output's format, or "error".
std::string output_of(const Autocast& autocast, std::string_view op, const std::vector<FormatSpec>& inputs) {
    try {
        return std::string(op_formats(autocast, op, inputs).output.name);
    } catch (const std::invalid_argument&) {
        return "error";
    }
}

const Autocast cuda_fp16{.enabled = true, .policy = AutocastPolicy::cuda, .low = format("fp16")};

} // namespace

TEST_CASE("dtypes on the processor are those that PyTorch 1.13 gave") {
    std::ifstream file(AMPSCOPE_TEST_DATA "/torch/autocast_cpu.json");
    const auto golden = nlohmann::json::parse(file);
    // PyTorch 1.13 has no BF16 kernel of these; later versions do.
    const std::set<std::string> no_kernel = {"prod", "mse_loss", "binary_cross_entropy"};
    Tally tally;
    std::set<std::string> seen;
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
        seen.insert(op);
    }
    report("autocast on the processor against PyTorch", tally);
    CHECK(tally.cases == 207);
    // PyTorch 1.13 has no public function for these.
    seen.insert({"scaled_dot_product_attention", "rms_norm"});
    for (const AutocastRow& row : autocast_rows()) CHECK_MESSAGE(seen.contains(std::string(row.name)), row.name);
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
    CHECK(message(cuda_fp16, "matmull", {"fp32", "fp32"}).find("known: matmul, bmm") != std::string::npos);
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
